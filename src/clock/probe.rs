//! The clock reads of a check, without the check: the floor that benches compare with.

use super::{Clock, ClockKind};

/// The clock read of a fast check: which clock was read, and what it showed in nanoseconds (feature
/// `testing`).
#[inline]
#[must_use]
pub fn read_fast(clock: &Clock) -> (ClockKind, u64) {
    let reading = clock.fast();
    (reading.lane, reading.nanos)
}

/// The clock reads of a strict check, in nanoseconds (feature `testing`).
#[inline]
#[must_use]
pub fn read_strict(clock: &Clock) -> [u64; 2] {
    clock.strict().map(|reading| reading.nanos)
}
