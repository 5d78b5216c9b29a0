//! [`Electorate`]: the members, and what one client knows of them and of its own claims.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::backlog::Backlog;
use super::book::Book;
use super::floor::Estimate;
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

    /// A majority has answered, and these members have not.
    pub(super) fn are_behind(&self, members: impl Iterator<Item = usize>, overdue_at: Stamp) {
        let mut silence = self.silence.lock();
        members.for_each(|member| silence.is_behind(member, overdue_at));
    }
}

/// The claim as the members know it.
pub(super) fn as_attempt(claim: &Claim, owner: OwnerToken) -> Claim {
    Claim {
        owner,
        ..claim.clone()
    }
}
