//! Releases and withdrawals: one attempt, and the repetition in the background of what was not
//! answered.

use std::time::Duration;

use super::context::ManagerContext;
use super::hold::Hold;
use super::queue::Withdrawal;
use crate::model::error::Error;
use crate::store::Released;

/// One attempt to release, within the request's time-out.
pub(super) async fn release_once(context: &ManagerContext, hold: &Hold) -> Released {
    let limit = context.settings.request_timeout;
    let grant = &hold.origin.grant;
    let rest = hold.rest(&context.clock);
    let releasing = if rest.is_zero() {
        context.store.release(grant)
    } else {
        context.store.rest(grant, rest)
    };
    let released = context.clock.timeout(limit, releasing);
    let released = released.await.unwrap_or_else(|| {
        Released::Unknown(Error::in_doubt(format!(
            "no answer to a release within {limit:?}: key={}; it is retried in the background",
            grant.claim.key
        )))
    });
    if !rest.is_zero() && matches!(released, Released::Released) {
        hold.progress.confirm_rest();
    }
    released
}

/// Withdraws an acquire that was not answered: it may be executed after the release, and would then
/// hold for nobody. Not before the release is confirmed: a withdrawal frees the key without its
/// rest.
pub(super) fn withdraw_unanswered(context: &ManagerContext, hold: &Hold) {
    let origin = &hold.origin;
    if origin.was_in_doubt {
        context.withdraw(origin.grant.claim.clone());
    }
}

/// Releases until the store confirms it, or the TTL has ended the hold.
pub(super) async fn retry_release(context: &ManagerContext, hold: &Hold) {
    release_until_confirmed(context, hold).await;
    withdraw_unanswered(context, hold);
}

async fn release_until_confirmed(context: &ManagerContext, hold: &Hold) {
    let grant = &hold.origin.grant;
    let started = context.clock.stamp();
    let mut pause = context.retry_pause();
    // A renewal may have granted more than the first proof.
    let ttl = grant.proof.ttl.max(grant.claim.ttl);
    while context.clock.stamp().since(&started) < ttl {
        context.clock.sleep(pause).await;
        pause = longer(context, pause);
        match release_once(context, hold).await {
            Released::Unknown(error) if error.is_denied_for_good() => break,
            Released::Unknown(_) => {}
            _ => return,
        }
    }
    tracing::warn!(
        target: "leasehold::manager",
        key = %grant.claim.key,
        purpose = grant.claim.label.purpose(),
        "a release was not confirmed; its ttl ends the hold"
    );
}

/// Withdraws until the store confirms it, or a TTL has passed. A missing right is not waited for:
/// nobody gives it meanwhile. Credentials that change are.
pub(super) async fn retry_withdraw(context: &ManagerContext, withdrawal: Withdrawal) {
    let claim = &withdrawal.claim;
    let started = context.clock.stamp();
    let limit = context.settings.request_timeout;
    let mut pause = context.retry_pause();
    while context.clock.stamp().since(&started) < claim.ttl {
        let withdrawn = context.store.withdraw(claim);
        match context.clock.timeout(limit, withdrawn).await {
            Some(Ok(())) => return,
            Some(Err(error)) if error.is_denied_for_good() => break,
            _ => {}
        }
        context.clock.sleep(pause).await;
        pause = longer(context, pause);
    }
    tracing::warn!(target: "leasehold::manager", key = %claim.key, "an attempt could not be withdrawn; if the store still executes it, it ends after its ttl");
}

/// The pause doubles, up to a request's time-out.
fn longer(context: &ManagerContext, pause: Duration) -> Duration {
    let most = context.settings.request_timeout;
    (2 * pause).min(most).max(context.retry_pause())
}
