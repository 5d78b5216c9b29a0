//! [`Backlog`]: attempts that a member has to withdraw, and could not be asked to yet.

use std::collections::VecDeque;

use super::votes::VoteSet;
use crate::clock::Stamp;
use crate::store::Claim;

/// The most attempts that one member has to withdraw; of more, the TTL ends the oldest.
const MOST: usize = 1_000;

/// One member's attempts, oldest first. One task at a time works on them, however many there are.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    attempts: VecDeque<Withdrawal>,
    is_worked_on: bool,
}

/// An attempt that one member has to withdraw.
#[derive(Debug)]
pub(super) struct Withdrawal {
    pub(super) attempt: Claim,
    pub(super) votes: VoteSet,
    /// When the TTL has ended it.
    pub(super) over_at: Stamp,
}

impl Backlog {
    /// Adds an attempt. Returns whether the caller must start the task.
    #[must_use]
    pub(super) fn push(&mut self, withdrawal: Withdrawal) -> bool {
        self.attempts.push_back(withdrawal);
        if self.attempts.len() > MOST {
            self.attempts.pop_front();
        }
        !std::mem::replace(&mut self.is_worked_on, true)
    }

    /// The oldest attempt that is not over. With `None` the task ends.
    pub(super) fn next(&mut self, now: &Stamp) -> Option<Withdrawal> {
        while let Some(oldest) = self.attempts.pop_front() {
            if !oldest.over_at.since(now).is_zero() {
                return Some(oldest);
            }
            tracing::debug!(
                target: "leasehold::quorum", key = %oldest.attempt.key,
                "a vote was not confirmed as withdrawn; its ttl ends it"
            );
        }
        self.is_worked_on = false;
        None
    }
}
