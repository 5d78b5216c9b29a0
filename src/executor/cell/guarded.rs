//! [`GuardedCell`]: data that can be changed only through a run.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use super::terms::CellTerms;
use crate::model::key::Key;

/// Data that can be changed only through a run: a change that is not checked against a lease does
/// not compile.
///
/// A run changes a [staged copy](crate::Tx::write); the copy becomes the cell's value when the run
/// commits, and is dropped when it does not. Several cells of one run appear together.
///
/// - **Readers** never wait for a run or for its commit call, and see committed values only.
/// - **One key.** A cell belongs to one key for good: the one that it is [made for](Self::for_key),
///   or else the key of the run that first [writes](crate::Tx::write) it, whether or not that run
///   commits. Runs under another key are refused: two locks do not exclude each other. A run under
///   [several locks](crate::multi::MultiLock) may write the cells of all its keys, and must find
///   each cell bound to one of them.
/// - **Newest holder wins.** The cell keeps the largest token of a run that wrote to it, and
///   refuses older ones ([`Fenced`](crate::RunError::Fenced)). A holder that stalled between its
///   check and its commit cannot overwrite a newer one.
/// - **Two runs at once** under one lease both work on copies. The first to commit wins, and the
///   other is rolled back with [`Conflict`](crate::Cause::Conflict), to be run again. A run
///   conflicts on what it wrote, not on what it only read.
///
/// Cloning is cheap; all clones are the same cell.
///
/// The value cannot be changed outside of a run:
///
/// ```compile_fail,E0594
/// let cell = leasehold::GuardedCell::new(1);
/// *cell.read() = 2;
/// ```
pub struct GuardedCell<T> {
    pub(crate) content: Arc<Content<T>>,
}

/// A reader of the value holds a read lock of `terms`, a writer holds a write lock. The value's own
/// lock satisfies the type system only: the terms of cells of any type are locked together.
pub(crate) struct Content<T> {
    pub(crate) terms: RwLock<CellTerms>,
    pub(crate) value: RwLock<Arc<T>>,
}

impl<T> GuardedCell<T> {
    /// A cell with this value. The first run that writes it binds it to its key.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self::bound_to(None, value)
    }

    /// A cell with this value, bound to the lock of `key`: only runs under that lock may write it.
    #[must_use]
    pub fn for_key(key: Key, value: T) -> Self {
        Self::bound_to(Some(key), value)
    }

    fn bound_to(key: Option<Key>, value: T) -> Self {
        Self {
            content: Arc::new(Content {
                terms: RwLock::new(CellTerms::bound_to(key)),
                value: RwLock::new(Arc::new(value)),
            }),
        }
    }

    /// The committed value. It does not change while the caller keeps it; later commits replace the
    /// cell's value by another.
    ///
    /// A reader that saw one cell of a run sees its other cells no older. To read several cells at
    /// one moment, use [`read_together`](crate::run::read_together).
    #[must_use]
    pub fn read(&self) -> Arc<T> {
        // A commit holds the terms of all its cells until each shows its copy.
        let _terms = self.content.terms.read();
        self.current()
    }

    /// The value, for a caller that holds the terms.
    pub(crate) fn current(&self) -> Arc<T> {
        Arc::clone(&self.content.value.read())
    }

    /// The key that the cell is bound to; `None` if it was made without one and no run has written
    /// to it.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        self.content.terms.read().key.clone()
    }
}

impl<T> Clone for GuardedCell<T> {
    fn clone(&self) -> Self {
        Self {
            content: Arc::clone(&self.content),
        }
    }
}

impl<T: Default> Default for GuardedCell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for GuardedCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GuardedCell").field(&self.read()).finish()
    }
}
