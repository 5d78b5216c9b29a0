//! [`plain`]: the memory store without everything that a store need not have.

use leasehold::store::{Capability, MemoryStore};

use crate::support::over::{Changes, Over};

#[derive(Clone, Debug)]
pub(crate) struct Plain(MemoryStore);

/// A store that has exclusive locks and nothing else: its tokens promise nothing.
pub(crate) fn plain(store: MemoryStore) -> Over<Plain> {
    Over(Plain(store))
}

impl Changes for Plain {
    type Store = MemoryStore;

    fn beneath(&self) -> &MemoryStore {
        &self.0
    }

    fn capability(&self) -> Capability {
        let mut capability = Capability::least();
        capability.ttl_per_lock = true;
        capability
    }
}
