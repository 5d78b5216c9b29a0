//! [`VoteSet`]: where a vote of one attempt may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The members that may hold a vote of one attempt: a request left for them, and no answer excluded it since.
///
/// Clones are the same set: one is in the book, others are with the requests that are still under way.
#[derive(Clone, Default, Debug)]
pub(super) struct VoteSet(Arc<AtomicU16>);

impl VoteSet {
    /// Before the request leaves.
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
