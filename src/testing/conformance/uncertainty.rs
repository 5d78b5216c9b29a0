//! A withdrawn claim does not hold, and never will, whatever its kind.

use futures_util::FutureExt;

use super::case::{Bench, Case, CaseResult, always, broken, cases};
use super::harness::Harness;
use crate::store::{Acquired, Claim, Store};

cases! {
    a_withdrawn_grant_is_free, always,
        "after the withdrawal of a claim that holds, another claim is granted";
    a_withdrawn_claim_is_never_granted, always,
        "an acquire that arrives after its own withdrawal is refused, and the key is free";
    a_withdrawn_claim_that_held_is_never_granted, always,
        "an acquire that is repeated after the withdrawal of its grant is refused";
    a_withdrawn_waiter_is_never_granted, always,
        "a claim that was withdrawn while another held is refused when it asks again, and delays nobody";
    a_withdrawal_leaves_other_claims_alone, always,
        "the withdrawal of a claim that does not hold leaves the holder its lock";
    a_second_withdrawal_changes_nothing, always,
        "a withdrawal that is repeated is accepted, and does not free the next holder's lock";
    a_dropped_acquire_leaves_nothing_behind_its_withdrawal, always,
        "an acquire whose future was dropped leaves the key free once its claim is withdrawn";
}

async fn refused<H: Harness>(store: &H::Store, claim: &Claim) -> CaseResult {
    match store.acquire(claim).await {
        Err(_) | Ok(Acquired::Busy { .. } | Acquired::NotReady { .. }) => Ok(()),
        Ok(Acquired::Granted(_)) => Err(broken("a withdrawn claim was granted")),
    }
}

async fn a_withdrawn_grant_is_free<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    for claim in bench.claims_of_every_kind()? {
        let held = bench.granted(&bench.a, &claim).await?;
        bench.a.withdraw(&claim).await?;
        let next = bench.hold(&bench.b, &claim.key).await?;
        bench.not_renewed(&bench.a, &held.grant).await?;
        bench.release(&bench.b, &next).await?;
    }
    Ok(())
}

async fn a_withdrawn_claim_is_never_granted<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    for claim in bench.claims_of_every_kind()? {
        bench.a.withdraw(&claim).await?;
        refused::<H>(&bench.a, &claim).await?;
        let held = bench.hold(&bench.b, &claim.key).await?;
        bench.release(&bench.b, &held).await?;
    }
    Ok(())
}

async fn a_withdrawn_claim_that_held_is_never_granted<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    for claim in bench.claims_of_every_kind()? {
        let _withdrawn = bench.granted(&bench.a, &claim).await?;
        bench.a.withdraw(&claim).await?;
        refused::<H>(&bench.a, &claim).await?;
    }
    Ok(())
}

async fn a_withdrawn_waiter_is_never_granted<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    for claim in bench.claims_of_every_kind()? {
        let held = bench.hold(&bench.b, &claim.key).await?;
        bench.waits(&bench.a, &claim).await?;
        bench.a.withdraw(&claim).await?;
        bench.release(&bench.b, &held).await?;
        refused::<H>(&bench.a, &claim).await?;
        let next = bench.hold(&bench.b, &claim.key).await?;
        bench.release(&bench.b, &next).await?;
    }
    Ok(())
}

async fn a_withdrawal_leaves_other_claims_alone<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    bench.b.withdraw(&bench.claim(&key)?).await?;
    bench.a.withdraw(&bench.claim(&key)?).await?;
    let busy = bench.busy(&bench.b, &key).await;
    bench.still_fresh(&held)?;
    busy?;
    bench.release(&bench.a, &held).await
}

async fn a_second_withdrawal_changes_nothing<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    for claim in bench.claims_of_every_kind()? {
        let _withdrawn = bench.granted(&bench.a, &claim).await?;
        bench.a.withdraw(&claim).await?;
        let held = bench.hold(&bench.b, &claim.key).await?;
        bench.a.withdraw(&claim).await?;
        let busy = bench.busy(&bench.a, &claim.key).await;
        bench.still_fresh(&held)?;
        busy?;
        bench.release(&bench.b, &held).await?;
    }
    Ok(())
}

async fn a_dropped_acquire_leaves_nothing_behind_its_withdrawal<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    for polls in 1..4 {
        for claim in bench.claims_of_every_kind()? {
            let mut acquire = Box::pin(bench.a.acquire(&claim));
            for _ in 0..polls {
                if acquire.as_mut().now_or_never().is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(acquire);
            bench.a.withdraw(&claim).await?;
            let held = bench.hold(&bench.b, &claim.key).await?;
            bench.release(&bench.b, &held).await?;
        }
    }
    Ok(())
}
