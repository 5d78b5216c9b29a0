//! The atomics that the lease consists of. The loom models replace them with loom's own.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Between two `SeqCst` accesses of different cells: the second is not seen before the first.
///
/// `SeqCst` alone promises that. loom treats `SeqCst` accesses as `AcqRel`, so under loom it is a
/// fence.
#[inline(always)]
pub(crate) fn total_order() {}
