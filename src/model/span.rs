//! Times in log lines and messages: a person reads them once.

use std::time::Duration;

/// The whole milliseconds of a time: `8.299s` instead of `8.299871234s`.
pub(crate) fn in_millis(span: Duration) -> Duration {
    Duration::new(span.as_secs(), span.subsec_millis() * 1_000_000)
}
