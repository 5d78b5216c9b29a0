//! The wall clock: for the age of names that outlive a process. No lease is measured by it, because
//! it jumps.

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970; zero for a clock that shows an earlier time.
#[allow(clippy::disallowed_methods, reason = "the module of clocks")]
pub(super) fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

/// Milliseconds since 1970; zero for a clock that shows an earlier time.
pub(crate) fn wall_millis() -> u64 {
    wall_micros() / 1_000
}
