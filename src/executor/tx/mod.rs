//! What the work of a run may do: [`Tx`], its steps and snapshots, and the notes that they leave
//! for the end of the run.

mod answer;
mod effect;
mod notes;
mod snapshot;
mod step;
mod transaction;

pub(crate) use answer::Answer;
pub use answer::{CommitAnswer, CommitValue};
pub use effect::{Compensation, Effect, FENCED_COMPENSATION_LIMIT, StepError};
pub(crate) use notes::{CommitCall, Notes, Step, StepState, ToUndo, Undo};
pub use snapshot::Snapshot;
pub(crate) use transaction::ContextRef;
pub use transaction::Tx;
