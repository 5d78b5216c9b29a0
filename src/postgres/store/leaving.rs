//! [`Leaving`]: the releases of one key that wait for their turn go to the server together. So many
//! readers of a key end in a few requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::{RecvError, TryRecvError};

use super::fault::NoAnswer;
use super::owner::Owner;
use crate::model::holder::OwnerToken;
use crate::model::key::Key;
use crate::store::Claim;

/// How many are in one request at most: requests for other keys wait behind it.
const MOST: usize = 100;

/// The releases of each key that were not sent yet.
#[derive(Default)]
pub(super) struct Leaving {
    keys: Mutex<HashMap<Key, Vec<Waiting>>>,
    next: AtomicU64,
}

/// Whether a release found that the claim held the key.
type Answer = Result<bool, NoAnswer>;

struct Waiting {
    /// One claim may be released several times.
    number: u64,
    owner: OwnerToken,
    answer: oneshot::Sender<Answer>,
}

/// A release that waits for its turn, or for the answer to the request of another that has taken
/// it along.
pub(super) struct Place<'a> {
    leaving: &'a Leaving,
    claim: &'a Claim,
    number: u64,
    pub(super) answer: oneshot::Receiver<Answer>,
    is_taken: bool,
}

/// Those that one request releases.
pub(super) struct Together {
    own: OwnerToken,
    others: Vec<Waiting>,
}

impl Leaving {
    pub(super) fn join<'a>(&'a self, claim: &'a Claim) -> Place<'a> {
        let (sender, answer) = oneshot::channel();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting {
            number,
            owner: claim.owner,
            answer: sender,
        };
        let mut keys = self.keys.lock();
        keys.entry(claim.key.clone()).or_default().push(waiting);
        Place {
            leaving: self,
            claim,
            number,
            answer,
            is_taken: false,
        }
    }

    /// Takes the release of this number, and some of those of its key that wait with it.
    fn take(&self, claim: &Claim, number: u64) -> Vec<Waiting> {
        let mut keys = self.keys.lock();
        let mut waiting = keys.remove(&claim.key).unwrap_or_default();
        if let Some(own) = waiting.iter().position(|w| w.number == number) {
            drop(waiting.remove(own));
        }
        let rest = waiting.split_off(waiting.len().min(MOST - 1));
        if !rest.is_empty() {
            keys.insert(claim.key.clone(), rest);
        }
        waiting
    }
}

impl Place<'_> {
    /// What the request of another answered.
    pub(super) fn answered(&mut self, answer: Result<Answer, RecvError>) -> Answer {
        self.is_taken = true;
        answer.unwrap_or_else(|_| Err(unanswered()))
    }

    /// In the turn of its key: what to send, unless another has sent it.
    ///
    /// # Errors
    ///
    /// The answer of that other one.
    pub(super) fn in_turn(&mut self) -> Result<Together, Answer> {
        self.is_taken = true;
        match self.answer.try_recv() {
            Ok(answer) => Err(answer),
            Err(TryRecvError::Closed) => Err(Err(unanswered())),
            Err(TryRecvError::Empty) => Ok(Together {
                own: self.claim.owner,
                others: self.leaving.take(self.claim, self.number),
            }),
        }
    }
}

/// Its task was dropped. Nobody knows more of those that it took along.
pub(super) fn unanswered() -> NoAnswer {
    NoAnswer::Unanswered("the request that it was a part of has no answer")
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let mut keys = self.leaving.keys.lock();
        let Some(waiting) = keys.get_mut(&self.claim.key) else {
            return;
        };
        waiting.retain(|waiting| waiting.number != self.number);
        if waiting.is_empty() {
            keys.remove(&self.claim.key);
        }
    }
}

impl Together {
    pub(super) fn owners(&self) -> Vec<Owner> {
        let others = self.others.iter().map(|waiting| waiting.owner);
        std::iter::once(self.own).chain(others).map(Owner).collect()
    }

    /// Passes on which of the [owners](Self::owners) held the key, or why that is not known. What
    /// the first of them is answered.
    pub(super) fn answer(self, held: Result<Vec<bool>, NoAnswer>) -> Answer {
        let answers = self.others.into_iter().enumerate();
        for (at, waiting) in answers {
            let answer = match &held {
                Ok(held) => held.get(at + 1).copied().ok_or_else(unanswered),
                Err(why) => Err(why.for_another("release")),
            };
            // Whoever does not wait any more is not interested.
            let _ = waiting.answer.send(answer);
        }
        held?.first().copied().ok_or_else(unanswered)
    }
}
