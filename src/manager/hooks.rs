//! [`Hooks`]: the handlers and observers of a manager.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::handler::{Chain, Event, Observers};
use crate::model::key::Key;

#[derive(Debug)]
pub(super) struct Hooks {
    pub(super) chain: Chain,
    pub(super) observers: Observers,
    /// How many callers wait for a lock; counted only while somebody observes.
    waiting: AtomicUsize,
}

impl Hooks {
    pub(super) fn new(chain: Chain, observers: Observers) -> Self {
        Self {
            chain,
            observers,
            waiting: AtomicUsize::new(0),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chain.is_empty() && self.observers.is_empty()
    }

    /// Reports that a caller waits, until the answer is dropped. `None` if nobody observes.
    pub(super) fn begin_wait(&self, key: &Key) -> Option<ObservedWait<'_>> {
        if self.observers.is_empty() {
            return None;
        }
        let callers = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        let key = key.clone();
        self.observers.notify(&Event::Wait {
            key: &key,
            began: true,
            callers,
        });
        Some(ObservedWait { hooks: self, key })
    }
}

/// One caller that waits, from its first wait to the end of its call.
#[derive(Debug)]
pub(super) struct ObservedWait<'a> {
    hooks: &'a Hooks,
    key: Key,
}

impl Drop for ObservedWait<'_> {
    fn drop(&mut self) {
        let callers = self.hooks.waiting.fetch_sub(1, Ordering::Relaxed) - 1;
        self.hooks.observers.notify(&Event::Wait {
            key: &self.key,
            began: false,
            callers,
        });
    }
}
