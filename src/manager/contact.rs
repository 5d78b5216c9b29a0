//! [`StoreContact`]: whether the store answers, as the last requests showed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{ClockKind, Stamp};

/// What the last acquires and renewals showed. Each word is read and written separately: a reader
/// may see one of two requests.
#[derive(Debug, Default)]
pub(super) struct StoreContact {
    /// In nanoseconds of the boot clock; zero: never.
    answered_at: AtomicU64,
    has_failed: AtomicBool,
}

impl StoreContact {
    pub(super) fn answered(&self, now: &Stamp) {
        let now = now.on(ClockKind::Boot).max(1);
        self.answered_at.fetch_max(now, Ordering::Relaxed);
        self.has_failed.store(false, Ordering::Relaxed);
    }

    /// A request had no answer.
    pub(super) fn failed(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// How long ago the store answered last; `None` if it never did.
    pub(super) fn last_answer(&self, now: &Stamp) -> Option<Duration> {
        let at = self.answered_at.load(Ordering::Relaxed);
        let ago = now.on(ClockKind::Boot).saturating_sub(at);
        (at != 0).then_some(Duration::from_nanos(ago))
    }

    /// Whether the last request was answered; `None` if there was none.
    pub(super) fn is_reachable(&self) -> Option<bool> {
        let has_failed = self.has_failed.load(Ordering::Relaxed);
        let has_answered = self.answered_at.load(Ordering::Relaxed) != 0;
        (has_failed || has_answered).then_some(!has_failed)
    }
}
