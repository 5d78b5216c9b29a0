//! [`Abort`]: the error of a run's work, of any type.

use std::fmt;

use super::cause::Cause;
use crate::executor::tx::StepError;
use crate::lease::LeaseError;
use crate::model::error::BoxError;

/// Why the work gave up: a box into which `?` turns every error, and a text as well.
///
/// The executor recognises a [`LeaseError`] inside it (a failed `tx.check()?`): the outcome is then
/// [`Cause::Lease`], and not that the work failed.
///
/// It does not implement [`Error`](std::error::Error), because a type that takes every error
/// cannot. An error of your own type is in [`Cause::Failed`], and `downcast_ref` gives it back.
pub struct Abort(BoxError);

impl Abort {
    /// Gives up because of `error`.
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into())
    }

    /// Stops the run without an error: the outcome is a rollback with the cause
    /// [`Stopped`](Cause::Stopped), which does not read like a failure and is not repeated by a
    /// retry.
    ///
    /// ```
    /// use leasehold::Abort;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// # let locks = leasehold::LockManager::new(leasehold::store::MemoryStore::new()?)?;
    /// # let guard = locks.lock("nightly").acquire().await?;
    /// let ended = guard.guarded(|_tx| Err::<(), _>(Abort::stop()));
    /// let text = ended.unwrap_err().to_string();
    /// assert!(text.ends_with(": the work asked to stop"), "{text}");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stop() -> Self {
        Self(Box::new(WorkStopped))
    }

    /// The error inside.
    #[must_use]
    pub fn into_inner(self) -> BoxError {
        self.0
    }

    pub(crate) fn into_cause(self) -> Cause<BoxError> {
        let error = match self.0.downcast::<LeaseError>() {
            Ok(lease) => return Cause::Lease(*lease),
            Err(other) => other,
        };
        match error.downcast::<StepError>() {
            Ok(step) => match *step {
                StepError::Lease(lease) => Cause::Lease(lease),
                StepError::Fenced { seen } => Cause::Fenced { seen },
                other => Cause::Failed(other.into()),
            },
            Err(other) if other.is::<WorkStopped>() => Cause::Stopped,
            Err(other) => Cause::Failed(other),
        }
    }
}

/// What [`Abort::stop`] puts into the box.
#[derive(Debug, thiserror::Error)]
#[error("asked to stop")]
struct WorkStopped;

impl<E: Into<BoxError>> From<E> for Abort {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

impl fmt::Debug for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
