//! What the stores of lines have in common.

use std::time::Duration;

use super::Line;
use crate::store::{Capability, Fencing};

impl Line {
    /// What every store of lines supports.
    pub(crate) const CAPABILITY: Capability = Capability {
        fencing: Fencing::Monotonic,
        wakes: true,
        ttl_per_lock: true,
        queues: true,
        hands_over: true,
        read_write: true,
        revokes: true,
        rests: true,
        reports_holder: true,
        ..Capability::least()
    };

    /// A store's time in the unit of its tokens.
    pub(crate) fn micros(time: Duration) -> u64 {
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
    }
}
