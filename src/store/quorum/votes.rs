//! [`VoteSet`]: where a vote of one attempt may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The members that may hold a vote of one attempt: a request left for them, and no answer excluded it since.
///
/// Clones are the same set: one is in the book, others are with the requests that are still under way.
#[derive(Clone, Default, Debug)]
pub(super) struct VoteSet(Arc<AtomicU16>);

/// The attempt is decided. A quorum has 15 members at most, so the last bit is free.
const CLOSED: u16 = 1 << 15;

impl VoteSet {
    /// Adds the member right before the request leaves, unless the attempt is decided: then the vote must not be sent.
    #[must_use]
    pub(super) fn enter(&self, member: usize) -> bool {
        let enter = |members: u16| (members & CLOSED == 0).then_some(members | 1 << member);
        let entered = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
        entered.is_ok()
    }

    /// The attempt is decided: a vote that is not sent yet is not sent any more.
    pub(super) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Adds a member that a hold asks for its vote again.
    pub(super) fn insert(&self, member: usize) {
        self.0.fetch_or(1 << member, Ordering::AcqRel);
    }

    pub(super) fn remove(&self, member: usize) {
        self.0.fetch_and(!(1 << member), Ordering::AcqRel);
    }

    pub(super) fn contains(&self, member: usize) -> bool {
        self.0.load(Ordering::Acquire) & (1 << member) != 0
    }
}
