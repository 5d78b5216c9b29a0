//! [`ZkBatch`]: changes that are made together.

use std::time::Duration;

use super::once::Once;
use crate::zookeeper::store::Change;

/// Changes that are made together, or not at all. Paths start at the ensemble's root, not at the
/// locks' chroot. A batch that names the fence's node, one beneath it, or the hold's own node is
/// refused.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is changed until a fence applies it"]
pub struct ZkBatch {
    pub(super) changes: Vec<Change>,
    pub(super) once: Vec<Once>,
}

impl ZkBatch {
    /// Makes an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Claims a name for what the batch does: a fire time of a schedule, the number of an order. If
    /// another batch has claimed it within the last `keep`, nothing is applied, and the error is
    /// [`AlreadyApplied`](crate::fence::AlreadyApplied). A batch may claim several names, but a
    /// batch that claims one of them twice is refused.
    ///
    /// The name is text of your own, up to 1,000 bytes, and one for the key of the run's first
    /// lock: below another key it is another name. It is a node below the fence's, so each costs
    /// the ensemble a small node for so long.
    ///
    /// # Not promised
    ///
    /// The leader's wall clock ends `keep` (100 years at most): set forward, it forgets names
    /// early. A name has to be kept longer than a repetition may come.
    pub fn once(mut self, name: impl Into<String>, keep: Duration) -> Self {
        let name = name.into();
        self.once.push(Once { name, keep });
        self
    }

    /// Creates a node. The node must not exist; its parent must.
    pub fn create(self, path: impl Into<String>, data: impl AsRef<[u8]>) -> Self {
        self.add(Change::Create {
            path: path.into(),
            data: data.as_ref().to_vec(),
        })
    }

    /// Writes a node, which must exist.
    pub fn set(self, path: impl Into<String>, data: impl AsRef<[u8]>) -> Self {
        self.add(Change::Set {
            path: path.into(),
            data: data.as_ref().to_vec(),
            version: None,
        })
    }

    /// Writes a node, which must exist with this version.
    pub fn set_version(
        self,
        path: impl Into<String>,
        data: impl AsRef<[u8]>,
        version: i32,
    ) -> Self {
        self.add(Change::Set {
            path: path.into(),
            data: data.as_ref().to_vec(),
            version: Some(version),
        })
    }

    /// Deletes a node, which must exist and have no children.
    pub fn delete(self, path: impl Into<String>) -> Self {
        self.add(Change::Delete { path: path.into() })
    }

    fn add(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }
}
