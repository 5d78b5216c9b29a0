//! What an operator took away does not come back.

use super::case::{Bench, Case, CaseError, CaseResult, TimedGrant, cases, ensure, unexpected};
use super::harness::Harness;
use crate::model::error::ErrorKind;
use crate::model::key::Key;
use crate::store::{Acquired, Capability, Revoke, Revoked, Store};

cases! {
    a_revoked_hold_is_gone, revokes,
        "a hold that was revoked is not renewed, not released, and its claim is not granted again";
    a_claim_that_learned_of_its_revocation_is_invalid, revokes,
        "a claim of any kind that was revoked, and whose renewal found that out, is invalid when it asks again: not busy, not granted";
    a_claim_that_asks_again_gets_no_revoked_hold_back, revokes,
        "a claim of any kind that was revoked, and that asks again before anybody reported it, is invalid, or is treated as a new one";
    the_next_enters_after_the_old_ttl, revokes,
        "after a revocation nobody is granted the key before the old hold's time is over, and somebody is then";
    a_key_revoked_now_is_free, revokes,
        "after a revocation with now the next claim is granted at once, and the old one is not";
    a_key_that_a_revocation_bars_is_freed_by_another, revokes,
        "a revocation with now frees a key that an earlier revocation bars, and says that nobody holds it";
    a_free_key_is_not_revoked, revokes,
        "the revocation of a key that nobody holds says so, and leaves it free";
}

fn revokes(capability: &Capability) -> Option<&'static str> {
    (!capability.revokes).then_some("the store takes no lock away")
}

/// Revokes through the client that does not hold, and says how long the key is barred.
async fn revoked<H: Harness>(
    bench: &Bench<'_, H>,
    key: &Key,
    how: Revoke,
) -> Result<std::time::Duration, CaseError> {
    match bench.b.revoke(key, how).await? {
        Revoked::Revoked { free_in } => Ok(free_in),
        other => Err(unexpected("Revoked", &other)),
    }
}

async fn is_gone<H: Harness>(bench: &Bench<'_, H>, held: &TimedGrant) -> CaseResult {
    bench.not_renewed(&bench.a, &held.grant).await?;
    bench.not_released(&bench.a, &held.grant).await?;
    match bench.a.acquire(&held.grant.claim).await {
        Ok(granted @ Acquired::Granted(_)) => Err(unexpected("a refusal", &granted)),
        _ => Ok(()),
    }
}

async fn a_revoked_hold_is_gone<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    for how in [Revoke::AfterTtl, Revoke::Now] {
        let key = bench.key()?;
        let held = bench.hold(&bench.a, &key).await?;
        let _ = revoked(bench, &key, how).await?;
        is_gone(bench, &held).await?;
    }
    Ok(())
}

/// Whoever repeats a claim because its answer was lost has to know whether to make a new one, so no
/// other error will do.
async fn a_claim_that_learned_of_its_revocation_is_invalid<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    for how in [Revoke::AfterTtl, Revoke::Now] {
        for claim in bench.claims_of_every_kind()? {
            let held = bench.granted(&bench.a, &claim).await?;
            let _ = revoked(bench, &claim.key, how).await?;
            bench.not_renewed(&bench.a, &held.grant).await?;
            match bench.a.acquire(&claim).await {
                Err(e) if e.kind() == ErrorKind::Invalid => {}
                other => return Err(unexpected("Invalid", &other)),
            }
        }
    }
    Ok(())
}

async fn a_claim_that_asks_again_gets_no_revoked_hold_back<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    for how in [Revoke::AfterTtl, Revoke::Now] {
        for claim in bench.claims_of_every_kind()? {
            let held = bench.granted(&bench.a, &claim).await?;
            let _ = revoked(bench, &claim.key, how).await?;
            let answer = bench.a.acquire(&claim).await;
            let is_barred = how == Revoke::AfterTtl && bench.still_fresh(&held).is_ok();
            match answer {
                Err(e) if e.kind() == ErrorKind::Invalid => {}
                Ok(Acquired::Busy { .. }) if how == Revoke::AfterTtl => {}
                Ok(Acquired::Granted(again)) if !is_barred => {
                    ensure(!bench.fences() || again.token > held.grant.token, || {
                        format!("token {} came back after a revocation", again.token)
                    })?;
                }
                other => return Err(unexpected("Invalid, or the answer to a new claim", &other)),
            }
            bench.a.withdraw(&claim).await?;
        }
    }
    Ok(())
}

async fn the_next_enters_after_the_old_ttl<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let free_in = revoked(bench, &key, Revoke::AfterTtl).await?;
    ensure(free_in <= bench.ttl().max(held.grant.proof.ttl), || {
        format!("barred for longer than the ttl: {free_in:?}")
    })?;
    let next = bench.granted_soon(&bench.b, &key).await?;
    let answered = bench.harness.clock().stamp().since(&held.counts_from);
    let (ttl, drift) = (held.grant.proof.ttl, held.grant.proof.ttl / 12);
    ensure(answered >= ttl - drift, || {
        format!("granted to another after {answered:?} of a proven ttl of {ttl:?}")
    })?;
    bench.release(&bench.b, &next).await
}

async fn a_key_revoked_now_is_free<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let free_in = revoked(bench, &key, Revoke::Now).await?;
    ensure(free_in.is_zero(), || format!("still barred: {free_in:?}"))?;
    let next = bench.hold(&bench.b, &key).await?;
    is_gone(bench, &held).await?;
    bench.release(&bench.b, &next).await
}

/// Both revocations are by operators, and the later one knows of the bar: it is there to end it.
async fn a_key_that_a_revocation_bars_is_freed_by_another<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    revoked(bench, &key, Revoke::AfterTtl).await?;
    match bench.b.revoke(&key, Revoke::Now).await? {
        Revoked::NotHeld => {}
        other => return Err(unexpected("NotHeld", &other)),
    }
    let next = bench.hold(&bench.b, &key).await?;
    is_gone(bench, &held).await?;
    bench.release(&bench.b, &next).await
}

async fn a_free_key_is_not_revoked<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    for how in [Revoke::AfterTtl, Revoke::Now] {
        match bench.b.revoke(&key, how).await? {
            Revoked::NotHeld => {}
            other => return Err(unexpected("NotHeld", &other)),
        }
    }
    let held = bench.hold(&bench.a, &key).await?;
    bench.release(&bench.a, &held).await
}
