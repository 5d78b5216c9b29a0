//! Claims that queue are served in the order in which they came.

use super::case::{Bench, Case, CaseResult, cases, ensure, own_ttl};
use super::handover::within_the_handover;
use super::harness::Harness;
use super::inspection::reports_holder;
use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::store::{Capability, Claim, LockMode, Queue, Store, Waiter};

/// More than fit into the time that a claim is waited for, if each of them cost a TTL.
const DEAD: usize = 8;

cases! {
    who_came_first_is_served_first, queues,
        "claims are granted in the order in which they first asked, whoever asks again first, whichever client asks";
    a_withdrawn_waiter_gives_up_its_place, queues,
        "a claim behind a withdrawn claim moves up";
    dead_waiters_are_skipped_all_at_once, queues,
        "many waiters that died together do not each cost those behind them a ttl";
    who_asks_again_keeps_its_place, queues_by_ttl,
        "a claim that asks again in time keeps its place for longer than a place lasts";
    who_has_no_place_comes_last, beside_the_queue,
        "a claim without a place is not granted while another one waits";
    who_asks_once_takes_no_place, queues,
        "a claim whose place lasts for no time delays nobody; where every claim queues, once it is withdrawn";
    the_queue_is_reported, queues,
        "the length of the queue that is reported is the number of waiters";
    all_waiters_are_named, names_waiters,
        "those that wait are reported in the order of the queue, each with its label and mode, and not after they withdrew";
}

fn queues(capability: &Capability) -> Option<&'static str> {
    (!capability.is_fair()).then_some("the store keeps no queue")
}

fn names_waiters(capability: &Capability) -> Option<&'static str> {
    queues(capability).or_else(|| reports_holder(capability))
}

fn queues_by_ttl(capability: &Capability) -> Option<&'static str> {
    queues(capability).or_else(|| own_ttl(capability))
}

fn beside_the_queue(capability: &Capability) -> Option<&'static str> {
    queues(capability).or_else(|| {
        let all_queue = capability.queue == Queue::Places;
        all_queue.then_some("every claim queues in this store, even one that is asked only once")
    })
}

fn fair<H: Harness>(bench: &Bench<'_, H>, key: &Key, count: usize) -> Result<Vec<Claim>, Error> {
    (0..count)
        .map(|_| bench.claim_in(LockMode::Exclusive, key))
        .collect()
}

async fn who_came_first_is_served_first<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let clients = [&bench.a, &bench.b];
    let mut held = bench.hold(&bench.a, &key).await?;
    let mut holder = &bench.a;
    let claims = fair(bench, &key, 5)?;
    for (n, claim) in claims.iter().enumerate() {
        bench.waits(clients[n % 2], claim).await?;
    }
    for first in 0..claims.len() {
        held = within_the_handover(bench, async {
            bench.release(holder, &held).await?;
            for (n, claim) in claims.iter().enumerate().skip(first + 1).rev() {
                bench.waits(clients[n % 2], claim).await?;
            }
            bench.granted(clients[first % 2], &claims[first]).await
        })
        .await?;
        holder = clients[first % 2];
    }
    bench.release(holder, &held).await
}

async fn a_withdrawn_waiter_gives_up_its_place<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let claims = fair(bench, &key, 3)?;
    for claim in &claims {
        bench.waits(&bench.b, claim).await?;
    }
    bench.b.withdraw(&claims[0]).await?;
    within_the_handover(bench, async {
        bench.release(&bench.a, &held).await?;
        bench.waits(&bench.b, &claims[2]).await
    })
    .await?;
    bench.b.withdraw(&claims[1]).await?;
    let held = bench.granted(&bench.b, &claims[2]).await?;
    bench.release(&bench.b, &held).await
}

async fn dead_waiters_are_skipped_all_at_once<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let dying = bench.harness.client().await?;
    for claim in &fair(bench, &key, DEAD)? {
        bench.waits(&dying, claim).await?;
    }
    let last = bench.claim_in(LockMode::Exclusive, &key)?;
    bench.waits(&bench.b, &last).await?;
    bench.harness.crash(dying).await;
    bench.release(&bench.a, &held).await?;
    let held = bench.served_soon(&bench.b, &last).await?;
    bench.release(&bench.b, &held).await
}

async fn who_asks_again_keeps_its_place<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let mut held = bench.hold(&bench.a, &key).await?;
    let claims = fair(bench, &key, 2)?;
    for _ in 0..6 {
        for claim in &claims {
            bench.waits(&bench.b, claim).await?;
        }
        bench.harness.pass(bench.ttl() / 3).await;
        bench.renew(&bench.a, &mut held).await?;
    }
    let held = within_the_handover(bench, async {
        bench.release(&bench.a, &held).await?;
        bench.waits(&bench.b, &claims[1]).await?;
        bench.granted(&bench.b, &claims[0]).await
    })
    .await?;
    bench.release(&bench.b, &held).await?;
    let held = bench.granted(&bench.b, &claims[1]).await?;
    bench.release(&bench.b, &held).await
}

async fn who_has_no_place_comes_last<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let waiting = bench.claim_in(LockMode::Exclusive, &key)?;
    bench.waits(&bench.b, &waiting).await?;
    let mut once = bench.claim(&key)?;
    once.place_ttl = std::time::Duration::ZERO;
    let held = within_the_handover(bench, async {
        bench.release(&bench.a, &held).await?;
        bench.waits(&bench.a, &once).await?;
        bench.a.withdraw(&once).await?;
        bench.granted(&bench.b, &waiting).await
    })
    .await?;
    bench.release(&bench.b, &held).await?;
    let held = bench.hold(&bench.a, &key).await?;
    bench.release(&bench.a, &held).await
}

async fn who_asks_once_takes_no_place<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let mut once = bench.claim_in(LockMode::Exclusive, &key)?;
    once.place_ttl = std::time::Duration::ZERO;
    bench.waits(&bench.b, &once).await?;
    let capability = bench.b.capability();
    if capability.queue == Queue::Places {
        bench.b.withdraw(&once).await?;
    }
    bench.release(&bench.a, &held).await?;
    let held = bench.hold(&bench.a, &key).await?;
    bench.release(&bench.a, &held).await
}

async fn the_queue_is_reported<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let claims = fair(bench, &key, 2)?;
    for claim in &claims {
        bench.waits(&bench.b, claim).await?;
    }
    let reported = bench.a.inspect(&key).await?.and_then(|r| r.queue);
    bench.still_fresh(&held)?;
    ensure(reported.is_none_or(|queue| queue == 2), || {
        format!("expected a queue of 2, got {reported:?}")
    })?;
    for claim in &claims {
        bench.b.withdraw(claim).await?;
    }
    bench.release(&bench.a, &held).await
}

async fn all_waiters_are_named<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let modes = match bench.a.capability().read_write {
        true => [LockMode::Write, LockMode::Read, LockMode::Exclusive],
        false => [LockMode::Exclusive; 3],
    };
    let mut waiting = Vec::new();
    for (n, mode) in modes.into_iter().enumerate() {
        let mut claim = bench.claim_in(mode, &key)?;
        claim.label = Label::parse(&format!("waiter {n}"))?.with_purpose("to wait")?;
        bench.waits([&bench.a, &bench.b][n % 2], &claim).await?;
        waiting.push(claim);
    }
    for gone in 0..2 {
        let record = bench.b.inspect(&key).await?;
        bench.still_fresh(&held)?;
        let (holders, named) = record.map(|r| (r.labels, r.waiters)).unwrap_or_default();
        let holder = vec![held.grant.claim.label.clone()];
        let expected: Vec<_> = (waiting.iter())
            .map(|claim| Waiter::new(Some(claim.label.clone()), Some(claim.mode)))
            .collect();
        ensure((&holders, &named) == (&holder, &expected), || {
            format!("expected {holder:?} and {expected:?}, got {holders:?} and {named:?}")
        })?;
        if gone == 0 {
            let first = waiting.remove(0);
            bench.a.withdraw(&first).await?;
        }
    }
    for (n, claim) in waiting.iter().enumerate() {
        [&bench.b, &bench.a][n % 2].withdraw(claim).await?;
    }
    bench.release(&bench.a, &held).await
}
