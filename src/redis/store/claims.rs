//! [`Claims`]: what a store remembers of the claims that it asks for: requests without an answer,
//! claims that must not be granted any more, and the last answer to each that waits.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::message::{Asked, GrantMessage};
use crate::clock::{Clock, Stamp};
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::store::{Claim, Grant};

/// For how long a claim without an answer is remembered. One that ended is refused for its TTL.
const REMEMBERED: Duration = Duration::from_secs(600);
/// With fewer entries than this there is no sweep.
const SWEEP_FLOOR: usize = 1_000;

/// Why a claim is not granted any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Withdrawn,
    /// Its hold was found gone. A member's vote may be asked for again then.
    Gone,
}

/// What is remembered of one claim.
#[derive(Debug)]
struct Known {
    /// Requests that may have been sent and are not answered.
    unanswered: u32,
    ended: Option<Ended>,
    /// The newest answer, while it has to wait.
    asked: Option<Asked>,
    until: Stamp,
}

impl Known {
    fn is_needless(&self) -> bool {
        self.unanswered == 0 && self.ended.is_none() && self.asked.is_none()
    }
}

#[derive(Debug)]
struct Book {
    claims: HashMap<OwnerToken, Known>,
    sweep_at: usize,
}

impl Book {
    /// The entry of a claim, remembered for `span` at least. Forgets what is old each time the
    /// number has doubled.
    fn entry(&mut self, owner: OwnerToken, now: &Stamp, span: Duration) -> &mut Known {
        if self.claims.len() >= self.sweep_at {
            self.claims
                .retain(|_, known| !known.until.since(now).is_zero());
            self.sweep_at = SWEEP_FLOOR.max(2 * self.claims.len());
        }
        let until = now.plus(span);
        let known = self.claims.entry(owner).or_insert(Known {
            unanswered: 0,
            ended: None,
            asked: None,
            until,
        });
        if known.until.since(&until).is_zero() {
            known.until = until;
        }
        known
    }
}

/// What a store remembers of its claims.
#[derive(Debug)]
pub(super) struct Claims {
    clock: Clock,
    book: Mutex<Book>,
}

impl Claims {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            book: Mutex::new(Book {
                claims: HashMap::new(),
                sweep_at: SWEEP_FLOOR,
            }),
        }
    }

    /// A request of this claim is about to be sent. Until it is [answered](Request::answered), it
    /// counts as unanswered, however its future ends.
    ///
    /// # Errors
    ///
    /// `Invalid` for a claim that was withdrawn, or whose hold was found gone.
    pub(super) fn request(&self, claim: &Claim, is_vote: bool) -> Result<Request<'_>, Error> {
        let now = self.clock.stamp();
        let mut book = self.book.lock();
        let has_ended = (book.claims.get(&claim.owner)).and_then(|known| known.ended);
        match has_ended {
            None => {}
            Some(Ended::Gone) if is_vote => {}
            Some(_) => return Err(ended(claim)),
        }
        book.entry(claim.owner, &now, REMEMBERED).unanswered += 1;
        Ok(Request {
            claims: self,
            owner: claim.owner,
            sent_at: now,
        })
    }

    /// The claim will not be granted by this store any more.
    pub(super) fn end(&self, claim: &Claim, how: Ended) {
        let now = self.clock.stamp();
        let mut book = self.book.lock();
        let known = book.entry(claim.owner, &now, claim.ttl);
        known.asked = None;
        if known.ended != Some(Ended::Withdrawn) {
            known.ended = Some(how);
        }
    }

    /// Whether a request of this claim may be executed later. Nothing is known about claims of
    /// another store.
    pub(super) fn has_unanswered(&self, owner: &OwnerToken) -> bool {
        let book = self.book.lock();
        (book.claims.get(owner)).is_some_and(|known| known.unanswered > 0)
    }

    /// The server refuses the requests of this claim from now on.
    pub(super) fn settled(&self, owner: &OwnerToken) {
        self.change(owner, |known| known.unanswered = 0);
    }

    /// The grant that a message proves; `None` if the claim has to ask.
    pub(super) fn granted(
        &self,
        claim: &Claim,
        message: &GrantMessage,
        call: Duration,
    ) -> Option<Grant> {
        let mut book = self.book.lock();
        let known = book.claims.get_mut(&claim.owner)?;
        let grant = known.asked.as_ref()?.granted(claim, message, call)?;
        known.asked = None;
        if known.is_needless() {
            book.claims.remove(&claim.owner);
        }
        Some(grant)
    }

    fn change(&self, owner: &OwnerToken, change: impl FnOnce(&mut Known)) {
        let mut book = self.book.lock();
        if let Some(known) = book.claims.get_mut(owner) {
            change(known);
            if known.is_needless() {
                book.claims.remove(owner);
            }
        }
    }
}

fn ended(claim: &Claim) -> Error {
    Error::invalid(format!(
        "this claim was withdrawn or lost: key={}; make a new claim",
        claim.key
    ))
}

/// A request of a claim.
#[derive(Debug)]
#[must_use = "its answer must be reported"]
pub(super) struct Request<'a> {
    claims: &'a Claims,
    owner: OwnerToken,
    /// Before it was sent.
    pub(super) sent_at: Stamp,
}

impl Request<'_> {
    /// It was answered or never sent: it will not be executed later. `asked`: the claim has to
    /// wait.
    pub(super) fn answered(self, asked: Option<Asked>) {
        self.claims.change(&self.owner, |known| {
            known.unanswered = known.unanswered.saturating_sub(1);
            known.asked = asked.filter(|_| known.ended.is_none());
        });
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::model::holder::Label;

    fn claim(ttl: Duration) -> Claim {
        let owner = OwnerToken::generate().expect("random numbers");
        let label = Label::parse("here").expect("a label");
        Claim::new("a".parse().expect("a key"), owner, label, ttl)
    }

    /// A contended Redlock withdraws with each round that it loses.
    #[test]
    fn claims_that_ended_are_forgotten_after_their_ttl() {
        let clock = ManualClock::new();
        let claims = Claims::new(clock.clone().into());
        for _ in 0..20_000 {
            let claim = claim(Duration::from_secs(10));
            claims.end(&claim, Ended::Withdrawn);
            assert!(claims.request(&claim, false).is_err());
            clock.advance(Duration::from_millis(10));
        }
        assert!(claims.book.lock().claims.len() <= 2 * SWEEP_FLOOR);
    }

    #[test]
    fn a_request_without_an_answer_counts_until_the_server_refuses_it() {
        let claims = Claims::new(ManualClock::new().into());
        let claim = claim(Duration::from_secs(10));
        claims.request(&claim, false).unwrap().answered(None);
        assert!(!claims.has_unanswered(&claim.owner));
        assert!(claims.book.lock().claims.is_empty());
        drop(claims.request(&claim, false).unwrap());
        claims.request(&claim, false).unwrap().answered(None);
        assert!(claims.has_unanswered(&claim.owner));
        claims.settled(&claim.owner);
        assert!(!claims.has_unanswered(&claim.owner));
    }
}
