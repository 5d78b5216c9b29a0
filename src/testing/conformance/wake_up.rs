//! The end of a hold wakes the waiters. A hint may be late or early; the suite can only demand that
//! it arrives in the plain case.

use std::time::Duration;

use super::case::{Bench, Case, CaseError, CaseResult, cases};
use super::harness::Harness;
use crate::model::key::Key;
use crate::store::{Capability, Claim, Store};

cases! {
    a_release_wakes_who_waits, wakes,
        "the hint of a claim that subscribed while the key was held resolves after the release";
    a_withdrawal_wakes_who_waits, wakes,
        "the hint resolves after the holder's claim is withdrawn";
    each_of_many_wakes, wakes,
        "a hint that another waiter dropped does not silence the others";
}

fn wakes(capability: &Capability) -> Option<&'static str> {
    (!capability.wakes).then_some("the store gives no hints: its callers poll")
}

/// A claim that takes no place: one that has a place may be woken only when it is called.
pub(super) fn watcher<H: Harness>(bench: &Bench<'_, H>, key: &Key) -> Result<Claim, CaseError> {
    let mut claim = bench.claim(key)?;
    claim.place_ttl = Duration::ZERO;
    Ok(claim)
}

async fn a_release_wakes_who_waits<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let hint = bench.b.subscribe(&watcher(bench, &key)?).await?;
    bench.release(&bench.a, &held).await?;
    bench.resolves(hint).await
}

async fn a_withdrawal_wakes_who_waits<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let hint = bench.b.subscribe(&watcher(bench, &key)?).await?;
    bench.a.withdraw(&held.grant.claim).await?;
    bench.resolves(hint).await
}

async fn each_of_many_wakes<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let first = bench.b.subscribe(&watcher(bench, &key)?).await?;
    let dropped = bench.b.subscribe(&watcher(bench, &key)?).await?;
    drop(dropped);
    let last = bench.a.subscribe(&watcher(bench, &key)?).await?;
    bench.release(&bench.a, &held).await?;
    let next = bench.hold(&bench.b, &key).await?;
    bench.release(&bench.b, &next).await?;
    // A waiter in a fair queue may be woken only by the end that concerns it: there has been one
    // for each.
    bench.resolves(first).await?;
    bench.resolves(last).await
}
