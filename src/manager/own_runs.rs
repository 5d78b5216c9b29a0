//! Inside of a run, a request for the same lock, or its release, would wait for the run, which
//! waits for it. Both are refused.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::context::ManagerContext;
use crate::executor::is_inside;
use crate::model::error::Error;
use crate::model::key::Key;

/// What a run does that asks for its own lock.
const ASKS: &str = "asked for a lock that it is under, and would wait for itself";

impl ManagerContext {
    /// The number that runs under a lock of this key are known by. Two managers have different
    /// ones.
    pub(super) fn lock_number(&self, key: &Key) -> u64 {
        let mut hasher = DefaultHasher::new();
        std::ptr::from_ref(self).addr().hash(&mut hasher);
        key.hash(&mut hasher);
        hasher.finish()
    }

    /// Whether the caller is inside of a run under a lock of the key. Readers have no such runs.
    pub(crate) fn is_inside_run(&self, key: &Key) -> bool {
        is_inside(|lock| lock == self.lock_number(key))
    }

    /// # Errors
    ///
    /// `Invalid` if the caller is inside of a run under a lock of the key, for which it would wait.
    pub(crate) fn ensure_may_wait_for(&self, key: &Key) -> Result<(), Error> {
        self.ensure_not_inside(key, ASKS)
    }

    /// # Errors
    ///
    /// `Invalid` if the caller is inside of a run under a lock of the key.
    pub(super) fn ensure_not_inside(&self, key: &Key, what: &str) -> Result<(), Error> {
        if !self.is_inside_run(key) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a run {what}: key={key}; do this when the run has ended"
        ))
        .of_key(key))
    }
}
