//! [`Health`]: whether a connection is given up, and the signs by which it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Reading;

/// Whether a connection is dead. Cloning is cheap; all clones are of the same connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health(Arc<Signs>);

#[derive(Debug, Default)]
struct Signs {
    is_dead: AtomicBool,
    has_served: AtomicBool,
    answers: AtomicU64,
    /// When the first request was sent that was dropped since the last answer; 0: none was.
    silent_since: AtomicU64,
}

impl Health {
    pub(crate) fn is_dead(&self) -> bool {
        self.0.is_dead.load(Ordering::Acquire)
    }

    pub(crate) fn give_up(&self) {
        self.0.is_dead.store(true, Ordering::Release);
    }

    /// Whether the server did what a caller asked for.
    pub(crate) fn has_served(&self) -> bool {
        self.0.has_served.load(Ordering::Relaxed)
    }

    /// How many requests were answered.
    pub(crate) fn answers(&self) -> u64 {
        self.0.answers.load(Ordering::Relaxed)
    }

    /// The server did what a caller asked for. Questions about the server itself and refusals do
    /// not count: a server that answers one, or refuses, and then ends the connection, would be
    /// dialled without a pause.
    pub(crate) fn served(&self) {
        // There is mostly nothing to note, and then the cache line is not written.
        if !self.has_served() {
            self.0.has_served.store(true, Ordering::Relaxed);
        }
    }

    /// The server answered, whatever it said: it is not silent.
    pub(crate) fn answered(&self) {
        self.0.answers.fetch_add(1, Ordering::Relaxed);
        if self.0.silent_since.load(Ordering::Relaxed) != 0 {
            self.0.silent_since.store(0, Ordering::Relaxed);
        }
    }

    /// A request was dropped. The waits of callers that are less patient than we are add up.
    pub(crate) fn dropped(&self, sent_at: Reading, now: Reading, patience: Duration) {
        let sent = sent_at.nanos.max(1);
        let first =
            self.0
                .silent_since
                .compare_exchange(0, sent, Ordering::Relaxed, Ordering::Relaxed);
        let since = first.map_or_else(|earlier| earlier, |_| sent);
        let silent = Duration::from_nanos(now.nanos.saturating_sub(since));
        if now.lane != sent_at.lane || silent >= patience {
            self.give_up();
        }
    }
}

/// Marks a connection dead when its driver drops it.
pub(crate) struct MarksDead(pub(crate) Health);

impl Drop for MarksDead {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
