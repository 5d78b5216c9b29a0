//! A renewal compares and extends; it never creates.

use super::case::{Bench, Case, CaseResult, always, cases, own_ttl, unexpected};
use super::harness::Harness;
use crate::store::{Renewed, Store};

cases! {
    a_renewed_hold_outlives_its_ttl, always,
        "a hold that is renewed in time is still held when three ttls have passed";
    a_renewed_hold_lasts_as_proven, always,
        "when a client dies after a renewal, the next claim is granted after the ttl that the renewal proved, not before";
    a_released_hold_is_not_renewed, always,
        "a renewal after the release is answered with gone, and the key stays free";
    a_lapsed_hold_is_not_renewed, own_ttl,
        "a renewal after the ttl is answered with gone, and the key stays free";
    another_claims_hold_is_not_renewed, always,
        "a renewal with another owner token is answered with gone";
    another_claims_renewal_does_not_extend, own_ttl,
        "a renewal with another owner token leaves the holder's time as it was";
    a_batch_is_answered_in_its_order, always,
        "each grant of a batch gets its own answer, in the order of the batch";
    an_empty_batch_has_no_answers, always,
        "a batch of nothing is answered with nothing";
}

async fn a_renewed_hold_outlives_its_ttl<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let mut held = bench.hold(&bench.a, &key).await?;
    for _ in 0..9 {
        bench.harness.pass(bench.ttl() / 3).await;
        bench.renew(&bench.a, &mut held).await?;
        let busy = bench.busy(&bench.b, &key).await;
        bench.still_fresh(&held)?;
        busy?;
    }
    bench.release(&bench.a, &held).await
}

async fn a_renewed_hold_lasts_as_proven<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    for claim in bench.claims_of_every_kind()? {
        let client = bench.harness.client().await?;
        let mut held = bench.granted(&client, &claim).await?;
        bench.harness.pass(bench.ttl() / 2).await;
        bench.renew(&client, &mut held).await?;
        bench.lasts_as_proven(client, &held).await?;
    }
    Ok(())
}

async fn a_released_hold_is_not_renewed<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    bench.release(&bench.a, &held).await?;
    bench.not_renewed(&bench.a, &held.grant).await?;
    let next = bench.hold(&bench.b, &key).await?;
    bench.release(&bench.b, &next).await
}

async fn a_lapsed_hold_is_not_renewed<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    bench.harness.pass(bench.ttl() + bench.ttl() / 6).await;
    bench.not_renewed(&bench.a, &held.grant).await?;
    let next = bench.hold_lapsed(&bench.b, &key).await?;
    bench.release(&bench.b, &next).await
}

async fn another_claims_hold_is_not_renewed<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let held = bench.hold(&bench.a, &bench.key()?).await?;
    let forged = bench.forged(&held.grant)?;
    bench.not_renewed(&bench.a, &forged).await?;
    bench.not_renewed(&bench.b, &forged).await?;
    bench.release(&bench.a, &held).await
}

async fn another_claims_renewal_does_not_extend<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let forged = bench.forged(&held.grant)?;
    bench.harness.pass(bench.ttl() / 2).await;
    bench.not_renewed(&bench.b, &forged).await?;
    bench.harness.pass(bench.ttl() * 2 / 3).await;
    let next = bench.hold_lapsed(&bench.b, &key).await?;
    bench.release(&bench.b, &next).await
}

async fn a_batch_is_answered_in_its_order<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let first = bench.hold(&bench.a, &bench.key()?).await?;
    let gone = bench.hold(&bench.a, &bench.key()?).await?;
    let last = bench.hold(&bench.a, &bench.key()?).await?;
    bench.release(&bench.a, &gone).await?;
    let batch = [&first, &gone, &last].map(|held| held.grant.clone());
    let answers = bench.a.renew(&batch).await;
    bench.still_fresh(&first)?;
    match answers.as_slice() {
        [Renewed::Extended(_), Renewed::Gone, Renewed::Extended(_)] => {}
        other => return Err(unexpected("[Extended, Gone, Extended]", &other)),
    }
    bench.release(&bench.a, &first).await?;
    bench.release(&bench.a, &last).await
}

async fn an_empty_batch_has_no_answers<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    match bench.a.renew(&[]).await.as_slice() {
        [] => Ok(()),
        other => Err(unexpected("[]", &other)),
    }
}
