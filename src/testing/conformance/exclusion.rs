//! One claim holds a key at a time.

use futures_util::future::join_all;

use super::case::{Bench, Case, CaseResult, always, cases, ensure, unexpected};
use super::harness::Harness;
use crate::store::{Acquired, Store};

cases! {
    a_held_key_is_busy_for_others, always,
        "while one claim holds a key, every other claim of it is busy, whichever client asks";
    keys_do_not_block_each_other, always,
        "a held key leaves every other key free, also one that begins like it";
    of_claims_at_once_at_most_one_is_granted, always,
        "of many claims that two clients make at once, at most one is granted";
    a_claim_that_holds_is_granted_again, always,
        "a claim whose first answer was lost asks again, and gets the same grant with the same token";
    busy_reports_no_more_than_the_ttl, always,
        "the holder's remaining time that is reported is not longer than the ttl";
}

async fn a_held_key_is_busy_for_others<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let other = bench.busy(&bench.b, &key).await;
    let same = bench.busy(&bench.a, &key).await;
    bench.still_fresh(&held)?;
    other.and(same)?;
    bench.release(&bench.a, &held).await
}

async fn keys_do_not_block_each_other<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let longer = format!("{key}/longer").parse()?;
    let held = bench.hold(&bench.a, &key).await?;
    let other = bench.hold(&bench.b, &longer).await?;
    bench.release(&bench.a, &held).await?;
    bench.release(&bench.b, &other).await
}

async fn of_claims_at_once_at_most_one_is_granted<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let claims = (0..16)
        .map(|_| bench.claim(&key))
        .collect::<Result<Vec<_>, _>>()?;
    let clients = [&bench.a, &bench.b];
    let before = bench.harness.clock().stamp();
    let asked = claims
        .iter()
        .enumerate()
        .map(|(n, claim)| clients[n % 2].acquire(claim));
    let mut grants = Vec::new();
    for acquired in join_all(asked).await {
        if let Acquired::Granted(grant) = acquired? {
            grants.push(grant);
        }
    }
    for grant in &grants {
        bench.outlived(grant, &before)?;
    }
    let count = grants.len();
    ensure(count <= 1, || {
        format!("expected at most one grant, got {count}")
    })?;
    for (n, claim) in claims.iter().enumerate() {
        clients[n % 2].withdraw(claim).await?;
    }
    let held = bench.granted_soon(&bench.b, &key).await?;
    bench.release(&bench.b, &held).await
}

async fn a_claim_that_holds_is_granted_again<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let claim = bench.claim(&key)?;
    let first = bench.granted(&bench.a, &claim).await?;
    let second = bench.granted(&bench.a, &claim).await?;
    bench.still_fresh(&first)?;
    let (first, second) = (first.grant.token, second);
    ensure(first == second.grant.token, || {
        format!("expected token {first} again, got {}", second.grant.token)
    })?;
    bench.busy(&bench.b, &key).await?;
    bench.release(&bench.a, &second).await
}

async fn busy_reports_no_more_than_the_ttl<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let answer = bench.b.acquire(&bench.claim(&key)?).await?;
    bench.still_fresh(&held)?;
    let Acquired::Busy { remaining } = answer else {
        return Err(unexpected("busy, since the key is held", &answer));
    };
    let most = bench.ttl().max(held.grant.proof.ttl);
    ensure(remaining.is_none_or(|r| r <= most), || {
        format!("expected at most {most:?} remaining, got {remaining:?}")
    })?;
    bench.release(&bench.a, &held).await
}
