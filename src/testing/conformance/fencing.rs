//! Tokens grow (I8).

use super::case::{Bench, Case, CaseResult, cases, ensure};
use super::harness::Harness;
use crate::model::token::FencingToken;
use crate::store::{Capability, Fencing, Store};

cases! {
    tokens_grow_over_releases, fences,
        "each grant of a key has a larger token than the one before, whichever client asks";
    tokens_grow_over_a_dead_client, fences,
        "the token after a hold that ran out is larger than its token";
    tokens_grow_over_a_withdrawal, fences,
        "the token after a grant that was withdrawn is larger than its token";
}

fn fences(capability: &Capability) -> Option<&'static str> {
    (capability.fencing == Fencing::None).then_some("the store does not promise growing tokens")
}

fn grew(before: FencingToken, after: FencingToken) -> CaseResult {
    ensure(after > before, || {
        format!("expected a token above {before}, got {after}")
    })
}

async fn tokens_grow_over_releases<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let mut last = None;
    for round in 0..10 {
        let store = [&bench.a, &bench.b][round % 2];
        let held = bench.hold(store, &key).await?;
        bench.release(store, &held).await?;
        if let Some(last) = last {
            grew(last, held.grant.token)?;
        }
        last = Some(held.grant.token);
    }
    Ok(())
}

async fn tokens_grow_over_a_dead_client<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let client = bench.harness.client().await?;
    let lapsed = bench.hold(&client, &key).await?;
    bench.harness.crash(client).await;
    let next = bench.granted_soon(&bench.b, &key).await?;
    grew(lapsed.grant.token, next.grant.token)?;
    bench.release(&bench.b, &next).await
}

async fn tokens_grow_over_a_withdrawal<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let claim = bench.claim(&key)?;
    let withdrawn = bench.granted(&bench.a, &claim).await?;
    bench.a.withdraw(&claim).await?;
    let next = bench.granted_soon(&bench.b, &key).await?;
    grew(withdrawn.grant.token, next.grant.token)?;
    bench.release(&bench.b, &next).await
}
