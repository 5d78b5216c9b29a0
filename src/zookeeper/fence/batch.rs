//! [`ZkBatch`]: changes that are made together.

use crate::zookeeper::store::Change;

/// Changes that are made together, or not at all. Paths start at the ensemble's root, not at the
/// locks' chroot. A batch that names the fence's node, one beneath it, or the hold's own node is
/// refused.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is changed until a fence applies it"]
pub struct ZkBatch {
    pub(super) changes: Vec<Change>,
}

impl ZkBatch {
    /// Makes an empty batch.
    pub fn new() -> Self {
        Self::default()
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
