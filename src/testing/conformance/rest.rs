//! A release can let the key rest.

use std::time::Duration;

use super::case::{Bench, Case, CaseError, CaseResult, TimedGrant, cases, ensure, unexpected};
use super::harness::Harness;
use super::wake_up::watcher;
use crate::clock::Stamp;
use crate::model::key::Key;
use crate::store::{Capability, LockInfo, Released, Revoke, Store};

cases! {
    a_resting_key_is_granted_to_nobody, rests,
        "after a release with a rest nobody is granted the key before the rest is over, which may be longer than the ttl, and somebody is then";
    a_rest_is_shown, rests,
        "the inspection of a resting key reports the rest, what is left of it, and no holder";
    a_rest_is_not_handed_over, rests,
        "a claim that waits when a rest begins is served when it is over, and not before";
    only_the_holder_lets_a_key_rest, rests,
        "a rest of another owner token, and one of a claim that was released, are answered with already gone and change nothing";
    a_rest_wakes_who_waits, rests_and_wakes,
        "the hints of claims with and without a place resolve when a rest begins";
    a_rest_is_revoked, rests_and_revokes,
        "a revocation with now ends a rest";
}

fn rests(capability: &Capability) -> Option<&'static str> {
    (!capability.rests).then_some("the store lets no key rest")
}

fn rests_and_revokes(capability: &Capability) -> Option<&'static str> {
    rests(capability).or((!capability.revokes).then_some("the store takes no lock away"))
}

fn rests_and_wakes(capability: &Capability) -> Option<&'static str> {
    rests(capability)
        .or((!capability.wakes).then_some("the store gives no hints: its callers poll"))
}

/// A key that rests, and since when at the earliest.
struct Resting {
    key: Key,
    rest: Duration,
    since: Stamp,
}

impl Resting {
    /// Client `a` holds a key, and releases it with a rest of two TTLs.
    async fn begin<H: Harness>(bench: &Bench<'_, H>) -> Result<Self, CaseError> {
        let key = bench.key()?;
        let held = bench.hold(&bench.a, &key).await?;
        Self::after(bench, &held).await
    }

    async fn after<H: Harness>(bench: &Bench<'_, H>, held: &TimedGrant) -> Result<Self, CaseError> {
        let (rest, since) = (2 * bench.ttl(), bench.harness.clock().stamp());
        match bench.a.rest(&held.grant, rest).await {
            Released::Released => {}
            other => return Err(unexpected("Released", &other)),
        }
        let key = held.grant.claim.key.clone();
        Ok(Self { key, rest, since })
    }

    /// What was seen was seen during the rest. Otherwise the case proves nothing: the machine was
    /// too slow.
    fn lasts<H: Harness>(&self, bench: &Bench<'_, H>) -> CaseResult {
        if bench.harness.clock().stamp().since(&self.since) < self.rest - self.rest / 12 {
            return Ok(());
        }
        Err(CaseError::TooSlow)
    }

    /// Somebody was granted the key just now.
    fn is_over<H: Harness>(&self, bench: &Bench<'_, H>) -> CaseResult {
        let passed = bench.harness.clock().stamp().since(&self.since);
        ensure(passed >= self.rest - self.rest / 12, || {
            format!("granted after {passed:?} of a rest of {:?}", self.rest)
        })
    }

    async fn info<H: Harness>(&self, bench: &Bench<'_, H>) -> Result<LockInfo, CaseError> {
        let info = bench.b.inspect(&self.key).await?;
        self.lasts(bench)?;
        info.ok_or_else(|| unexpected("a resting key", "a free one"))
    }
}

async fn a_resting_key_is_granted_to_nobody<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let resting = Resting::begin(bench).await?;
    for client in [&bench.a, &bench.b] {
        let busy = bench.busy(client, &resting.key).await;
        resting.lasts(bench)?;
        busy?;
    }
    let next = bench.granted_soon(&bench.b, &resting.key).await?;
    resting.is_over(bench)?;
    bench.release(&bench.b, &next).await?;
    let next = bench.hold(&bench.a, &resting.key).await?;
    bench.release(&bench.a, &next).await
}

async fn a_rest_is_shown<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let resting = Resting::begin(bench).await?;
    let info = resting.info(bench).await?;
    let is_shown = info.is_resting && info.holders == 0 && info.label.is_none();
    ensure(is_shown, || format!("expected a rest, got {info:?}"))?;
    let left = info.remaining.unwrap_or_default();
    ensure(!left.is_zero() && left <= resting.rest, || {
        format!("of a rest of {:?} there is left {left:?}", resting.rest)
    })?;
    let listed = bench.b.list(resting.key.as_str()).await?;
    resting.lasts(bench)?;
    ensure(listed.iter().any(|info| info.is_resting), || {
        format!("expected a rest in the list, got {listed:?}")
    })
}

async fn a_rest_is_not_handed_over<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let waiting = bench.claim_for(&key, 6 * bench.ttl())?;
    let waits = bench.waits(&bench.b, &waiting).await;
    bench.still_fresh(&held)?;
    waits?;
    let resting = Resting::after(bench, &held).await?;
    let waits = bench.waits(&bench.b, &waiting).await;
    let info = resting.info(bench).await?;
    waits?;
    ensure(info.holders == 0, || format!("handed over: {info:?}"))?;
    let next = bench.served_soon(&bench.b, &waiting).await?;
    resting.is_over(bench)?;
    bench.release(&bench.b, &next).await
}

async fn a_rest_wakes_who_waits<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let waiting = bench.claim_for(&key, 6 * bench.ttl())?;
    let watching = watcher(bench, &key)?;
    let waits = bench.waits(&bench.b, &waiting).await;
    let hints = [
        bench.b.subscribe(&waiting).await?,
        bench.b.subscribe(&watching).await?,
    ];
    bench.still_fresh(&held)?;
    waits?;
    // The end of the rest is no reason to wake anybody meanwhile.
    match bench.a.rest(&held.grant, 100 * bench.ttl()).await {
        Released::Released => {}
        other => return Err(unexpected("Released", &other)),
    }
    for hint in hints {
        bench.resolves(hint).await?;
    }
    bench.b.withdraw(&waiting).await?;
    Ok(())
}

async fn only_the_holder_lets_a_key_rest<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let forged = bench.forged(&held.grant)?;
    let refused = bench.b.rest(&forged, bench.ttl()).await;
    let busy = bench.busy(&bench.b, &key).await;
    bench.still_fresh(&held)?;
    busy?;
    bench.release(&bench.a, &held).await?;
    let late = bench.a.rest(&held.grant, bench.ttl()).await;
    for answer in [refused, late] {
        if !matches!(answer, Released::AlreadyGone) {
            return Err(unexpected("AlreadyGone", &answer));
        }
    }
    let next = bench.hold(&bench.b, &key).await?;
    bench.release(&bench.b, &next).await
}

async fn a_rest_is_revoked<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let resting = Resting::begin(bench).await?;
    let _ = bench.b.revoke(&resting.key, Revoke::Now).await?;
    let next = bench.hold(&bench.b, &resting.key).await?;
    bench.release(&bench.b, &next).await
}
