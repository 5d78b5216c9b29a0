//! [`GuardedCell`]: data that can be changed only through a run.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use super::cause::Cause;
use super::notes::Refusal;
use crate::lease::Lease;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// Data that can be changed only through a run: what is not checked against a lease does not compile.
///
/// A run changes a [staged copy](super::Tx::write); the copy becomes the cell's value when the run commits, and is dropped
/// when it does not. Several cells of one run appear together.
///
/// - **Readers** never wait for a run or for its commit call, and see committed values only.
/// - **One key.** The first [`write`](super::Tx::write) binds a cell to the key of its run for good, whether or not that run
///   commits. Runs under another key are refused: two locks do not exclude each other.
/// - **Newest holder wins.** The cell keeps the largest token of a run that wrote to it, and refuses older ones
///   ([`Fenced`](super::RunError::Fenced)). So a holder that stalled between its check and its commit cannot write over a newer one.
/// - **Two runs at once** under one lease: both work on copies, the first to commit wins, and the other is rolled back with
///   [`Conflict`](super::Cause::Conflict), to be run again. (They do not wait for each other: a run that waits holds up
///   its thread and, when awaited, may wait for itself.) A run conflicts on what it wrote, not on what it only read.
///
/// Cloning is cheap; all clones are the same cell.
///
/// There is no way to the value but through a run:
///
/// ```compile_fail,E0594
/// let cell = leasehold::GuardedCell::new(1);
/// *cell.read() = 2;
/// ```
pub struct GuardedCell<T> {
    pub(super) shared: Arc<Shared<T>>,
}

/// Who reads the value holds `terms` to read, who changes it holds them to write. Its own lock is for the type alone: the
/// terms of cells of any type are locked together.
pub(super) struct Shared<T> {
    pub(super) terms: RwLock<Terms>,
    pub(super) value: RwLock<Arc<T>>,
}

/// Who may write to a cell.
#[derive(Default)]
pub(super) struct Terms {
    key: Option<Key>,
    token: Option<FencingToken>,
    reserved: Option<Reservation>,
}

/// A run is between its commit call and its publishing.
#[derive(Clone, Copy)]
struct Reservation {
    token: FencingToken,
    by: usize,
}

impl Terms {
    /// A run asks to write: the key must be the cell's, and no newer holder may have written.
    pub(super) fn admit(&mut self, lease: &Lease) -> Result<(), Refusal> {
        let bound = self.key.get_or_insert_with(|| lease.key().clone());
        if bound != lease.key() {
            return Err(Refusal::Misuse(Error::invalid(format!(
                "a cell is written under another key than its own: cell_key={bound} key={}; use one lock for it",
                lease.key()
            ))));
        }
        match self.token {
            Some(seen) if seen > lease.token() => Err(Refusal::Fenced { seen }),
            _ => {
                self.token = Some(lease.token());
                Ok(())
            }
        }
    }

    /// A run that was admitted asks to commit. `by` tells runs apart.
    pub(super) fn may_publish<E>(&self, token: FencingToken, by: usize) -> Result<(), Cause<E>> {
        if let Some(seen) = self.token.filter(|seen| *seen > token) {
            return Err(Cause::Fenced { seen: Some(seen) });
        }
        match self.reserved {
            Some(other) if other.by != by && other.token == token => Err(Cause::Conflict),
            _ => Ok(()),
        }
    }

    /// Steals the reservation of an older holder, whose publishing will find it gone.
    pub(super) fn reserve(&mut self, token: FencingToken, by: usize) {
        self.reserved = Some(Reservation { token, by });
    }

    /// Whether a reservation still stands: nobody newer has written.
    pub(super) fn is_reserved(&self, token: FencingToken, by: usize) -> bool {
        self.token == Some(token) && self.reserved.is_some_and(|r| r.by == by)
    }

    pub(super) fn free(&mut self, by: usize) {
        if self.reserved.is_some_and(|r| r.by == by) {
            self.reserved = None;
        }
    }
}

impl<T> GuardedCell<T> {
    /// A cell with this value, not yet bound to a key.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self {
            shared: Arc::new(Shared {
                terms: RwLock::default(),
                value: RwLock::new(Arc::new(value)),
            }),
        }
    }

    /// The committed value. It stays as it is while the caller keeps it; later commits put another in its place.
    ///
    /// Who saw one cell of a run finds the others of it no older. For several cells at one moment see
    /// [`read_together`](super::read_together).
    #[must_use]
    pub fn read(&self) -> Arc<T> {
        // A commit holds the terms of all its cells until each shows its copy.
        let _terms = self.shared.terms.read();
        self.current()
    }

    /// The value, for who holds the terms.
    pub(super) fn current(&self) -> Arc<T> {
        Arc::clone(&self.shared.value.read())
    }

    /// The key that the cell is bound to, once a run has written to it.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        self.shared.terms.read().key.clone()
    }
}

impl<T> Clone for GuardedCell<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
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
