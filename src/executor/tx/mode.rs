//! [`RunMode`]: whether what a run calls blocks or is awaited.

use futures_util::future::BoxFuture;

use super::answer::Answer;
use super::effect::Compensation;
use crate::model::commit::CommitPermit;
use crate::model::error::BoxError;

mod sealed {
    pub trait Sealed {}
}

/// The two kinds of run: [`Blocking`] and [`Awaiting`]. They differ in what a step, a compensation and a commit are.
pub trait RunMode: sealed::Sealed + Send + Sync + 'static {
    /// What undoes an effect outside the process.
    #[doc(hidden)]
    type Undo<'env>: Send + 'env;
    /// The durable step of a run.
    #[doc(hidden)]
    type Commit<'env>: Send + 'env;
}

/// A run of [`guarded`](crate::Executor::guarded): a step is a call, and needs no runtime.
#[derive(Debug)]
pub enum Blocking {}

/// A run of [`guarded_async`](crate::Executor::guarded_async): a step is a future.
#[derive(Debug)]
pub enum Awaiting {}

impl sealed::Sealed for Blocking {}

impl RunMode for Blocking {
    type Undo<'env> = Box<dyn FnOnce(Compensation) -> Result<(), BoxError> + Send + 'env>;
    type Commit<'env> = Box<dyn FnOnce(CommitPermit) -> Answer + Send + 'env>;
}

impl sealed::Sealed for Awaiting {}

// `'static`, because a dropped future passes these to the hold's `RunSink`.
impl RunMode for Awaiting {
    type Undo<'env> =
        Box<dyn FnOnce(Compensation) -> BoxFuture<'static, Result<(), BoxError>> + Send>;
    type Commit<'env> = Box<dyn FnOnce(CommitPermit) -> BoxFuture<'static, Answer> + Send>;
}
