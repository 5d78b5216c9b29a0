//! The atomics that the lease is made of. The loom models put loom's own in this place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Between two `SeqCst` accesses of different cells: the second is not seen before the first.
///
/// `SeqCst` alone promises that. loom takes `SeqCst` accesses for `AcqRel`, so there it is a fence.
#[inline(always)]
pub(crate) fn total_order() {}
