//! [`Tx`]: the handle through which the work of a run acts.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::answer::{CommitAnswer, CommitValue};
use super::notes::{CommitCall, Notes, ToUndo};
use super::snapshot::Snapshot;
use crate::executor::cell::{Draft, GuardedCell, Staged};
use crate::executor::context::RunContext;
use crate::executor::outcome::{HookResult, Receipt, Refusal};
use crate::lease::LeaseError;
use crate::model::commit::{CommitPermit, EffectError, Locks, mark};
use crate::model::error::{BoxError, Error};
use crate::model::key::Key;
use crate::model::run_event::RunEvent;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// What the work of a run may do: check the lease, note how to undo its changes, write cells, set
/// its commit call.
///
/// All methods take `&self` and it is `Sync`, so the work may use several threads or futures. It
/// cannot outlive the run:
///
/// ```compile_fail
/// # fn show(executor: &leasehold::Executor) {
/// let escaped = executor.guarded(|tx| Ok(tx));
/// # }
/// ```
///
/// What hooks borrow must outlive the call of [`guarded`](crate::Executor::guarded) (`'env`), as
/// with [`std::thread::scope`]. The hooks of an awaited run ([`AsyncTx`](crate::AsyncTx)) own what
/// they need.
///
/// Nothing here panics when it is used against the rules (a write after
/// [`commit_with`](Self::commit_with), a cell of another key): the run is not committed, everything
/// is undone, and the outcome names the rule.
pub struct Tx<'env> {
    pub(crate) context: ContextRef<'env>,
    /// The number of the run, for observers.
    run: u64,
    /// Made when first needed, so a run that notes nothing has nothing to make or drop.
    notes: Mutex<Option<Box<Notes<'env>>>>,
    /// The notes have a refusal. Beside them, because a check takes no lock.
    is_refused: AtomicBool,
    txn_id: OnceLock<TxnId>,
}

/// The context of the run, borrowed where possible, so that a run writes to no reference count.
pub(crate) enum ContextRef<'env> {
    Borrowed(&'env RunContext),
    Owned(Arc<RunContext>),
}

impl Deref for ContextRef<'_> {
    type Target = RunContext;

    #[inline]
    fn deref(&self) -> &RunContext {
        match self {
            Self::Borrowed(context) => context,
            Self::Owned(context) => context,
        }
    }
}

impl<'env> Tx<'env> {
    #[inline]
    pub(crate) fn new(context: ContextRef<'env>, run: u64) -> Self {
        Self {
            context,
            run,
            notes: Mutex::new(None),
            is_refused: AtomicBool::new(false),
            txn_id: OnceLock::new(),
        }
    }

    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// Checks the lease, for long work: an error if the run cannot commit any more. It costs one
    /// clock read.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`] if the lease is over, [`LeaseError::Ending`] if the hold is being
    /// released, [`LeaseError::Refused`] if the run has broken a rule (a cell of another key) or
    /// found a newer holder.
    #[inline]
    pub fn check(&self) -> Result<(), LeaseError> {
        let lease = self.context.lease();
        let checked = if lease.is_closed() {
            Err(self.context.ending())
        } else {
            let allowed = self.ensure_not_refused();
            allowed.and_then(|()| lease.look_fast().map(|_| ()))
        };
        let is_live = checked.is_ok();
        self.context.notify(self.run, RunEvent::Checked { is_live });
        checked
    }

    /// A run that broke a rule, or found a newer holder, cannot commit.
    pub(crate) fn ensure_not_refused(&self) -> Result<(), LeaseError> {
        if self.is_refused.load(Ordering::Relaxed) {
            return Err(LeaseError::Refused);
        }
        Ok(())
    }

    /// What is left of the lease by the strict clocks; zero if it is over. A renewal may extend it.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.context.lease().remaining()
    }

    /// The fencing token of the hold: send it with every effect.
    ///
    /// Under several locks it is the token of the first key in their order, and proves nothing
    /// about the other keys. Send [`token_of`](Locks::token_of) the key that the effect belongs to,
    /// or all [`locks`](Self::locks) if it belongs to several.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.context.lease().token()
    }

    /// All locks that the run is under, with the fencing token of each.
    ///
    /// ```
    /// # use leasehold::{LockManager, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = LockManager::new(MemoryStore::new()?)?;
    /// let both = locks.lock_all(["accounts/3", "accounts/7"]);
    /// let guard = both.acquire().await?;
    /// guard.executor().guarded(|tx| {
    ///     let token = tx.locks().token_of("accounts/7")?;
    ///     // Send it with what changes accounts/7.
    /// #   assert_ne!(token, tx.token());
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn locks(&self) -> &Locks {
        self.context.locks()
    }

    /// The key of the lock. Of a run under several locks it is the first in their order; see
    /// [`locks`](Self::locks).
    #[must_use]
    pub fn key(&self) -> &Key {
        self.context.lease().key()
    }

    /// The run's identifier, made at the first call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the system gives no random
    /// bytes.
    pub fn txn_id(&self) -> Result<TxnId, Error> {
        if let Some(txn_id) = self.txn_id.get() {
            return Ok(*txn_id);
        }
        let made = TxnId::generate(mark(self.locks()))?;
        Ok(*self.txn_id.get_or_init(|| made))
    }

    pub(crate) fn notes(&self) -> MappedMutexGuard<'_, Notes<'env>> {
        MutexGuard::map(self.notes.lock(), |notes| {
            &mut **notes.get_or_insert_default()
        })
    }

    /// Notes why the run will not commit, and lets its next check fail.
    pub(crate) fn refuse(&self, notes: &mut Notes<'env>, refusal: Refusal) {
        notes.refuse(refusal);
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Whether the run has noted nothing.
    #[inline]
    pub(crate) fn is_blank(&mut self) -> bool {
        self.notes.get_mut().is_none()
    }

    /// Whether the run has noted no change: see [`Notes::has_no_change`].
    pub(crate) fn has_no_change(&mut self) -> bool {
        let notes = self.notes.get_mut();
        notes.as_ref().is_none_or(|notes| notes.has_no_change())
    }

    pub(crate) fn noted(&mut self) -> &mut Notes<'env> {
        self.notes.get_mut().get_or_insert_default()
    }

    pub(crate) fn take_notes(&mut self) -> Notes<'env> {
        self.notes
            .get_mut()
            .take()
            .map(|notes| *notes)
            .unwrap_or_default()
    }

    pub(crate) fn known_txn_id(&self) -> Option<TxnId> {
        self.txn_id.get().copied()
    }

    /// Notes how to undo a change inside this process. The executor calls the hook if the run does
    /// not commit, whatever the reason, even when the lease is over. All hooks run, newest first;
    /// each result is in the [`UndoReport`](crate::run::UndoReport). A hook may return nothing or a
    /// `Result`.
    ///
    /// A hook should undo only what this run changed (`balance += 10` for `balance -= 10`): another
    /// run may have changed the same data in the meantime.
    ///
    /// For effects outside the process use a step: to undo those after the lease may destroy the
    /// next holder's work.
    ///
    /// After [`commit_with`](Tx::commit_with) it is against the rules: the executor calls the hook,
    /// because the run does not commit.
    pub fn undo<R: HookResult>(&self, hook: impl FnOnce() -> R + Send + 'env) {
        self.note_undo("undo", hook);
    }

    /// Saves the value of `data`, and restores the whole of it if the run does not commit. For data
    /// outside a [`GuardedCell`]; until the run ends, other threads see what the work does to it.
    ///
    /// **Restoring the whole value erases what others changed since it was saved**: other runs of
    /// this lease (an executor clone on another thread), runs under another lock, or code without a
    /// lock. Use it only where no other run changes the same data at the same time. Otherwise use
    /// [`undo`](Self::undo) to restore only what this run changed, a [`GuardedCell`], or an
    /// executor [`in_turn`](crate::Executor::in_turn).
    ///
    /// Takes a reference that outlives the run, or an [`Arc`]. See [`Snapshot`] for what can be
    /// saved.
    pub fn snapshot<S: Snapshot + Send + 'env>(&self, data: S)
    where
        S::Saved: 'env,
    {
        let saved = data.save();
        self.note_undo("snapshot", move || data.restore(saved));
    }

    fn note_undo<R: HookResult>(&self, call: &str, hook: impl FnOnce() -> R + Send + 'env) {
        let mut notes = self.notes();
        // The notes keep the refusal. The change that the hook undoes has been made nevertheless,
        // so the hook is kept.
        let _ = notes.ensure_before_commit(call);
        notes
            .to_undo
            .push(ToUndo::Local(Box::new(move || hook().into_result())));
    }

    /// The run's own copy of a cell, to read and to change; readers see it once the run has
    /// committed.
    ///
    /// If the cell may not be written, the copy is discarded and the run will not commit: its next
    /// [`check`](Self::check) fails. It may not if:
    ///
    /// - it belongs to another key, or has no key and the run is under several locks;
    /// - a newer holder has written it;
    /// - [`commit_with`](Self::commit_with) was already called;
    /// - an earlier copy of the same cell is still alive.
    pub fn write<'tx, T>(&'tx self, cell: &GuardedCell<T>) -> Staged<'tx, T>
    where
        T: Clone + Send + Sync + 'static,
    {
        self.stage(cell)
            .unwrap_or_else(|()| Staged::discarded(cell))
    }

    fn stage<'tx, T>(&'tx self, cell: &GuardedCell<T>) -> Result<Staged<'tx, T>, ()>
    where
        T: Clone + Send + Sync + 'static,
    {
        let mut notes = self.notes();
        notes.ensure_before_commit("write").map_err(|_| ())?;
        let address = Arc::as_ptr(&cell.content).addr();
        let known = notes.drafts.get(&address);
        // The cell at an address is the same as long as its draft keeps it alive, and so is its
        // type.
        let known = known.and_then(|d| Arc::clone(d).as_any().downcast::<Draft<T>>().ok());
        let draft = match known {
            Some(draft) => draft,
            None => {
                let admitted = cell.content.terms.write().admit(self.locks());
                let token = admitted.map_err(|refusal| self.refuse(&mut notes, refusal))?;
                let draft = Draft::new(cell, token);
                notes.drafts.insert(address, Arc::clone(&draft) as _);
                draft
            }
        };
        draft.take().ok_or_else(|| {
            let error = "a cell was written twice at once in one run; nothing was committed; drop what the first `write` returned before the second";
            self.refuse(&mut notes, Refusal::Misuse(Error::invalid(error)));
        })
    }

    /// Notes what to do once the commit is known to be applied, including a late one; the
    /// [`Receipt`] says which. Hooks run in the order in which they were given, after the run, when
    /// the lease may be over. A panic in one is logged and does not stop the others.
    pub fn on_committed(&self, hook: impl FnOnce(&Receipt) + Send + 'env) {
        self.notes().on_committed.push(Box::new(hook));
    }

    pub(crate) fn set_commit(&self, commit: CommitCall<'env>) {
        let mut notes = self.notes();
        if notes.ensure_before_commit("commit_with").is_ok() {
            notes.commit = Some(commit);
        }
    }

    /// Sets *the* commit: the one durable change outside this process. The executor calls it after
    /// the work has returned `Ok` and the lease was found live with at least the commit budget
    /// left. It is the last call of the work.
    ///
    /// It returns `()`, or [`Applied::fenced`](crate::run::Applied::fenced) if the resource
    /// compared all tokens of the permit; or an [`EffectError`], in which a bare `?` means that the
    /// commit is in doubt (I7), with the exception that [it](EffectError) names. It should give up
    /// after [`CommitPermit::remaining`].
    ///
    /// A value in its answer ([`Applied::with`](crate::run::Applied::with)) comes out of the
    /// [`CommitValue`]. An answer `Ok(Err(why))` is the caller's own decision against the commit,
    /// and is returned in [`Cause::Failed`](crate::Cause::Failed).
    pub fn commit_with<A>(
        &self,
        commit: impl FnOnce(CommitPermit) -> Result<A, EffectError> + Send + 'env,
    ) -> CommitValue<A::Value>
    where
        A: CommitAnswer,
        A::Value: Send + 'env,
        A::Refusal: Into<BoxError> + Send + 'static,
    {
        let value = CommitValue::empty();
        let kept = value.shared();
        self.set_commit(Box::new(move |permit| {
            Box::pin(async move { kept.keep(commit(permit)) })
        }));
        value
    }
}

impl fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx")
            .field("lease", self.context.lease())
            .field("txn_id", &self.known_txn_id())
            .finish_non_exhaustive()
    }
}
