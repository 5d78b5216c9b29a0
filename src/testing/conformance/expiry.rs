//! A grant ends with its TTL, and not before.

use std::time::Duration;

use futures_util::future::try_join_all;

use super::case::{Bench, Case, CaseResult, always, cases, ensure, own_ttl};
use super::harness::Harness;
use crate::store::{Acquired, Store};

cases! {
    a_dead_clients_hold_ends_with_its_ttl_and_not_before, always,
        "when a client dies, the next claim is granted, after the ttl that was proven and not before";
    a_hold_outlives_the_close_of_its_client, always,
        "a hold that was not released keeps the others out for its ttl after its client was closed, or dropped";
    a_hold_that_is_asked_for_again_lasts_as_proven, always,
        "a claim that holds and asks again is held for the ttl that the second answer proves";
    a_grant_proves_no_more_than_was_asked, own_ttl,
        "the granted ttl is above zero and not longer than the one that was asked for";
    each_claim_has_its_own_ttl, own_ttl,
        "a short and a long ttl of one client end each at its own time";
    a_lapsed_claim_that_asks_again_is_a_new_grant, own_ttl,
        "a claim whose hold ran out is not given that hold back, but at most a new one";
}

async fn a_dead_clients_hold_ends_with_its_ttl_and_not_before<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    let client = bench.harness.client().await?;
    let held = bench.hold(&client, &bench.key()?).await?;
    bench.lasts_as_proven(client, &held).await
}

/// What was not released may have an effect on its way. All kinds of claims at once, so that a
/// session is waited for once.
async fn a_hold_outlives_the_close_of_its_client<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    for is_closed in [true, false] {
        let client = bench.harness.client().await?;
        let mut holds = Vec::new();
        for claim in bench.claims_of_every_kind()? {
            holds.push(bench.granted(&client, &claim).await?);
        }
        if is_closed {
            client.close().await?;
        }
        drop(client);
        try_join_all(holds.iter().map(|held| bench.ends_as_proven(held))).await?;
    }
    Ok(())
}

async fn a_hold_that_is_asked_for_again_lasts_as_proven<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    for claim in bench.claims_of_every_kind()? {
        let client = bench.harness.client().await?;
        let first = bench.granted(&client, &claim).await?;
        bench.harness.pass(bench.ttl() / 2).await;
        bench.still_fresh(&first)?;
        let again = bench.granted(&client, &claim).await?;
        bench.lasts_as_proven(client, &again).await?;
    }
    Ok(())
}

async fn a_grant_proves_no_more_than_was_asked<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let held = bench.hold(&bench.a, &bench.key()?).await?;
    let (asked, proven) = (bench.ttl(), held.grant.proof.ttl);
    ensure(!proven.is_zero() && proven <= asked, || {
        format!("asked for {asked:?}, got proof for {proven:?}")
    })?;
    bench.release(&bench.a, &held).await
}

async fn each_claim_has_its_own_ttl<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let (short, long) = (bench.key()?, bench.key()?);
    let long_claim = bench.claim_for(&long, bench.ttl() * 4)?;
    let kept = bench.granted(&bench.a, &long_claim).await?;
    let _lapses = bench.hold(&bench.a, &short).await?;
    bench.harness.pass(bench.ttl() + bench.ttl() / 6).await;
    let taken = bench.hold_lapsed(&bench.b, &short).await?;
    let busy = bench.busy(&bench.b, &long).await;
    bench.still_fresh(&kept)?;
    busy?;
    bench.release(&bench.b, &taken).await?;
    bench.release(&bench.a, &kept).await
}

async fn a_lapsed_claim_that_asks_again_is_a_new_grant<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    let key = bench.key()?;
    let claim = bench.claim(&key)?;
    let first = bench.granted(&bench.a, &claim).await?;
    bench.harness.pass(bench.ttl() + bench.ttl() / 6).await;
    let between = bench.hold_lapsed(&bench.b, &key).await?;
    bench.release(&bench.b, &between).await?;
    bench.harness.pass(Duration::from_millis(1)).await;
    let second = bench.a.acquire(&claim).await?;
    if let Acquired::Granted(second) = second {
        let fences = bench.fences();
        ensure(!fences || second.token > between.grant.token, || {
            format!(
                "token {} came back after {}",
                first.grant.token, between.grant.token
            )
        })?;
        drop(bench.a.release(&second).await);
    }
    Ok(())
}
