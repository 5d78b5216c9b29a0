//! [`AlreadyApplied`]: why a commit that is done once was not applied again.

/// Why a commit was not applied: a name that it claims was claimed before, so what it does once is
/// done.
///
/// The source of [`Cause::NotApplied`](crate::Cause::NotApplied), by `downcast_ref`. Such a run is
/// [not retryable](crate::RunError::is_retryable). A fence of your own returns it as
/// [`EffectError::NotApplied`](crate::run::EffectError::NotApplied).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("what the commit does once is done: a name that it claims was claimed before")]
pub struct AlreadyApplied;
