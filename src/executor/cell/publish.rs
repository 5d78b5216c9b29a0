//! Publishing: the cells of one run appear together, or not at all.
//!
//! The terms of all cells are locked in the order of their addresses, so that no two runs wait for
//! each other. All cells are judged, and then all are swapped. No user code runs under these locks.
//!
//! With a commit call the cells are judged and *reserved* before the call and published after it;
//! the locks are not held in between. A run of the same holder finds the reservation and conflicts.
//! A newer holder takes the reservation over, and the older run publishes nothing.

use std::sync::Arc;

use parking_lot::RwLockWriteGuard;

use super::staged::{AnyDraft, Drafts};
use super::terms::CellTerms;
use crate::executor::outcome::Cause;
use crate::model::caught::drop_caught;

/// The cells that one run wrote, in the order in which they are locked.
pub(crate) struct Cells {
    drafts: Vec<Arc<dyn AnyDraft>>,
    is_reserved: bool,
}

impl Cells {
    /// # Errors
    ///
    /// `Refused` if a staged copy is still out.
    pub(crate) fn new<E>(drafts: Drafts) -> Result<Self, Cause<E>> {
        for draft in drafts.values() {
            draft.ensure_returned().map_err(Cause::Refused)?;
        }
        Ok(Self {
            drafts: drafts.into_values().collect(),
            is_reserved: false,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.drafts.is_empty()
    }

    /// Judges and publishes in one step.
    pub(crate) fn publish<E>(self) -> Result<(), Cause<E>> {
        let locked = self.lock();
        self.judge(&locked)?;
        self.swap();
        Ok(())
    }

    /// Judges, and keeps every other run of this holder away until this value is dropped.
    pub(crate) fn reserve<E>(mut self) -> Result<Self, Cause<E>> {
        if self.is_empty() {
            return Ok(self);
        }
        let mut locked = self.lock();
        self.judge(&locked)?;
        for (terms, draft) in locked.iter_mut().zip(&self.drafts) {
            terms.reserve(draft.token(), identity(draft));
        }
        drop(locked);
        self.is_reserved = true;
        Ok(self)
    }

    /// Publishes what was reserved. False, and nothing is published, if a newer holder came in
    /// between.
    pub(crate) fn publish_reserved(self) -> bool {
        let locked = self.lock();
        let is_valid = locked
            .iter()
            .zip(&self.drafts)
            .all(|(terms, draft)| terms.is_reserved(draft.token(), identity(draft)));
        if is_valid {
            self.swap();
        }
        drop(locked);
        is_valid
    }

    fn lock(&self) -> Vec<RwLockWriteGuard<'_, CellTerms>> {
        self.drafts.iter().map(|d| d.terms().write()).collect()
    }

    fn judge<E>(&self, locked: &[RwLockWriteGuard<'_, CellTerms>]) -> Result<(), Cause<E>> {
        for (terms, draft) in locked.iter().zip(&self.drafts) {
            terms.may_publish(draft.token(), identity(draft))?;
            if !draft.is_current() {
                return Err(Cause::Conflict);
            }
        }
        Ok(())
    }

    fn swap(&self) {
        for draft in &self.drafts {
            draft.publish();
        }
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        if self.is_reserved {
            for draft in &self.drafts {
                draft.terms().write().free(identity(draft));
            }
        }
        // A former value may panic as it is dropped, and the run may be committed.
        for draft in self.drafts.drain(..) {
            if drop_caught(draft).is_err() {
                tracing::error!(target: "leasehold::run", "the former value of a cell panicked as it was dropped");
            }
        }
    }
}

/// No two drafts that are alive have the same.
fn identity(draft: &Arc<dyn AnyDraft>) -> usize {
    Arc::as_ptr(draft).cast::<()>().addr()
}
