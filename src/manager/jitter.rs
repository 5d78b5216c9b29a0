//! [`Jitter`]: random numbers that spread requests over time. They keep no secret.

use std::sync::atomic::{AtomicU64, Ordering};

/// splitmix64 over a shared counter.
#[derive(Debug)]
pub(super) struct Jitter(AtomicU64);

impl Jitter {
    pub(super) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number below `limit`, which is not zero.
    pub(super) fn below(&self, limit: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
