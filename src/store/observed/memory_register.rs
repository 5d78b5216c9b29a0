//! [`MemoryRegister`]: records in the memory of this process. It specifies what every other
//! register must do.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::record::{Record, State};
use super::register::{Listed, Register, Swapped};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::store::Hint;

/// A register in the memory of this process: for tests, and as a specification.
///
/// Cloning is cheap. All clones are the same register. As in an object storage, a version is a hash
/// of the content, so equal content would be an equal version.
#[derive(Clone, Debug, Default)]
pub struct MemoryRegister(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    records: HashMap<Key, Record>,
    watched: HashMap<Key, Vec<oneshot::Sender<()>>>,
}

impl MemoryRegister {
    /// Makes an empty register.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

fn version(record: &Record) -> u64 {
    let mut hasher = DefaultHasher::new();
    record.hash(&mut hasher);
    hasher.finish()
}

#[deny(clippy::missing_trait_methods)]
impl Register for MemoryRegister {
    type Version = u64;

    fn name(&self) -> &'static str {
        "memory register"
    }

    async fn load(&self, key: &Key) -> Result<Option<(Record, u64)>, Error> {
        let state = self.0.lock();
        let record = state.records.get(key);
        Ok(record.map(|record| (record.clone(), version(record))))
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&u64>,
        record: &Record,
    ) -> Result<Swapped<u64>, Error> {
        let mut state = self.0.lock();
        if state.records.get(key).map(version).as_ref() != expected {
            return Ok(Swapped::Moved);
        }
        state.records.insert(key.clone(), record.clone());
        let watchers = match record.state {
            State::Free => state.watched.remove(key),
            State::Held | State::Barred => None,
        };
        drop(state);
        // Whoever watches wakes up outside of the lock.
        drop(watchers);
        Ok(Swapped::Swapped(version(record)))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Listed<u64>>, Error> {
        let state = self.0.lock();
        let of_prefix = (state.records.iter()).filter(|(key, _)| key.as_str().starts_with(prefix));
        let listed = of_prefix.map(|(key, record)| Listed {
            key: key.clone(),
            record: record.clone(),
            version: version(record),
        });
        Ok(listed.collect())
    }

    fn watches(&self) -> bool {
        true
    }

    async fn watch(&self, key: &Key) -> Result<Hint, Error> {
        let (wake, woken) = oneshot::channel();
        let mut state = self.0.lock();
        let watchers = state.watched.entry(key.clone()).or_default();
        watchers.retain(|watcher| !watcher.is_closed());
        watchers.push(wake);
        Ok(Hint::new(async move {
            // A sender that was dropped wakes.
            let _ = woken.await;
        }))
    }

    fn watched(&self, _: &Key) -> Option<(Record, Self::Version, crate::clock::Stamp)> {
        None
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}
