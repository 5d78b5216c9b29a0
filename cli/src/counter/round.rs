//! [`Round`]: the outcome of one round, which a counting process prints as one JSON object a line.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Clone, Debug)]
pub(super) struct Round {
    #[serde(skip)]
    pub(super) process: usize,
    pub(super) task: u32,
    pub(super) outcome: Outcome,
    /// When it was asked for the lock, since its process began to count.
    pub(super) asked: Duration,
    /// How long it waited for the lock.
    pub(super) wait: Duration,
    /// The fencing token that it held, if it held one.
    pub(super) token: Option<u64>,
    /// What stood in the counter after it, if it was counted.
    pub(super) counted: Option<u64>,
    /// How long after its lease the counter was written, if it was: `CommittedLate`.
    pub(super) late_by: Option<Duration>,
}

#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The counter was written.
    Counted,
    /// The counter was surely not written: the lock was busy, or the lease was lost.
    NotCounted(String),
    /// The counter may have been written.
    Unknown(String),
}

impl Round {
    pub(super) fn from_line(line: &str, process: usize) -> Option<Self> {
        let round: Self = serde_json::from_str(line).ok()?;
        Some(Self { process, ..round })
    }

    /// When it got the lock, or stopped waiting for it.
    pub(super) fn answered(&self) -> Duration {
        self.asked + self.wait
    }

    pub(super) fn to_line(&self) -> String {
        // A round holds only what JSON can express.
        serde_json::to_string(self).unwrap_or_default()
    }
}
