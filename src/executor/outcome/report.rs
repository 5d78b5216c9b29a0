//! [`UndoReport`]: what was undone, one result for each undo (I6).

use std::fmt;
use std::sync::Arc;

use crate::model::caught::Caught;
use crate::model::error::BoxError;
use crate::model::run_event::RunEvent;
use crate::model::run_sink::{Debt, DebtState};

/// What was undone, newest first: one result for each undo hook and each step that may have had an
/// effect.
#[derive(Debug, Default)]
#[must_use = "an undo that failed is reported only here"]
pub struct UndoReport {
    results: Vec<Undone>,
    pub(crate) debts: Vec<Debt>,
    /// The work has begun, and has used its `tx` for no change.
    has_noted_nothing: bool,
}

/// What became of one undo.
#[derive(Debug)]
#[non_exhaustive]
pub struct Undone {
    /// The step's intent; `None` for a local hook.
    pub intent: Option<Arc<str>>,
    /// How it went.
    pub result: UndoResult,
}

/// How one undo went.
#[derive(Debug)]
#[non_exhaustive]
pub enum UndoResult {
    /// It is undone.
    Done,
    /// The undo failed: its effect may be half undone.
    Failed(Arc<BoxError>),
    /// The undo panicked with this message: its effect may be half undone. `Display` leaves the
    /// message out, because it may hold secrets.
    Panicked(String),
    /// It was not tried, because undoing it was not safe any more: it is a debt.
    NotTried(DebtState),
}

/// What a hook returned, or its panic.
impl From<Result<Result<(), BoxError>, Caught>> for UndoResult {
    fn from(how: Result<Result<(), BoxError>, Caught>) -> Self {
        match how {
            Ok(Ok(())) => Self::Done,
            Ok(Err(error)) => Self::Failed(Arc::new(error)),
            Err(Caught(text)) => Self::Panicked(text),
        }
    }
}

impl UndoReport {
    /// Of work that has used its `tx` for no change, if `has_noted_nothing`.
    pub(crate) fn of_work(mut self, has_noted_nothing: bool) -> Self {
        self.has_noted_nothing = has_noted_nothing;
        self
    }

    /// The results, newest first.
    #[must_use]
    pub fn results(&self) -> &[Undone] {
        &self.results
    }

    /// The effects outside the process that are left.
    #[must_use]
    pub fn debts(&self) -> &[Debt] {
        &self.debts
    }

    /// Whether everything that was noted was undone.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.done() == self.results.len() && self.debts.is_empty()
    }

    fn done(&self) -> usize {
        let is_done = |undone: &&Undone| matches!(undone.result, UndoResult::Done);
        self.results.iter().filter(is_done).count()
    }

    /// What observers see of it; `None` if there was nothing to undo.
    pub(crate) fn event(&self) -> Option<RunEvent> {
        let done = self.done();
        (!self.results.is_empty()).then_some(RunEvent::Undone {
            done,
            not_done: self.results.len() - done,
        })
    }

    pub(crate) fn push(&mut self, intent: Option<Arc<str>>, result: UndoResult) {
        self.results.push(Undone { intent, result });
    }
}

impl fmt::Display for UndoReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_noted_nothing {
            return f.write_str(
                "nothing was noted; what the work did outside of its tx was not undone",
            );
        }
        write!(f, "undone={}/{}", self.done(), self.results.len())
    }
}

impl fmt::Display for UndoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("undone"),
            Self::Failed(error) => write!(f, "the undo failed: {error}"),
            Self::Panicked(_) => f.write_str("the undo panicked"),
            Self::NotTried(_) => f.write_str("not tried: undoing it was not safe any more"),
        }
    }
}

/// What a hook may return: nothing, or a result whose error is in the [`UndoReport`].
pub trait HookResult {
    /// What the hook returned, as a result.
    ///
    /// # Errors
    ///
    /// The error of the hook.
    fn into_result(self) -> Result<(), BoxError>;
}

impl HookResult for () {
    fn into_result(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<E: Into<BoxError>> HookResult for Result<(), E> {
    fn into_result(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}
