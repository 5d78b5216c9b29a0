//! [`MarkerHistory`]: what this store has seen of the markers: of the only one of a single server, of each slot's in a cluster.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::cluster::Slot;

/// What this store has seen of all markers.
#[derive(Debug, Default)]
pub(super) struct MarkerHistory {
    one: Mutex<Marker>,
    slots: Mutex<HashMap<Slot, Marker>>,
    /// Whether the log has the warning about a server that hides its run.
    is_hidden_run_logged: AtomicBool,
}

/// What it has seen of one.
#[derive(Debug, Default)]
struct Marker {
    was_seen: bool,
    /// Whether the log has the warning about the present quarantine.
    is_quarantine_logged: bool,
}

impl MarkerHistory {
    fn with<T>(&self, slot: Option<Slot>, look: impl FnOnce(&mut Marker) -> T) -> T {
        match slot {
            None => look(&mut self.one.lock()),
            Some(slot) => look(self.slots.lock().entry(slot).or_default()),
        }
    }

    /// Whether a marker that is not there now was there: in this run of the server, or in one before it, or at another node, which
    /// gave the slot away without it.
    pub(super) fn is_missed(&self, slot: Option<Slot>) -> bool {
        self.with(slot, |mark| mark.was_seen)
    }

    /// A marker was seen or written.
    pub(super) fn note(&self, slot: Option<Slot>) {
        self.with(slot, |mark| mark.was_seen = true);
    }

    /// A server does not report its run. Returns whether that is to be logged.
    pub(super) fn is_hidden_run_news(&self) -> bool {
        !self.is_hidden_run_logged.swap(true, Ordering::Relaxed)
    }

    /// A quarantine begins or ends. Returns whether that is to be logged.
    pub(super) fn is_news(&self, slot: Option<Slot>, is_quarantined: bool) -> bool {
        self.with(slot, |mark| {
            let was_logged = std::mem::replace(&mut mark.is_quarantine_logged, is_quarantined);
            is_quarantined && !was_logged
        })
    }
}
