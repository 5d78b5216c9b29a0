//! Readers hold a key in parts, as many together as they say that there are.

use super::case::{Bench, Case, CaseError, CaseResult, TimedGrant, broken, cases, ensure};
use super::harness::Harness;
use crate::model::key::Key;
use crate::store::{Capability, Claim, LockMode, Queue, Share, Store};

cases! {
    shares_hold_together_as_far_as_they_fit, shares,
        "shares of several clients hold one key up to what they say there is; the next one waits";
    a_larger_share_is_not_passed, shares,
        "a share that wants much is served before later ones that want little, as far as they fit";
    a_share_counts_once, shares,
        "a share that asks again, and is renewed, counts once, and its release frees all of it";
    a_dead_share_frees_its_part, shares,
        "a share whose client died lapses alone, and its part is granted after its proven time";
    a_withdrawn_share_is_free, shares,
        "a withdrawal of a share that holds frees it, of one that waits serves those behind it";
    a_share_that_missed_its_call_counts_once, calls_shares,
        "a share that was called and asks too late is granted, and its release frees all of it";
    each_share_obeys_what_it_says_itself, shares,
        "a share that says that there is less waits, takes nothing away, and keeps no other out";
    who_is_alone_is_alone, shares,
        "an exclusive claim and a writer keep shares out, and they them";
    a_whole_reader_takes_nothing, shares,
        "a reader without a share holds beside shares that take all there is";
}

fn shares(capability: &Capability) -> Option<&'static str> {
    (!capability.shares).then_some("the store knows no shares")
}

fn calls_shares(capability: &Capability) -> Option<&'static str> {
    let calls = capability.queue == Queue::Handover;
    shares(capability).or((!calls).then_some("the store hands nothing over"))
}

impl<H: Harness> Bench<'_, H> {
    fn share(&self, key: &Key, permits: u32, of: u32) -> Result<Claim, CaseError> {
        let mut claim = self.claim_in(LockMode::Read, key)?;
        claim.share = Some(Share { permits, of });
        Ok(claim)
    }

    async fn held_share(
        &self,
        store: &H::Store,
        key: &Key,
        permits: u32,
        of: u32,
    ) -> Result<TimedGrant, CaseError> {
        self.granted(store, &self.share(key, permits, of)?).await
    }

    /// It waits while `held` is live.
    async fn waits_for(&self, store: &H::Store, claim: &Claim, held: &TimedGrant) -> CaseResult {
        let waits = self.waits(store, claim).await;
        self.still_fresh(held)?;
        waits
    }
}

async fn shares_hold_together_as_far_as_they_fit<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let three = bench.held_share(&bench.a, &key, 3, 5).await?;
    let two = bench.held_share(&bench.b, &key, 2, 5).await?;
    let next = bench.share(&key, 1, 5)?;
    bench.waits_for(&bench.a, &next, &three).await?;
    bench.release(&bench.b, &two).await?;
    let one = bench.granted(&bench.a, &next).await?;
    let last = bench.held_share(&bench.b, &key, 1, 5).await?;
    for (store, held) in [(&bench.a, &three), (&bench.a, &one), (&bench.b, &last)] {
        bench.release(store, held).await?;
    }
    let alone = bench.hold(&bench.b, &key).await?;
    bench.release(&bench.b, &alone).await
}

async fn a_larger_share_is_not_passed<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let three = bench.held_share(&bench.a, &key, 3, 5).await?;
    let many = bench.share(&key, 4, 5)?;
    bench.waits_for(&bench.b, &many, &three).await?;
    let few = bench.share(&key, 1, 5)?;
    bench.waits_for(&bench.a, &few, &three).await?;
    let too_many = bench.share(&key, 2, 5)?;
    bench.waits_for(&bench.b, &too_many, &three).await?;
    bench.release(&bench.a, &three).await?;
    // In the other order, so that the later ones ask first.
    bench.waits(&bench.b, &too_many).await?;
    let few = bench.granted(&bench.a, &few).await?;
    let many = bench.granted(&bench.b, &many).await?;
    bench.waits_for(&bench.b, &too_many, &many).await?;
    bench.release(&bench.b, &many).await?;
    let two = bench.granted(&bench.b, &too_many).await?;
    bench.release(&bench.a, &few).await?;
    bench.release(&bench.b, &two).await
}

async fn a_share_counts_once<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let claim = bench.share(&key, 3, 5)?;
    let mut held = bench.granted(&bench.a, &claim).await?;
    for _ in 0..2 {
        held = bench.granted(&bench.a, &claim).await?;
        bench.renew(&bench.a, &mut held).await?;
    }
    let two = bench.held_share(&bench.b, &key, 2, 5).await?;
    bench.release(&bench.a, &held).await?;
    bench.not_released(&bench.a, &held.grant).await?;
    let three = bench.held_share(&bench.a, &key, 3, 5).await?;
    let next = bench.share(&key, 1, 5)?;
    bench.waits_for(&bench.a, &next, &two).await?;
    bench.a.withdraw(&next).await?;
    bench.release(&bench.a, &three).await?;
    bench.release(&bench.b, &two).await
}

async fn a_dead_share_frees_its_part<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let dying = bench.harness.client().await?;
    let dead = bench.held_share(&dying, &key, 3, 4).await?;
    let mut live = bench.held_share(&bench.a, &key, 1, 4).await?;
    let next = bench.share(&key, 2, 4)?;
    bench.waits_for(&bench.b, &next, &dead).await?;
    bench.harness.crash(dying).await;
    for _ in 0..18 {
        bench.harness.pass(bench.ttl() / 3).await;
        bench.renew(&bench.a, &mut live).await?;
        let Ok(held) = bench.granted(&bench.b, &next).await else {
            continue;
        };
        let lasted = bench.harness.clock().stamp().since(&dead.counts_from);
        let least = dead.grant.proof.ttl - dead.grant.proof.ttl / 12;
        ensure(lasted >= least, || {
            format!("granted after {lasted:?} of {:?}", dead.grant.proof.ttl)
        })?;
        bench.renew(&bench.a, &mut live).await?;
        bench.release(&bench.b, &held).await?;
        return bench.release(&bench.a, &live).await;
    }
    Err(broken("the part of a dead share was never free"))
}

async fn a_withdrawn_share_is_free<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let two = bench.held_share(&bench.a, &key, 2, 5).await?;
    let withdrawn = bench.held_share(&bench.a, &key, 3, 5).await?;
    bench.a.withdraw(&withdrawn.grant.claim).await?;
    let one = bench.held_share(&bench.b, &key, 1, 5).await?;
    let many = bench.share(&key, 4, 5)?;
    bench.waits_for(&bench.a, &many, &two).await?;
    let few = bench.share(&key, 2, 5)?;
    bench.waits_for(&bench.b, &few, &two).await?;
    bench.a.withdraw(&many).await?;
    let few = bench.granted(&bench.b, &few).await?;
    for (store, held) in [(&bench.a, &two), (&bench.b, &one), (&bench.b, &few)] {
        bench.release(store, held).await?;
    }
    Ok(())
}

async fn a_share_that_missed_its_call_counts_once<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let mut one = bench.held_share(&bench.a, &key, 1, 3).await?;
    let two = bench.held_share(&bench.a, &key, 2, 3).await?;
    let late = bench.share(&key, 2, 3)?;
    bench.waits_for(&bench.b, &late, &two).await?;
    bench.release(&bench.a, &two).await?;
    // Longer than a call lasts.
    for _ in 0..6 {
        bench.harness.pass(bench.ttl() / 3).await;
        bench.renew(&bench.a, &mut one).await?;
    }
    let late = bench.served_soon(&bench.b, &late).await?;
    let next = bench.share(&key, 1, 3)?;
    bench.waits_for(&bench.a, &next, &late).await?;
    bench.a.withdraw(&next).await?;
    bench.release(&bench.b, &late).await?;
    let two = bench
        .served_soon(&bench.b, &bench.share(&key, 2, 3)?)
        .await?;
    bench.release(&bench.b, &two).await
}

async fn each_share_obeys_what_it_says_itself<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let mut three = bench.held_share(&bench.a, &key, 3, 5).await?;
    let fewer = bench.share(&key, 1, 3)?;
    bench.waits_for(&bench.b, &fewer, &three).await?;
    bench.renew(&bench.a, &mut three).await?;
    bench.b.withdraw(&fewer).await?;
    let more = bench.held_share(&bench.b, &key, 4, 7).await?;
    bench.renew(&bench.a, &mut three).await?;
    bench.release(&bench.a, &three).await?;
    bench.release(&bench.b, &more).await
}

async fn who_is_alone_is_alone<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    for mode in [LockMode::Exclusive, LockMode::Write] {
        let share = bench.held_share(&bench.a, &key, 1, 5).await?;
        let alone = bench.claim_in(mode, &key)?;
        bench.waits_for(&bench.b, &alone, &share).await?;
        let later = bench.share(&key, 1, 5)?;
        bench.waits_for(&bench.a, &later, &share).await?;
        bench.release(&bench.a, &share).await?;
        let alone = bench.granted(&bench.b, &alone).await?;
        bench.waits_for(&bench.a, &later, &alone).await?;
        bench.release(&bench.b, &alone).await?;
        let later = bench.granted(&bench.a, &later).await?;
        bench.release(&bench.a, &later).await?;
    }
    Ok(())
}

async fn a_whole_reader_takes_nothing<H: Harness>(bench: &Bench<'_, H>) -> CaseResult {
    let key = bench.key()?;
    let all = bench.held_share(&bench.a, &key, 2, 2).await?;
    let reader = bench.claim_in(LockMode::Read, &key)?;
    let reader = bench.granted(&bench.b, &reader).await?;
    bench.release(&bench.a, &all).await?;
    let again = bench.held_share(&bench.a, &key, 2, 2).await?;
    bench.release(&bench.b, &reader).await?;
    bench.release(&bench.a, &again).await
}
