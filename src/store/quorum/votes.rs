//! [`VoteSet`]: where a vote of one attempt may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The members that may hold a vote of one attempt: a request left for them, and no answer excluded
/// it since.
///
/// Clones are the same set: one is in the book, others are with the requests that are still under
/// way.
#[derive(Clone, Default, Debug)]
pub(super) struct VoteSet(Arc<AtomicU32>);

/// The attempt is decided. A quorum has 15 members at most, so this bit is free.
const CLOSED: u32 = 1 << 15;
/// Where the bits begin that say which members were asked more than once.
const AGAIN: u32 = 16;

impl VoteSet {
    /// Adds the member right before the request leaves, unless the attempt is decided: then the
    /// vote must not be sent.
    #[must_use]
    pub(super) fn enter(&self, member: usize) -> bool {
        let enter = |members: u32| (members & CLOSED == 0).then_some(members | 1 << member);
        let entered = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
        entered.is_ok()
    }

    /// The attempt is decided: a vote that is not sent yet is not sent any more.
    pub(super) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Adds a member that a hold asks for its vote again. An earlier request may still be under way
    /// to it.
    pub(super) fn enter_again(&self, member: usize) {
        self.0
            .fetch_or((1 | 1 << AGAIN) << member, Ordering::AcqRel);
    }

    /// Whether an earlier request may still be under way to the member, although it answered one.
    pub(super) fn was_asked_again(&self, member: usize) -> bool {
        self.0.load(Ordering::Acquire) & (1 << AGAIN << member) != 0
    }

    /// The member answered a request, and has no vote of it. One that was asked more than once
    /// stays: the answer to one request says nothing of the others.
    pub(super) fn refused(&self, member: usize) {
        let remove = |members: u32| {
            let was_asked_again = members & (1 << AGAIN << member) != 0;
            (!was_asked_again).then_some(members & !(1 << member))
        };
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, remove);
    }

    /// The member has no vote and will have none: it released the only one, or it withdrew the
    /// attempt.
    pub(super) fn remove(&self, member: usize) {
        self.0.fetch_and(!(1 << member), Ordering::AcqRel);
    }

    pub(super) fn contains(&self, member: usize) -> bool {
        self.0.load(Ordering::Acquire) & (1 << member) != 0
    }
}
