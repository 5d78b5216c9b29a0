//! [`RunSink`]: the executor's interface to what outlives a run.
//!
//! The executor depends on neither managers nor stores. What outlives a run (a debt, a compensation
//! whose run was dropped) goes to this trait, which the manager implements for each hold.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::model::commit::{HeldKey, Locks, keys, tokens};
use crate::model::error::BoxError;
use crate::model::key::Key;
use crate::model::run_event::RunEvent;
use crate::model::shared_runtime::SharedRuntime;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// An effect outside this process that a run began and that could not soundly be undone.
///
/// It is never dropped silently: it goes to the manager of the hold, and is in the outcome of its
/// run, or in the log if no outcome can be returned.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Debt {
    /// The key of the lock that the run was under; of several locks, the first in the order of
    /// their keys.
    pub key: Key,
    /// The fencing token of its hold.
    pub token: FencingToken,
    /// All locks that the run was under.
    pub locks: Locks,
    /// The run.
    pub txn_id: TxnId,
    /// The description that the step was given.
    pub intent: Arc<str>,
    /// The state of the effect.
    pub state: DebtState,
    /// The effect is the commit of the run, and no step.
    pub(crate) is_commit: bool,
}

/// The state of the effect behind a [`Debt`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DebtState {
    /// It was sent and no answer arrived: it may have happened, and it may still happen.
    InDoubt,
    /// It happened, and it was not compensated, because the lease had ended and no fence protects
    /// the resource.
    Owed,
    /// It happened, and the commit of its run is in doubt: it belongs to the commit if that was
    /// applied, and must be undone if it was not.
    Undecided,
    /// It happened, and its compensation failed or did not end in time: it may be half undone.
    Failed(Arc<BoxError>),
}

impl Debt {
    /// The one line of the log about this debt.
    pub(crate) fn log(&self) {
        if self.is_commit {
            let (key, token, txn_id) = (keys(&self.locks), tokens(&self.locks), self.txn_id);
            tracing::error!(
                target: "leasehold::run",
                %key,
                %token,
                %txn_id,
                "a commit is in doubt; if the fence of a store guards the data, see what became of it: leasehold resolve --store URL {key} {txn_id} --token {token}",
            );
            return;
        }
        tracing::error!(
            target: "leasehold::run",
            key = %keys(&self.locks),
            token = %tokens(&self.locks),
            txn_id = %self.txn_id,
            intent = &*self.intent,
            "an effect could not be taken back: {}; settle it by hand",
            self.state,
        );
    }
}

impl fmt::Display for DebtState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InDoubt => f.write_str("in doubt"),
            Self::Owed => f.write_str("not compensated"),
            Self::Undecided => f.write_str("to be kept or taken back with its commit"),
            Self::Failed(error) => write!(f, "compensation failed ({error})"),
        }
    }
}

impl fmt::Display for Debt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            locks,
            txn_id,
            intent,
            state,
            ..
        } = self;
        let (key, token) = (keys(locks), tokens(locks));
        write!(
            f,
            "{state}: {intent}; key={key} token={token} txn_id={txn_id}"
        )
    }
}

/// An effect that is about to be sent: reported first, so that a journal contains it whatever
/// happens next.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Intent {
    /// The key of the lock that the run is under; of several locks, the first in the order of their
    /// keys.
    pub key: Key,
    /// The fencing token of its hold.
    pub token: FencingToken,
    /// All locks that the run is under.
    pub locks: Locks,
    /// The run.
    pub txn_id: TxnId,
    /// The description that the step was given.
    pub intent: Arc<str>,
}

/// Receives what a run leaves behind. Implemented by the manager for each hold.
pub(crate) trait RunSink: fmt::Debug + Send + Sync {
    /// An effect is about to be sent. Must return fast: the run waits.
    fn intent(&self, intent: &Intent);

    /// An effect could not soundly be undone.
    fn debt(&self, debt: Debt);

    /// Compensations of a run whose future was dropped. They run to their end before the hold is
    /// released, and their debts come back through [`debt`](Self::debt).
    fn compensate(&self, work: BoxFuture<'static, Vec<Debt>>);

    /// The numbers that the manager knows the locks of the runs by. Called once for each executor.
    fn lock_numbers(&self) -> Vec<u64> {
        Vec::new()
    }

    /// A runtime with timers, for runs that are awaited outside of any.
    fn runtime(&self) -> Option<&SharedRuntime> {
        None
    }

    /// Whether [`ran`](Self::ran) has a receiver. Called once for each executor.
    fn is_watched(&self) -> bool {
        false
    }

    /// A step in the life of a run under `locks`; called only if [`is_watched`](Self::is_watched).
    /// Must not panic: the run is in progress. `run` numbers the watched runs of this process.
    fn ran(&self, _locks: &[HeldKey], _run: u64, _event: RunEvent) {}
}
