//! How a fence resolves a commit without an answer within its run.

use std::time::Duration;

use crate::clock::{Clock, Stamp};
use crate::model::commit::{Applied, EffectError};
use crate::model::doubt::Resolution;
use crate::model::error::{BoxError, Error, ErrorKind};

/// For how long a commit without an answer is asked about, at least. The executor waits as long for
/// a commit that was begun late.
const LEAST: Duration = Duration::from_secs(1);
/// For how long a commit that was begun late waits for its answer.
pub(crate) const LATE: Duration = Duration::from_millis(400);
/// The pause before a doubt is asked about again.
const PAUSE: Duration = Duration::from_millis(20);

/// How long the answer to a commit is waited for: half of what is left, so that a doubt can be
/// resolved in the other half.
pub(crate) fn patience(left: Duration) -> Duration {
    (left / 2).max(LATE)
}

/// Asks what became of a commit until the run's time is over. `ask` is given what is left.
pub(crate) async fn resolve_within<Fut>(
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
