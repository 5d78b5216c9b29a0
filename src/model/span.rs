//! Spans of time: what a person reads of them, and the longest that is counted with.

use std::time::Duration;

/// The longest span of a rate: 100 years. The limiters count nanoseconds in 64 bits, without a
/// check for overflow.
#[cfg(any(feature = "config", feature = "flow-control"))]
pub(crate) const LONGEST_RATE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A span in nanoseconds; the longest that 64 bits hold is 584 years.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The whole milliseconds of a time: `8.299s` instead of `8.299871234s`.
pub(crate) fn in_millis(span: Duration) -> Duration {
    Duration::new(span.as_secs(), span.subsec_millis() * 1_000_000)
}
