//! Readers hold together, a writer alone.

use super::case::{Bench, Case, CaseResult, cases, ensure, unexpected};
use super::harness::Harness;
use super::inspection::reports_holder;
use crate::model::holder::Label;
use crate::store::{Acquired, Capability, LockMode, Store};

cases! {
    readers_hold_together, reads_and_writes,
        "two readers of different clients hold one key at a time, and a writer waits for both";
    all_readers_are_named, names_readers,
        "the labels of all readers are reported in the order of their tokens";
    a_writer_is_alone, reads_and_writes,
        "while a writer holds, readers and writers wait";
    an_exclusive_claim_is_alone, reads_and_writes,
        "an exclusive claim of the same key keeps readers and writers out, and they it";
    a_waiting_writer_blocks_later_readers, reads_and_writes,
        "a reader that comes after a waiting writer is served after it, so that writers do not starve";
    a_dead_reader_frees_only_itself, reads_and_writes,
        "a reader whose client died lapses alone: the other reader still holds, and then the writer is served";
    a_downgrade_leaves_no_gap, reads_and_writes,
        "a writer that becomes a reader keeps its token and its hold, lets readers in and no writer";
    a_downgraded_hold_lives_on, reads_and_writes,
        "a hold that became a read hold is renewed and released as any other, and downgraded again to the same";
    a_downgraded_hold_lasts_as_proven, reads_and_writes,
        "when a client dies after a downgrade, the next claim is granted after the ttl that was proven, not before";
    a_downgraded_hold_is_known_by_its_former_mode, reads_and_writes,
        "a renewal and a withdrawal that name the mode of before a downgrade renew and end the hold, for good";
    a_claim_is_no_writer_again_after_its_downgrade, reads_and_writes,
        "an acquire that names the mode of before a downgrade is refused, also one that arrives late";
    what_is_not_held_is_not_downgraded, reads_and_writes,
        "a downgrade after the release is refused, and the key stays free";
}

fn reads_and_writes(capability: &Capability) -> Option<&'static str> {
    (!capability.read_write).then_some("the store has no read and write modes")
}

fn names_readers(capability: &Capability) -> Option<&'static str> {
    reads_and_writes(capability).or_else(|| reports_holder(capability))
}

async fn readers_hold_together<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let one = bench.claim_in(LockMode::Read, &key)?;
    let one = bench.granted(&bench.a, &one).await?;
    let other = bench.claim_in(LockMode::Read, &key)?;
    let other = bench.granted(&bench.b, &other).await?;
    let writer = bench.claim_in(LockMode::Write, &key)?;
    bench.waits(&bench.a, &writer).await?;
    bench.release(&bench.a, &one).await?;
    let early = bench.waits(&bench.a, &writer).await;
    bench.still_fresh(&other)?;
    early?;
    bench.release(&bench.b, &other).await?;
    let held = bench.granted(&bench.a, &writer).await?;
    bench.release(&bench.a, &held).await
}

async fn all_readers_are_named<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let mut held = Vec::new();
    for (n, store) in [&bench.a, &bench.b, &bench.a].into_iter().enumerate() {
        let mut claim = bench.claim_in(LockMode::Read, &key)?;
        claim.label = Label::parse(&format!("reader {n}"))?.with_purpose("to read")?;
        held.push((store, bench.granted(store, &claim).await?));
    }
    let record = bench.b.inspect(&key).await?;
    bench.still_fresh(&held[0].1)?;
    held.sort_by_key(|(_, held)| held.grant.token);
    let expected: Vec<_> = (held.iter())
        .map(|(_, held)| held.grant.claim.label.clone())
        .collect();
    let named = record.map(|record| record.labels).unwrap_or_default();
    ensure(named == expected, || {
        format!("expected {expected:?}, got {named:?}")
    })?;
    for (store, held) in &held {
        bench.release(store, held).await?;
    }
    Ok(())
}

async fn a_writer_is_alone<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let writer = bench.claim_in(LockMode::Write, &key)?;
    let held = bench.granted(&bench.a, &writer).await?;
    for mode in [LockMode::Read, LockMode::Write] {
        let other = bench.claim_in(mode, &key)?;
        let waits = bench.waits(&bench.b, &other).await;
        bench.still_fresh(&held)?;
        waits?;
        bench.b.withdraw(&other).await?;
    }
    bench.release(&bench.a, &held).await
}

async fn an_exclusive_claim_is_alone<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    for mode in [LockMode::Read, LockMode::Write] {
        let held = bench.hold(&bench.a, &key).await?;
        let other = bench.claim_in(mode, &key)?;
        let waits = bench.waits(&bench.b, &other).await;
        bench.still_fresh(&held)?;
        waits?;
        bench.release(&bench.a, &held).await?;
        let held = bench.granted(&bench.b, &other).await?;
        let busy = bench.busy(&bench.a, &key).await;
        bench.still_fresh(&held)?;
        busy?;
        bench.release(&bench.b, &held).await?;
    }
    Ok(())
}

async fn a_waiting_writer_blocks_later_readers<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let first = bench.claim_in(LockMode::Read, &key)?;
    let first = bench.granted(&bench.a, &first).await?;
    let writer = bench.claim_in(LockMode::Write, &key)?;
    bench.waits(&bench.b, &writer).await?;
    let later = bench.claim_in(LockMode::Read, &key)?;
    bench.waits(&bench.a, &later).await?;
    bench.release(&bench.a, &first).await?;
    bench.waits(&bench.a, &later).await?;
    let held = bench.granted(&bench.b, &writer).await?;
    bench.waits(&bench.a, &later).await?;
    bench.release(&bench.b, &held).await?;
    let held = bench.granted(&bench.a, &later).await?;
    bench.release(&bench.a, &held).await
}

async fn a_dead_reader_frees_only_itself<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let dying = bench.harness.client().await?;
    let dead = bench.claim_in(LockMode::Read, &key)?;
    let _dead = bench.granted(&dying, &dead).await?;
    let live = bench.claim_in(LockMode::Read, &key)?;
    let mut live = bench.granted(&bench.a, &live).await?;
    let writer = bench.claim_in(LockMode::Write, &key)?;
    bench.waits(&bench.b, &writer).await?;
    bench.harness.crash(dying).await;
    for _ in 0..6 {
        bench.harness.pass(bench.ttl() / 3).await;
        bench.renew(&bench.a, &mut live).await?;
        let waits = bench.waits(&bench.b, &writer).await;
        bench.still_fresh(&live)?;
        waits?;
    }
    bench.release(&bench.a, &live).await?;
    let held = bench.served_soon(&bench.b, &writer).await?;
    bench.release(&bench.b, &held).await
}

async fn a_downgrade_leaves_no_gap<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let writer = bench.claim_in(LockMode::Write, &key)?;
    let mut held = bench.granted(&bench.a, &writer).await?;
    let reader = bench.claim_in(LockMode::Read, &key)?;
    bench.waits(&bench.b, &reader).await?;
    let next = bench.claim_in(LockMode::Write, &key)?;
    bench.waits(&bench.b, &next).await?;
    let downgraded = bench.a.downgrade(&held.grant).await?;
    let now = (downgraded.claim.mode, downgraded.token);
    ensure(now == (LockMode::Read, held.grant.token), || {
        format!("expected read with {}, got {now:?}", held.grant.token)
    })?;
    held.grant = downgraded;
    let with = bench.granted(&bench.b, &reader).await?;
    let waits = bench.waits(&bench.b, &next).await;
    bench.still_fresh(&held)?;
    waits?;
    bench.release(&bench.b, &with).await?;
    let waits = bench.waits(&bench.b, &next).await;
    bench.still_fresh(&held)?;
    waits?;
    bench.release(&bench.a, &held).await?;
    let held = bench.granted(&bench.b, &next).await?;
    bench.release(&bench.b, &held).await
}

async fn a_downgraded_hold_lives_on<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let writer = bench.claim_in(LockMode::Write, &key)?;
    let mut held = bench.granted(&bench.a, &writer).await?;
    held.grant = bench.a.downgrade(&held.grant).await?;
    for _ in 0..6 {
        bench.harness.pass(bench.ttl() / 3).await;
        bench.renew(&bench.a, &mut held).await?;
    }
    let again = bench.a.downgrade(&held.grant).await?;
    if again.token != held.grant.token {
        return Err(unexpected("the same hold", &again));
    }
    bench.busy(&bench.b, &key).await?;
    bench.release(&bench.a, &held).await?;
    let next = bench.hold(&bench.b, &key).await?;
    bench.release(&bench.b, &next).await
}

async fn a_downgraded_hold_lasts_as_proven<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let client = bench.harness.client().await?;
    let writer = bench.claim_in(LockMode::Write, &bench.key()?)?;
    let mut held = bench.granted(&client, &writer).await?;
    held.grant = client.downgrade(&held.grant).await?;
    bench.lasts_as_proven(client, &held).await
}

async fn a_downgraded_hold_is_known_by_its_former_mode<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    let writer = bench.claim_in(LockMode::Write, &bench.key()?)?;
    let mut held = bench.granted(&bench.a, &writer).await?;
    let _downgraded = bench.a.downgrade(&held.grant).await?;
    bench.renew(&bench.a, &mut held).await?;
    bench.a.withdraw(&writer).await?;
    let next = bench.hold(&bench.b, &writer.key).await?;
    bench.not_renewed(&bench.a, &held.grant).await?;
    bench.release(&bench.b, &next).await?;
    match bench.a.acquire(&writer).await {
        Ok(Acquired::Granted(grant)) => Err(unexpected("a refusal", &grant)),
        _ => Ok(()),
    }
}

async fn a_claim_is_no_writer_again_after_its_downgrade<H: Harness>(
    bench: &Bench<'_, H>,
) -> CaseResult {
    let writer = bench.claim_in(LockMode::Write, &bench.key()?)?;
    let mut held = bench.granted(&bench.a, &writer).await?;
    held.grant = bench.a.downgrade(&held.grant).await?;
    if let Ok(Acquired::Granted(grant)) = bench.a.acquire(&writer).await {
        return Err(unexpected("a refusal", &grant));
    }
    let reader = bench.claim_in(LockMode::Read, &writer.key)?;
    let other = bench.granted(&bench.b, &reader).await?;
    bench.release(&bench.b, &other).await?;
    bench.renew(&bench.a, &mut held).await?;
    bench.release(&bench.a, &held).await
}

async fn what_is_not_held_is_not_downgraded<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let writer = bench.claim_in(LockMode::Write, &key)?;
    let held = bench.granted(&bench.a, &writer).await?;
    bench.release(&bench.a, &held).await?;
    if let Ok(grant) = bench.a.downgrade(&held.grant).await {
        return Err(unexpected("a refusal", &grant));
    }
    let next = bench.hold(&bench.b, &key).await?;
    bench.release(&bench.b, &next).await
}
