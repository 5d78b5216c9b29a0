//! [`Waits`]: how many callers wait, for the observers.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::shared::Shared;
use crate::handler::Event;
use crate::model::key::Key;

/// One caller who waits, from the first time that it has to until its call is over.
#[derive(Debug)]
pub(super) struct Waits<'a> {
    shared: &'a Shared,
    key: Key,
}

/// How many there are.
pub(super) type Waiting = AtomicUsize;

impl<'a> Waits<'a> {
    /// `None` if nobody watches.
    pub(super) fn begin(shared: &'a Shared, key: &Key) -> Option<Self> {
        if shared.observers.is_empty() {
            return None;
        }
        let callers = shared.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        let key = key.clone();
        shared.observers.tell(&Event::Wait { key: &key, callers });
        Some(Self { shared, key })
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let callers = self.shared.waiting.fetch_sub(1, Ordering::Relaxed) - 1;
        self.shared.observers.tell(&Event::Wait {
            key: &self.key,
            callers,
        });
    }
}
