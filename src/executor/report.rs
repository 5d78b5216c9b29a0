//! [`UndoReport`]: what was taken back, one result for each thing (I6).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::model::error::BoxError;
use crate::model::run_sink::DebtState;

/// What was taken back, newest first: one result for each undo hook and each step that may have had an effect.
#[derive(Debug, Default)]
#[must_use = "an undo that failed stands only here"]
pub struct UndoReport {
    results: Vec<Undone>,
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
    /// It is taken back.
    Done,
    /// The undo failed: what it stands for may be half taken back.
    Failed(Arc<BoxError>),
    /// The undo panicked with this message: what it stands for may be half taken back. `Display` leaves the message out, which
    /// may hold what no log may.
    Panicked(String),
    /// It was not tried, because it could not soundly be taken back: it is a debt.
    NotTried(DebtState),
}

impl UndoReport {
    /// The results, newest first.
    #[must_use]
    pub fn results(&self) -> &[Undone] {
        &self.results
    }

    /// Whether everything was taken back.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.results
            .iter()
            .all(|undone| matches!(undone.result, UndoResult::Done))
    }

    pub(super) fn push(&mut self, intent: Option<Arc<str>>, result: UndoResult) {
        self.results.push(Undone { intent, result });
    }
}

impl fmt::Display for UndoReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = |undone: &&Undone| matches!(undone.result, UndoResult::Done);
        let count = self.results.iter().filter(done).count();
        write!(f, "undone={count}/{}", self.results.len())
    }
}

impl fmt::Display for UndoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("taken back"),
            Self::Failed(error) => write!(f, "the undo failed: {error}"),
            Self::Panicked(_) => f.write_str("the undo panicked"),
            Self::NotTried(_) => f.write_str("not tried: it could not soundly be taken back"),
        }
    }
}

/// What a hook may answer: nothing, or a result whose error stands in the [`UndoReport`].
pub trait HookResult {
    /// The answer as a result.
    ///
    /// # Errors
    ///
    /// Whatever the hook failed with.
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

/// The text of a panic, where it has one.
pub(super) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
