//! [`RunSink`]: where the executor leaves what it cannot finish itself.
//!
//! The executor knows neither managers nor stores. What outlives a run (a debt, a compensation whose run was dropped)
//! it hands to this trait, which the manager implements for each hold.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::model::error::BoxError;
use crate::model::key::Key;
use crate::model::run_event::RunEvent;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;

/// An effect outside this process that a run began and that could not soundly be taken back.
///
/// It is never dropped silently: it goes to the manager of the hold, and is in the outcome of its run, or in the log where no
/// outcome can be returned.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Debt {
    /// The key of the lock that the run was under.
    pub key: Key,
    /// The fencing token of its hold.
    pub token: FencingToken,
    /// The run.
    pub txn_id: TxnId,
    /// What the effect is, in the words that the step was given.
    pub intent: Arc<str>,
    /// The state of the effect.
    pub state: DebtState,
}

/// The state of the effect behind a [`Debt`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DebtState {
    /// It was sent and no answer came: it may or may not have happened, or may happen yet.
    InDoubt,
    /// It happened, and it was not compensated, because the lease had ended and no fence protects the resource.
    Owed,
    /// It happened, and the commit of its run is in doubt: it belongs to the commit if that is found applied, and is to be
    /// taken back if it is not.
    Undecided,
    /// It happened, and its compensation failed or did not end in time: it may be half taken back.
    Failed(Arc<BoxError>),
}

impl fmt::Display for Debt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            token,
            txn_id,
            intent,
            state,
        } = self;
        match state {
            DebtState::InDoubt => write!(f, "in doubt: {intent}")?,
            DebtState::Owed => write!(f, "not compensated: {intent}")?,
            DebtState::Undecided => {
                write!(f, "to be kept or taken back with its commit: {intent}")?
            }
            DebtState::Failed(error) => write!(f, "compensation failed ({error}): {intent}")?,
        }
        write!(f, "; key={key} token={token} txn_id={txn_id}")
    }
}

/// An effect that is about to be sent: reported before it leaves, so that a journal can know of it whatever happens next.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Intent {
    /// The key of the lock that the run is under.
    pub key: Key,
    /// The fencing token of its hold.
    pub token: FencingToken,
    /// The run.
    pub txn_id: TxnId,
    /// What the effect is, in the words that the step was given.
    pub intent: Arc<str>,
}

/// What the executor leaves behind. Implemented by the manager for each hold.
pub(crate) trait RunSink: fmt::Debug + Send + Sync {
    /// An effect is about to be sent. Must return fast: the run waits.
    fn intent(&self, intent: &Intent);

    /// An effect could not soundly be taken back.
    fn debt(&self, debt: Debt);

    /// Compensations of a run whose future was dropped. They are driven to their end before the hold is released, and
    /// the debts that they leave come back through [`debt`](Self::debt).
    fn compensate(&self, work: BoxFuture<'static, Vec<Debt>>);

    /// Whether [`ran`](Self::ran) leads anywhere. Asked once for each executor.
    fn is_watched(&self) -> bool {
        false
    }

    /// A step in the life of a run; called only if [`is_watched`](Self::is_watched). Must not panic: the run is under way.
    /// `run` numbers the runs that are watched, in this process.
    fn ran(&self, _run: u64, _event: RunEvent) {}
}
