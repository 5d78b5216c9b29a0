//! A release compares and deletes.

use super::case::{Bench, Case, CaseResult, always, cases, own_ttl};
use super::harness::Harness;

cases! {
    a_released_key_is_free, always,
        "after a release any claim is granted at once";
    a_second_release_changes_nothing, always,
        "a release that is repeated is answered with already gone, and does not free the next holder's lock";
    another_claims_release_changes_nothing, always,
        "a release with another owner token is answered with already gone, and the holder keeps the lock";
    a_lapsed_holders_release_does_not_free_the_next_holder, own_ttl,
        "a release after the ttl is answered with already gone, and the next holder keeps the lock";
}

async fn a_released_key_is_free<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    for _ in 0..3 {
        let held = bench.hold(&bench.a, &key).await?;
        bench.release(&bench.a, &held).await?;
        let held = bench.hold(&bench.b, &key).await?;
        bench.release(&bench.b, &held).await?;
    }
    Ok(())
}

async fn a_second_release_changes_nothing<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    bench.release(&bench.a, &held).await?;
    let next = bench.hold(&bench.b, &key).await?;
    bench.not_released(&bench.a, &held.grant).await?;
    let busy = bench.busy(&bench.a, &key).await;
    bench.still_fresh(&next)?;
    busy?;
    bench.release(&bench.b, &next).await
}

async fn another_claims_release_changes_nothing<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let forged = bench.forged(&held.grant)?;
    bench.not_released(&bench.a, &forged).await?;
    bench.not_released(&bench.b, &forged).await?;
    let busy = bench.busy(&bench.b, &key).await;
    bench.still_fresh(&held)?;
    busy?;
    bench.release(&bench.a, &held).await
}

async fn a_lapsed_holders_release_does_not_free_the_next_holder<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    let key = bench.key()?;
    let lapsed = bench.hold(&bench.a, &key).await?;
    bench.harness.pass(bench.ttl() + bench.ttl() / 6).await;
    let next = bench.hold_lapsed(&bench.b, &key).await?;
    bench.not_released(&bench.a, &lapsed.grant).await?;
    let busy = bench.busy(&bench.a, &key).await;
    bench.still_fresh(&next)?;
    busy?;
    bench.release(&bench.b, &next).await
}
