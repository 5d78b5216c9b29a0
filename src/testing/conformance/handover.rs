//! Whoever ends a hold grants the key to the next live place in the same step, and wakes only that
//! waiter.

use std::time::Duration;

use futures_util::FutureExt;

use super::case::{Bench, Case, CaseError, CaseResult, broken, cases, ensure, own_ttl, unexpected};
use super::harness::Harness;
use crate::model::key::Key;
use crate::store::{Acquired, Capability, Claim, Hint, LockMode, Queue, Store};

/// The longest handover, at most the claim's TTL.
const HANDOVER_TIME: Duration = Duration::from_secs(1);
/// That of any store.
const LONGEST_HANDOVER: Duration = Duration::from_millis(1_200);
/// As many as delay a waiter noticeably, if each costs a handover.
const DEAD: usize = 8;

cases! {
    a_release_grants_to_the_next_place, hands_over,
        "after a release the key is held for the first waiter, before that one asks again and under the token that it gets";
    a_withdrawal_grants_to_the_next_place, hands_over,
        "after the withdrawal of a hold the key is held for the first waiter, before that one asks again";
    a_handover_becomes_a_hold_for_the_full_ttl, hands_over_by_ttl,
        "a claim that was granted by a handover and asks again is held for the ttl that this answer proves, which is its full ttl";
    a_waiter_that_does_not_ask_costs_the_handover_time, hands_over_by_ttl,
        "a waiter that died just before its turn delays the next one by the handover time, not by its ttl";
    places_that_ended_cost_nothing, hands_over_by_ttl,
        "a release skips all places whose time is over, and grants to the first that lives";
    only_the_next_waiter_is_woken, wakes_one,
        "a release resolves the hint of the first waiter and leaves the others";
    readers_are_served_together, wakes_readers,
        "a release grants to all readers up to the next writer, and wakes these only";
}

fn hands_over(capability: &Capability) -> Option<&'static str> {
    (capability.queue != Queue::Handover)
        .then_some("a release frees the key, and its waiters ask for it")
}

fn hands_over_by_ttl(capability: &Capability) -> Option<&'static str> {
    hands_over(capability).or_else(|| own_ttl(capability))
}

fn wakes_one(capability: &Capability) -> Option<&'static str> {
    hands_over(capability)
        .or_else(|| (!capability.wakes).then_some("the store gives no hints: its callers poll"))
}

fn wakes_readers(capability: &Capability) -> Option<&'static str> {
    wakes_one(capability)
        .or_else(|| (!capability.read_write).then_some("the store has no read and write modes"))
}

/// A scene between a release and the next attempt. If it took as long as a handover it shows
/// nothing: the machine stood still.
pub(super) async fn within_the_handover<H: Harness, T>(
    bench: &Bench<'_, H>,
    scene: impl Future<Output = Result<T, CaseError>>,
) -> Result<T, CaseError> {
    let clock = bench.harness.clock();
    let began = clock.stamp();
    let end = scene.await;
    let took = clock.stamp().since(&began);
    if end.is_err() && took >= HANDOVER_TIME.min(bench.ttl()) * 9 / 10 {
        return Err(CaseError::TooSlow);
    }
    end
}

/// The key is not free, although nobody has asked for it since its last hold ended.
async fn is_handed_over<H: Harness>(bench: &Bench<'_, H>, key: &Key) -> CaseResult {
    let mut once = bench.claim(key)?;
    once.place_ttl = Duration::ZERO;
    match bench.a.acquire(&once).await? {
        Acquired::Busy { .. } => Ok(bench.a.withdraw(&once).await?),
        Acquired::Granted(_) => Err(broken(
            "expected the key to be held for the next waiter, got a grant for a claim without a place",
        )),
        other => Err(unexpected("Busy", &other)),
    }
}

async fn a_release_grants_to_the_next_place<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let next = bench.claim_in(LockMode::Exclusive, &key)?;
    bench.waits(&bench.b, &next).await?;
    let (reported, held) = within_the_handover(bench, async {
        bench.release(&bench.a, &held).await?;
        is_handed_over(bench, &key).await?;
        let reported = bench.a.inspect(&key).await?.and_then(|info| info.token);
        Ok((reported, bench.granted(&bench.b, &next).await?))
    })
    .await?;
    ensure(
        reported.is_none_or(|token| token == held.grant.token),
        || {
            format!(
                "handed over under {reported:?}, then granted under {}",
                held.grant.token
            )
        },
    )?;
    bench.release(&bench.b, &held).await
}

async fn a_withdrawal_grants_to_the_next_place<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let next = bench.claim_in(LockMode::Exclusive, &key)?;
    bench.waits(&bench.b, &next).await?;
    let held = within_the_handover(bench, async {
        bench.a.withdraw(&held.grant.claim).await?;
        is_handed_over(bench, &key).await?;
        bench.granted(&bench.b, &next).await
    })
    .await?;
    bench.release(&bench.b, &held).await
}

async fn a_handover_becomes_a_hold_for_the_full_ttl<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let client = bench.harness.client().await?;
    let next = bench.claim_for(&key, bench.ttl() * 2)?;
    bench.waits(&client, &next).await?;
    bench.release(&bench.a, &held).await?;
    let held = bench.granted(&client, &next).await?;
    let (asked, proven) = (next.ttl, held.grant.proof.ttl);
    ensure(proven >= asked * 9 / 10, || {
        format!("asked for {asked:?}, and the handover became a hold for {proven:?}")
    })?;
    bench.lasts_as_proven(client, &held).await
}

async fn a_waiter_that_does_not_ask_costs_the_handover_time<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    let key = bench.key()?;
    let handover = LONGEST_HANDOVER;
    let long = |claim: &mut Claim| claim.place_ttl = bench.ttl() * 4 + HANDOVER_TIME * 2;
    let dying = bench.harness.client().await?;
    let (mut dead, mut next) = (bench.claim(&key)?, bench.claim(&key)?);
    long(&mut dead);
    long(&mut next);
    let held = bench.hold(&bench.a, &key).await?;
    bench.waits(&dying, &dead).await?;
    bench.waits(&bench.b, &next).await?;
    bench.harness.crash(dying).await;
    bench.release(&bench.a, &held).await?;
    bench.harness.pass(handover + handover / 6).await;
    let held = bench.granted(&bench.b, &next).await?;
    bench.release(&bench.b, &held).await
}

async fn places_that_ended_cost_nothing<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let mut held = bench.hold(&bench.a, &key).await?;
    let dying = bench.harness.client().await?;
    for _ in 0..DEAD {
        bench.waits(&dying, &bench.claim(&key)?).await?;
    }
    let last = bench.claim(&key)?;
    bench.waits(&bench.b, &last).await?;
    bench.harness.crash(dying).await;
    for _ in 0..4 {
        bench.harness.pass(bench.ttl() / 3).await;
        bench.renew(&bench.a, &mut held).await?;
        bench.waits(&bench.b, &last).await?;
    }
    bench.release(&bench.a, &held).await?;
    let held = bench.granted(&bench.b, &last).await?;
    bench.release(&bench.b, &held).await
}

fn still_waits(hint: &mut Hint) -> CaseResult {
    match hint.now_or_never() {
        None => Ok(()),
        Some(_) => Err(broken("a waiter that is not next was woken")),
    }
}

async fn only_the_next_waiter_is_woken<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let mut held = bench.hold(&bench.a, &key).await?;
    let claims = [(); 3].map(|()| bench.claim_in(LockMode::Exclusive, &key));
    let mut waiting = Vec::new();
    for claim in claims {
        let claim = claim?;
        bench.waits(&bench.b, &claim).await?;
        waiting.push((bench.b.subscribe(&claim).await?, claim));
    }
    waiting.reverse();
    let mut holder = &bench.a;
    while let Some((hint, next)) = waiting.pop() {
        held = within_the_handover(bench, async {
            bench.release(holder, &held).await?;
            bench.resolves(hint).await?;
            for (hint, _) in &mut waiting {
                still_waits(hint)?;
            }
            bench.served_soon(&bench.b, &next).await
        })
        .await?;
        holder = &bench.b;
    }
    bench.release(holder, &held).await
}

async fn readers_are_served_together<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let mut waiting = Vec::new();
    for mode in [
        LockMode::Read,
        LockMode::Read,
        LockMode::Write,
        LockMode::Read,
    ] {
        let claim = bench.claim_in(mode, &key)?;
        bench.waits(&bench.b, &claim).await?;
        waiting.push((bench.b.subscribe(&claim).await?, claim));
    }
    let later = waiting.split_off(2);
    let (readers, others) = within_the_handover(bench, async {
        bench.release(&bench.a, &held).await?;
        let mut readers = Vec::new();
        for (hint, claim) in waiting {
            bench.resolves(hint).await?;
            readers.push(bench.served_soon(&bench.b, &claim).await?);
        }
        let mut others = Vec::new();
        for (mut hint, claim) in later {
            still_waits(&mut hint)?;
            others.push(claim);
        }
        Ok((readers, others))
    })
    .await?;
    for claim in &others {
        bench.b.withdraw(claim).await?;
    }
    for reader in &readers {
        bench.release(&bench.b, reader).await?;
    }
    Ok(())
}
