//! For authors of fences: the time of a run, and how a commit without an answer is resolved in it.
//!
//! A run has an answer for its caller as long as its lease lasts. So the steps before the commit
//! end [a little earlier](before_the_commit), the answer to the commit is
//! [waited for](patience) in half of what is left then, and in the other half the fence
//! [asks](resolve_within) what became of it.

use std::time::Duration;

use crate::clock::{Clock, Stamp};
use crate::model::commit::{Applied, EffectError};
use crate::model::doubt::Resolution;
use crate::model::error::{BoxError, Error, ErrorKind};

/// For how long a commit without an answer is asked about, at least. The executor waits as long for
/// a commit that was begun late.
const LEAST: Duration = Duration::from_secs(1);
/// For how long a step that was begun late waits for its answer, at least.
pub const LATE: Duration = Duration::from_millis(400);
/// The pause before a doubt is asked about again.
const PAUSE: Duration = Duration::from_millis(20);

/// How long what comes before the commit may take of what is `left` of a lease: nine tenths, and
/// 400 ms at least. If it ends there, the run can still be given its proof that nothing was
/// applied.
#[must_use]
pub fn before_the_commit(left: Duration) -> Duration {
    (left * 9 / 10).max(LATE)
}

/// How long the answer to a commit is waited for, of what is `left` of a lease: half of it, and 400
/// ms at least, so that a doubt can be resolved in the other half.
#[must_use]
pub fn patience(left: Duration) -> Duration {
    (left / 2).max(LATE)
}

/// Asks what became of a commit until `not_after`, and for a second at least. `ask` is given what
/// is left.
///
/// # Errors
///
/// [`EffectError::NotApplied`] with `error` if it was not applied, and never will be;
/// [`EffectError::Unknown`] if it is not known in time, or can never be known.
///
/// # Cancel safety
///
/// That of `ask`, which is dropped where it waits.
pub async fn resolve_within<Fut>(
    clock: &Clock,
    not_after: Stamp,
    error: BoxError,
    ask: impl Fn(Duration) -> Fut,
) -> Result<Applied, EffectError>
where
    Fut: Future<Output = Result<Resolution, Error>>,
{
    let now = clock.stamp();
    let end = now.plus(not_after.since(&now).max(LEAST));
    loop {
        let left = end.since(&clock.stamp());
        if left.is_zero() {
            return Err(EffectError::unknown(error));
        }
        match clock.timeout(left, ask(left)).await {
            Some(Ok(Resolution::Applied)) => return Ok(Applied::fenced()),
            Some(Ok(Resolution::NotApplied)) => return Err(EffectError::not_applied(error)),
            Some(Err(final_)) if is_final(&final_) => return Err(EffectError::unknown(final_)),
            Some(Err(_)) | None => clock.sleep(PAUSE).await,
        }
    }
}

/// Whether asking again gives the same error.
fn is_final(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Invalid | ErrorKind::Corrupt | ErrorKind::Unsupported
    )
}
