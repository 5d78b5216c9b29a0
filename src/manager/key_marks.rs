//! [`KeyMarks`]: the keys under which something is in progress, and the wait for its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::key::Key;

#[derive(Debug, Default)]
pub(super) struct KeyMarks {
    keys: Mutex<HashMap<Key, usize>>,
    /// How many keys there are: mostly none, and then nobody takes the lock.
    count: AtomicUsize,
    ended: Notify,
}

/// Something is in progress under the key until this is dropped.
#[derive(Debug)]
pub(super) struct Marked {
    marks: Arc<KeyMarks>,
    key: Key,
}

impl KeyMarks {
    pub(super) fn mark(self: &Arc<Self>, key: &Key) -> Marked {
        let mut keys = self.keys.lock();
        *keys.entry(key.clone()).or_default() += 1;
        self.count.store(keys.len(), Ordering::SeqCst);
        drop(keys);
        Marked {
            marks: Arc::clone(self),
            key: key.clone(),
        }
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.keys.lock().contains_key(key)
    }

    /// Completes when nothing is in progress under the key.
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
        let mut keys = self.marks.keys.lock();
        if let Some(count) = keys.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                keys.remove(&self.key);
            }
        }
        self.marks.count.store(keys.len(), Ordering::SeqCst);
        drop(keys);
        self.marks.ended.notify_waiters();
    }
}
