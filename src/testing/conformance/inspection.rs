//! The store reports what is held.

use super::case::{Bench, Case, CaseResult, always, broken, cases, ensure};
use super::harness::Harness;
use crate::store::{Capability, Store};

cases! {
    a_held_key_is_reported_and_a_free_one_is_not, always,
        "inspection finds a hold from its grant to its release, whichever client asks";
    the_holder_is_reported, reports_holder,
        "the holder's label, with its purpose, and token are reported";
    the_remaining_time_is_within_the_ttl, always,
        "the remaining time that is reported is not longer than the ttl";
    the_time_since_the_grant_is_not_that_since_a_renewal, always,
        "the time since the grant, or since the holder asked, if it is reported, counts on over renewals";
    a_list_is_what_is_held_beneath_a_prefix, always,
        "a list has every held key that starts with the prefix and no other, in the order of the keys";
}

pub(super) fn reports_holder(capability: &Capability) -> Option<&'static str> {
    (!capability.reports_holder).then_some("the store does not report who holds")
}

async fn a_held_key_is_reported_and_a_free_one_is_not<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    let key = bench.key()?;
    let before = bench.b.inspect(&key).await?;
    ensure(before.is_none(), || {
        format!("expected nothing, got {before:?}")
    })?;
    let held = bench.hold(&bench.a, &key).await?;
    for store in [&bench.a, &bench.b] {
        let record = store.inspect(&key).await?;
        bench.still_fresh(&held)?;
        ensure(record.as_ref().is_some_and(|r| r.key == key), || {
            format!("expected a record of {key}, got {record:?}")
        })?;
    }
    bench.release(&bench.a, &held).await?;
    let after = bench.b.inspect(&key).await?;
    ensure(after.is_none(), || {
        format!("expected nothing, got {after:?}")
    })
}

async fn the_holder_is_reported<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let record = bench.b.inspect(&key).await?;
    bench.still_fresh(&held)?;
    let record = record.ok_or_else(|| broken("expected a record of a held key, got none"))?;
    let reported = (record.label.as_ref(), record.token);
    let expected = (Some(&held.grant.claim.label), Some(held.grant.token));
    ensure(reported == expected, || {
        format!("expected {expected:?}, got {reported:?}")
    })?;
    bench.release(&bench.a, &held).await
}

async fn the_remaining_time_is_within_the_ttl<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let held = bench.hold(&bench.a, &key).await?;
    let record = bench.a.inspect(&key).await?;
    bench.still_fresh(&held)?;
    let remaining = record.and_then(|record| record.remaining);
    let most = bench.ttl().max(held.grant.proof.ttl);
    ensure(remaining.is_none_or(|r| !r.is_zero() && r <= most), || {
        format!("expected up to {most:?}, got {remaining:?}")
    })?;
    bench.release(&bench.a, &held).await
}

async fn the_time_since_the_grant_is_not_that_since_a_renewal<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    let key = bench.key()?;
    let asked_at = bench.harness.clock().stamp();
    let mut held = bench.hold(&bench.a, &key).await?;
    let granted_at = bench.harness.clock().stamp();
    bench.harness.pass(bench.ttl() / 4).await;
    bench.renew(&bench.a, &mut held).await?;
    let least = bench.harness.clock().stamp().since(&granted_at);
    let record = bench.b.inspect(&key).await?;
    let most = bench.harness.clock().stamp().since(&asked_at);
    bench.still_fresh(&held)?;
    let record = record.ok_or_else(|| broken("expected a record of a held key, got none"))?;
    if let Some(reported) = record.held_for.or(record.asked_ago) {
        // What is not exact may be too long, never too short.
        let is_exact = record.held_for.is_some() && !record.held_for_is_estimate;
        let is_so = reported >= least - least / 12 && (!is_exact || reported <= most + most / 12);
        ensure(is_so, || {
            format!("held for {least:?} to {most:?}, reported {reported:?} in {record:?}")
        })?;
    }
    bench.release(&bench.a, &held).await
}

async fn a_list_is_what_is_held_beneath_a_prefix<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let mut holds = Vec::new();
    for name in ["in/b", "in/a", "out", "in/c"] {
        let key = format!("{}/{name}", bench.prefix()).parse()?;
        holds.push(bench.hold(&bench.a, &key).await?);
    }
    bench.release(&bench.a, &holds[3]).await?;
    let records = bench.b.list(&format!("{}/in/", bench.prefix())).await?;
    bench.still_fresh(&holds[0])?;
    let reported: Vec<_> = records.iter().map(|record| record.key.clone()).collect();
    let expected = [1, 0].map(|n| holds[n].grant.claim.key.clone());
    ensure(reported == expected, || {
        format!("expected {expected:?}, got {reported:?}")
    })?;
    for held in &holds[..3] {
        bench.release(&bench.a, held).await?;
    }
    Ok(())
}
