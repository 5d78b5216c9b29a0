//! [`FormerRuns`]: the keys whose former local holder still has runs in progress.
//!
//! Such a run undoes in this process what it did, and would undo the work of the next local holder with it. So the next local
//! holder waits until it has ended. Other processes do not wait: they share no memory with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::key::Key;

#[derive(Debug, Default)]
pub(super) struct FormerRuns {
    keys: Mutex<HashMap<Key, usize>>,
    /// How many keys there are: mostly none, and then nobody takes the lock.
    count: AtomicUsize,
    ended: Notify,
}

/// The runs of one former holder; they are in progress until this is dropped.
#[derive(Debug)]
pub(super) struct Marked {
    runs: Arc<FormerRuns>,
    key: Key,
}

impl FormerRuns {
    pub(super) fn mark(self: &Arc<Self>, key: &Key) -> Marked {
        let mut keys = self.keys.lock();
        *keys.entry(key.clone()).or_default() += 1;
        self.count.store(keys.len(), Ordering::SeqCst);
        drop(keys);
        Marked {
            runs: Arc::clone(self),
            key: key.clone(),
        }
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.keys.lock().contains_key(key)
    }

    /// Completes when no former holder of the key has a run in progress.
    pub(super) async fn ended(&self, key: &Key) {
        while self.contains(key) {
            let mut ended = std::pin::pin!(self.ended.notified());
            // Registered before the look, so that an end in between is not missed.
            ended.as_mut().enable();
            if self.contains(key) {
                ended.await;
            }
        }
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let mut keys = self.runs.keys.lock();
        if let Some(count) = keys.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                keys.remove(&self.key);
            }
        }
        self.runs.count.store(keys.len(), Ordering::SeqCst);
        drop(keys);
        self.runs.ended.notify_waiters();
    }
}
