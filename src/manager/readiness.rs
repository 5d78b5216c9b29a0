//! [`Readiness`]: for which keys the store said last that it grants nothing yet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Stamp;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::store::Acquired;

/// One entry for each key whose last answer was [`Acquired::NotReady`], until its time is over.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    grants_from: Mutex<HashMap<Key, Stamp>>,
    /// Zero nearly always: then an acquire takes no mutex.
    len: AtomicUsize,
}

impl Readiness {
    /// The store has answered.
    pub(super) fn answered(&self, key: &Key, answer: &Acquired, now: &Stamp) {
        let retry_after = match answer {
            Acquired::NotReady { retry_after } => Some(*retry_after),
            _ if self.len.load(Ordering::Relaxed) == 0 => return,
            _ => None,
        };
        let mut keys = self.grants_from.lock();
        keys.retain(|_, from| !from.since(now).is_zero());
        match retry_after {
            Some(left) => keys.insert(key.clone(), now.plus(left)),
            None => keys.remove(key),
        };
        self.len.store(keys.len(), Ordering::Relaxed);
    }

    /// For how long the store still grants nothing, as far as it has said so: the longest time of
    /// all keys.
    pub(super) fn left(&self, now: &Stamp) -> Option<Duration> {
        let keys = self.grants_from.lock();
        let left = keys.values().map(|from| from.since(now)).max()?;
        (!left.is_zero()).then_some(left)
    }

    /// Checks that a wait for this key was in vain because of a holder.
    ///
    /// # Errors
    ///
    /// `NotReady` if the store said last that it grants nothing yet.
    pub(super) fn ensure_ready(&self, key: &Key, store: &str, now: &Stamp) -> Result<(), Error> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let from = self.grants_from.lock().get(key).copied();
        let left = from.map_or(Duration::ZERO, |from| from.since(now));
        if left.is_zero() {
            return Ok(());
        }
        let seconds = left.as_secs_f64();
        Err(Error::not_ready(
            format!(
                "the store grants nothing for another {seconds:.1} s: store={store} key={key}; it restarted or lost its data, and may have forgotten locks whose leases are live; try again after that"
            ),
            left,
        ))
    }
}
