//! [`AlreadyApplied`]: why a commit that is done once was not applied again.

/// Why a commit was not applied: a name that it claims was claimed before, so what it does once is
/// done.
///
/// The source of [`Cause::NotApplied`](crate::Cause::NotApplied), by `downcast_ref`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("what the commit does once is done: a name that it claims was claimed before")]
#[non_exhaustive]
pub struct AlreadyApplied;
