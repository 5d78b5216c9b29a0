//! [`Tx`]: what the work may do.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::answer::{CommitAnswer, CommitValue};
use super::cell::GuardedCell;
use super::handle::Shared;
use super::mode::{Awaiting, Blocking, RunMode};
use super::notes::{Notes, Refusal, ToUndo};
use super::outcome::Receipt;
use super::report::HookResult;
use super::snapshot::Snapshot;
use super::staged::{Draft, Staged};
use crate::lease::LeaseError;
use crate::model::commit::{CommitError, CommitPermit};
use crate::model::error::{BoxError, Error};
use crate::model::key::Key;
use crate::model::run_event::RunEvent;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// What the work of a run may do: ask for the lease, note what is to be taken back, write cells, name its commit.
///
/// All methods take `&self` and it is `Sync`, so that the work may use several threads or futures. It cannot outlive the run:
///
/// ```compile_fail
/// # fn show(executor: &leasehold::Executor) {
/// let escaped = executor.guarded(|tx| Ok(tx));
/// # }
/// ```
///
/// What hooks borrow must outlive the call of [`guarded`](super::Executor::guarded) (`'env`), as with [`std::thread::scope`].
/// The hooks of an awaited run ([`AsyncTx`](super::AsyncTx)) own what they need.
///
/// Nothing here panics when it is used against the rules (a write after the commit was named, a cell of another key): the
/// run is not committed, everything is taken back, and the outcome says which rule it was.
pub struct Tx<'env, M: RunMode = Blocking> {
    pub(super) home: Home<'env>,
    /// Made when first needed, so that a run that notes nothing has nothing to make or drop.
    notes: Mutex<Option<Box<Notes<'env, M>>>>,
    txn_id: OnceLock<TxnId>,
    mode: PhantomData<fn(M)>,
}

/// Borrowed where it can be, so that a run writes to no reference count.
pub(super) enum Home<'env> {
    Borrowed(&'env Shared),
    Owned(Arc<Shared>),
}

impl Deref for Home<'_> {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        match self {
            Self::Borrowed(shared) => shared,
            Self::Owned(shared) => shared,
        }
    }
}

impl<'env, M: RunMode> Tx<'env, M> {
    #[inline]
    pub(super) fn new(home: Home<'env>) -> Self {
        Self {
            home,
            notes: Mutex::new(None),
            txn_id: OnceLock::new(),
            mode: PhantomData,
        }
    }

    /// The lease-checked step in long work: an error if the run could not commit any more. One clock read.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`] if the lease is over, [`LeaseError::Ending`] if the hold is being released.
    #[inline]
    pub fn check(&self) -> Result<(), LeaseError> {
        let lease = self.home.lease();
        let checked = if lease.is_closed() {
            Err(self.home.ending())
        } else {
            lease.look_fast().map(|_| ())
        };
        self.home.tell(RunEvent::Checked {
            is_live: checked.is_ok(),
        });
        checked
    }

    /// What is left of the lease by the strict clocks; zero if it is over. It may grow with a renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.home.lease().remaining()
    }

    /// The fencing token of the hold: send it along with every effect.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.home.lease().token()
    }

    /// The key of the lock.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.home.lease().key()
    }

    /// The run's name, made at the first call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the system gives no random bytes.
    pub fn txn_id(&self) -> Result<TxnId, Error> {
        if let Some(txn_id) = self.txn_id.get() {
            return Ok(*txn_id);
        }
        let made = TxnId::generate()?;
        Ok(*self.txn_id.get_or_init(|| made))
    }

    pub(super) fn notes(&self) -> MappedMutexGuard<'_, Notes<'env, M>> {
        MutexGuard::map(self.notes.lock(), |notes| {
            &mut **notes.get_or_insert_default()
        })
    }

    /// Whether nothing was ever noted.
    #[inline]
    pub(super) fn is_blank(&mut self) -> bool {
        self.notes.get_mut().is_none()
    }

    pub(super) fn noted(&mut self) -> &mut Notes<'env, M> {
        self.notes.get_mut().get_or_insert_default()
    }

    pub(super) fn take_notes(&mut self) -> Notes<'env, M> {
        self.notes
            .get_mut()
            .take()
            .map(|notes| *notes)
            .unwrap_or_default()
    }

    pub(super) fn known_txn_id(&self) -> Option<TxnId> {
        self.txn_id.get().copied()
    }

    /// Notes how to take a change inside this process back: called if the run does not commit, whatever the reason, even when
    /// the lease is over. Hooks run newest first, all of them; each result stands in the
    /// [`UndoReport`](super::UndoReport). A hook may answer nothing or a `Result`.
    ///
    /// For effects outside the process use a step: to take those back after the lease may destroy the next holder's work.
    ///
    /// After [`commit_with`](Tx::commit_with) it is against the rules: the hook will be called, because the run is not committed.
    pub fn undo<R: HookResult>(&self, hook: impl FnOnce() -> R + Send + 'env) {
        self.note_undo("undo", hook);
    }

    /// Saves the value of `data`, and puts it back if the run does not commit. For data outside a [`GuardedCell`] cell; until the
    /// run ends, other threads see what the work does to it.
    ///
    /// Takes a reference that outlives the run, or an [`Arc`]. See [`Snapshot`] for what can be saved.
    pub fn snapshot<S: Snapshot + Send + 'env>(&self, data: S)
    where
        S::Saved: 'env,
    {
        let saved = data.save();
        self.note_undo("snapshot", move || data.restore(saved));
    }

    fn note_undo<R: HookResult>(&self, call: &str, hook: impl FnOnce() -> R + Send + 'env) {
        let mut notes = self.notes();
        // A refusal is remembered by the notes. What the hook is for has been done all the same, so that it must be kept.
        let _ = notes.ensure_before_commit(call);
        notes
            .to_undo
            .push(ToUndo::Local(Box::new(move || hook().into_result())));
    }

    /// The run's own copy of a cell, to be read and changed; readers see it once the run has committed.
    ///
    /// If the cell may not be written (it belongs to another key, a newer holder has written it, the commit was already named, or
    /// an earlier answer for the same cell is still alive), the copy is one in vain and the run will not commit.
    pub fn write<'tx, T>(&'tx self, cell: &GuardedCell<T>) -> Staged<'tx, T>
    where
        T: Clone + Send + Sync + 'static,
    {
        self.stage(cell).unwrap_or_else(|()| Staged::in_vain(cell))
    }

    fn stage<'tx, T>(&'tx self, cell: &GuardedCell<T>) -> Result<Staged<'tx, T>, ()>
    where
        T: Clone + Send + Sync + 'static,
    {
        let mut notes = self.notes();
        notes.ensure_before_commit("write").map_err(|_| ())?;
        let address = Arc::as_ptr(&cell.shared).addr();
        let known = notes.drafts.iter().find(|d| d.address() == address);
        // The cell at an address is the same as long as its draft keeps it alive, and so is its type.
        let known = known.and_then(|d| Arc::clone(d).as_any().downcast::<Draft<T>>().ok());
        let draft = match known {
            Some(draft) => draft,
            None => {
                let admitted = cell.shared.terms.write().admit(self.home.lease());
                admitted.map_err(|refusal| notes.refuse(refusal))?;
                let draft = Draft::new(cell);
                notes.drafts.push(Arc::clone(&draft) as _);
                draft
            }
        };
        draft.take().ok_or_else(|| {
            notes.refuse(Refusal::Misuse(Error::invalid(
                "a cell was written twice at once in one run; nothing was committed; drop what the first `write` returned before the second",
            )));
        })
    }

    /// Notes what to do once the commit is known to be applied, a late one included: the [`Receipt`] tells. Hooks run in the
    /// order in which they were given, after the run, when the lease may be over. One that panics harms nobody: it is logged.
    pub fn on_committed(&self, hook: impl FnOnce(&Receipt) + Send + 'env) {
        self.notes().on_committed.push(Box::new(hook));
    }

    fn name_commit(&self, commit: M::Commit<'env>) {
        let mut notes = self.notes();
        if notes.ensure_before_commit("commit_with").is_ok() {
            notes.commit = Some(commit);
        }
    }
}

impl<'env> Tx<'env, Blocking> {
    /// Names *the* commit: the one durable change outside this process, called after the work has returned `Ok` and the lease
    /// was found live with at least the commit budget left. It is the last call of the work.
    ///
    /// It answers `()`, or [`Applied::fenced`](crate::executor::Applied::fenced) if the resource compared the token; and a
    /// [`CommitError`] in which a bare `?` means that the commit is in doubt (I7). It should give up after
    /// [`CommitPermit::remaining`]. A value in its answer ([`Applied::with`](crate::executor::Applied::with)) comes out of the
    /// [`CommitValue`]; an answer `Ok(Err(why))` is the caller's own decision against the commit, and comes back as
    /// [`Cause::Failed`](super::Cause::Failed).
    pub fn commit_with<A>(
        &self,
        commit: impl FnOnce(CommitPermit) -> Result<A, CommitError> + Send + 'env,
    ) -> CommitValue<A::Value>
    where
        A: CommitAnswer,
        A::Value: Send + 'env,
        A::Refusal: Into<BoxError> + Send + 'static,
    {
        let value = CommitValue::empty();
        let kept = value.shared();
        self.name_commit(Box::new(move |permit| kept.keep(commit(permit))));
        value
    }
}

impl Tx<'static, Awaiting> {
    /// Names *the* commit: the one durable change outside this process, awaited after the work has returned `Ok` and the lease
    /// was found live with at least the commit budget left. It is the last call of the work.
    ///
    /// It answers `()`, or [`Applied::fenced`](crate::executor::Applied::fenced) if the resource compared the token; and a
    /// [`CommitError`] in which a bare `?` means that the commit is in doubt (I7). It is given up after
    /// [`CommitPermit::remaining`], in doubt. A value in its answer ([`Applied::with`](crate::executor::Applied::with)) comes out of the
    /// [`CommitValue`]; an answer `Ok(Err(why))` is the caller's own decision against the commit, and comes back as
    /// [`Cause::Failed`](super::Cause::Failed).
    pub fn commit_with<A, F>(
        &self,
        commit: impl FnOnce(CommitPermit) -> F + Send + 'static,
    ) -> CommitValue<A::Value>
    where
        A: CommitAnswer,
        A::Value: Send + 'static,
        A::Refusal: Into<BoxError> + Send + 'static,
        F: Future<Output = Result<A, CommitError>> + Send + 'static,
    {
        let value = CommitValue::empty();
        let kept = value.shared();
        self.name_commit(Box::new(move |permit| {
            // The call begins inside the future, so that a panic of either is the same.
            Box::pin(async move { kept.keep(commit(permit).await) })
        }));
        value
    }
}

impl<M: RunMode> fmt::Debug for Tx<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx")
            .field("lease", self.home.lease())
            .field("txn_id", &self.known_txn_id())
            .finish_non_exhaustive()
    }
}
