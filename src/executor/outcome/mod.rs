//! How a run ends: [`Committed`] or a [`RunError`], with the cause and the report of what was
//! undone.

mod abort;
mod cause;
mod committed;
mod refusal;
mod report;
mod run_error;

pub use abort::Abort;
pub use cause::Cause;
pub use committed::{CommitProof, Committed, Receipt};
pub(crate) use refusal::Refusal;
pub use report::{HookResult, UndoReport, UndoResult, Undone};
pub use run_error::RunError;
