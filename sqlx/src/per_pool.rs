//! [`PerPool`]: what is known of a pool. sqlx has no place for it in one, nor in a connection.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A value for each pool, which its options stand for.
pub(crate) struct PerPool<O, T>(Mutex<Vec<(Weak<O>, T)>>);

impl<O, T: Clone> PerPool<O, T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    pub(crate) fn get(&self, options: &Arc<O>) -> Option<T> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().find(|(known, _)| {
            let known = known.upgrade();
            known.is_some_and(|known| Arc::ptr_eq(&known, options))
        });
        known.map(|(_, value)| value.clone())
    }

    /// Two at once may add two: the first one counts.
    pub(crate) fn add(&self, options: &Arc<O>, value: T) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(options, _)| options.strong_count() > 0);
        all.push((Arc::downgrade(options), value));
    }
}
