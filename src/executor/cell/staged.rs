//! [`Staged`]: a run's own copy of a cell.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::guarded::{Content, GuardedCell};
use super::terms::CellTerms;
use crate::model::error::Error;
use crate::model::token::FencingToken;

/// A run's own copy of a cell, to read and to change. It becomes the cell's value when the run
/// commits.
///
/// The copy is made at the first change. One run has one copy of a cell: a later
/// [`write`](crate::Tx::write) continues with the copy of an earlier one that was dropped. While
/// one is alive, another is refused, and the run will not commit.
///
/// It cannot outlive the work:
///
/// ```compile_fail
/// # fn show(executor: &leasehold::Executor, cell: &leasehold::GuardedCell<u32>) {
/// let escaped = executor.guarded(|tx| Ok(tx.write(cell)));
/// # }
/// ```
pub struct Staged<'tx, T> {
    value: Arc<T>,
    home: Option<Arc<Draft<T>>>,
    tx: PhantomData<&'tx ()>,
}

/// Keeps the copy while nobody writes to it.
pub(crate) struct Draft<T> {
    cell: Arc<Content<T>>,
    /// Of the lock that has the cell's key.
    token: FencingToken,
    base: Arc<T>,
    copy: Mutex<Option<Arc<T>>>,
}

impl<T> Draft<T> {
    pub(crate) fn new(cell: &GuardedCell<T>, token: FencingToken) -> Arc<Self> {
        let base = cell.read();
        Arc::new(Self {
            cell: Arc::clone(&cell.content),
            token,
            copy: Mutex::new(Some(Arc::clone(&base))),
            base,
        })
    }

    /// The copy, for the caller that writes to it now; `None` if another one has it.
    pub(crate) fn take<'tx>(self: Arc<Self>) -> Option<Staged<'tx, T>> {
        let value = self.copy.lock().take()?;
        Some(Staged {
            value,
            home: Some(self),
            tx: PhantomData,
        })
    }
}

impl<T> Staged<'_, T> {
    /// A copy that no cell will ever show, for a run that will not commit.
    pub(crate) fn discarded(cell: &GuardedCell<T>) -> Self {
        Self {
            value: cell.read(),
            home: None,
            tx: PhantomData,
        }
    }
}

impl<T> Deref for Staged<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Clone> DerefMut for Staged<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.value)
    }
}

impl<T> Drop for Staged<'_, T> {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            // Moved, not cloned: with two references the next change would copy it again.
            let value = std::mem::replace(&mut self.value, Arc::clone(&home.base));
            *home.copy.lock() = Some(value);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Staged<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Staged").field(&self.value).finish()
    }
}

/// The staged copies of one run by the addresses of their cells, which are locked in this order.
pub(crate) type Drafts = BTreeMap<usize, Arc<dyn AnyDraft>>;

/// A staged copy of any type, as the publishing sees it.
pub(crate) trait AnyDraft: Any + Send + Sync {
    fn terms(&self) -> &RwLock<CellTerms>;
    /// The token that the run writes this cell under.
    fn token(&self) -> FencingToken;
    /// No [`Staged`] of this copy was leaked.
    fn ensure_returned(&self) -> Result<(), Error>;
    /// The cell still shows the value that the copy was made from.
    fn is_current(&self) -> bool;
    /// Makes the copy the cell's value. The former value is dropped with the draft, when no lock is
    /// held.
    fn publish(&self);
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<T: Send + Sync + 'static> AnyDraft for Draft<T> {
    fn terms(&self) -> &RwLock<CellTerms> {
        &self.cell.terms
    }

    fn token(&self) -> FencingToken {
        self.token
    }

    fn ensure_returned(&self) -> Result<(), Error> {
        if self.copy.lock().is_some() {
            return Ok(());
        }
        Err(Error::invalid(
            "a staged copy of a cell was leaked; drop what `write` returns before the work ends",
        ))
    }

    fn is_current(&self) -> bool {
        Arc::ptr_eq(&self.cell.value.read(), &self.base)
    }

    fn publish(&self) {
        if let Some(copy) = &mut *self.copy.lock() {
            std::mem::swap(&mut *self.cell.value.write(), copy);
        }
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
