//! [`Electorate`]: the members, and what one client knows of them and of its own claims.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::backlog::Backlog;
use super::book::Book;
use super::floor::Estimate;
use super::round::Round;
use super::silence::{Ask, Silence};
use super::vote_count::majority;
use crate::clock::{Clock, Stamp};
use crate::model::holder::OwnerToken;
use crate::store::Claim;

/// What all clones of a [`Quorum`](super::Quorum) share.
#[derive(Debug)]
pub(super) struct Electorate<M> {
    pub(super) members: Vec<Arc<M>>,
    pub(super) clock: Clock,
    pub(super) book: Mutex<Book>,
    pub(super) estimate: Mutex<Estimate>,
    /// For each member, what it has to withdraw yet.
    pub(super) backlogs: Vec<Mutex<Backlog>>,
    silence: Mutex<Silence>,
}

impl<M> Electorate<M> {
    pub(super) fn new(members: Vec<Arc<M>>, clock: Clock) -> Self {
        Self {
            clock,
            book: Mutex::default(),
            estimate: Mutex::default(),
            backlogs: members.iter().map(|_| Mutex::default()).collect(),
            silence: Mutex::new(Silence::new(members.len())),
            members,
        }
    }

    /// How many members are a majority.
    pub(super) fn need(&self) -> usize {
        majority(self.members.len())
    }

    /// Whether an attempt of this owner token holds for the claim.
    pub(super) fn holds(&self, claim: &Claim, owner: OwnerToken) -> bool {
        let now = self.clock.stamp();
        let held = self.book.lock().holding(claim, &now);
        held.is_some_and(|(holding, _)| holding == owner)
    }

    /// Before the members are asked.
    pub(super) fn compare(&self, now: &Stamp) {
        self.silence.lock().compare(now);
    }

    pub(super) fn how_to_ask(&self, member: usize, now: &Stamp, ttl: Duration) -> Ask {
        self.silence.lock().ask(member, now, ttl)
    }

    pub(super) fn is_silent(&self, member: usize, now: &Stamp) -> bool {
        self.silence.lock().is_silent(member, now)
    }

    /// A request to a member ended, with an answer or without.
    pub(super) fn heard(&self, member: usize, is_answer: bool) {
        let mut silence = self.silence.lock();
        if is_answer {
            silence.answered(member);
        } else {
            silence.failed(member);
        }
    }

    /// Whether nobody need wait for any of these members.
    pub(super) fn are_silent(&self, mut members: impl Iterator<Item = usize>) -> bool {
        let now = self.clock.stamp();
        let silence = self.silence.lock();
        members.all(|member| silence.is_silent(member, &now))
    }

    /// A majority has answered in this round. Whoever has not, since the majority did, is silent
    /// after a patience.
    pub(super) fn note_unanswered<T: Send + 'static>(&self, round: &Round<T>) {
        let mut unanswered = round.waited_for().peekable();
        if unanswered.peek().is_none() {
            return;
        }
        let since = round.quorate_at().unwrap_or_else(|| self.clock.stamp());
        let overdue_at = since.plus(round.patience());
        let mut silence = self.silence.lock();
        unanswered.for_each(|member| silence.is_behind(member, overdue_at));
    }
}

/// The claim as the members know it.
pub(super) fn as_attempt(claim: &Claim, owner: OwnerToken) -> Claim {
    Claim {
        owner,
        ..claim.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::acquire::acquire;
    use super::super::look::inspect;
    use super::*;
    use crate::clock::ManualClock;
    use crate::model::holder::Label;
    use crate::model::key::Key;
    use crate::store::{Acquired, MemoryStore};

    /// A client that was cut off: the answers of one member after the other were lost.
    #[tokio::test]
    async fn most_members_were_silent_and_are_asked_again() {
        let clock = ManualClock::new();
        let members = (0..3).map(|_| Arc::new(MemoryStore::with_clock(clock.clone())));
        let electorate = Arc::new(Electorate::new(members.collect(), clock.clone().into()));
        let become_silent = || {
            let now = electorate.clock.stamp();
            let mut silence = electorate.silence.lock();
            (0..3).for_each(|member| silence.is_behind(member, now));
        };
        let key = Key::parse("a").unwrap();
        become_silent();
        assert_eq!(inspect(&electorate, &key).await.unwrap(), None);
        become_silent();
        let (owner, label) = (OwnerToken::generate().unwrap(), Label::parse("me").unwrap());
        let claim = Claim::new(key, owner, label, Duration::from_secs(10));
        let acquired = acquire(&electorate, &claim).await.unwrap();
        assert!(matches!(acquired, Acquired::Granted(_)), "{acquired:?}");
    }
}
