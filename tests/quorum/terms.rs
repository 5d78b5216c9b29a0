//! What a quorum is asked for and what its members prove: unusual times, modes, and proofs.

use std::time::Duration;

use leasehold::clock::{Clock, ManualClock, Stamp};
use leasehold::store::quorum::{Member, Quorum, Raised, Vote};
use leasehold::store::{
    Acquired, Claim, Grant, GrantProof, LockMode, MemoryStore, Released, Renewed, Store,
};
use leasehold::{Error, ErrorKind, FencingToken};

use crate::over::{Changes, Over};
use crate::world::{TTL, World, claim, granted, settle};

#[tokio::test]
async fn a_claim_may_ask_for_any_time() {
    for ttl in [Duration::MAX, Duration::from_nanos(u64::MAX)] {
        let world = World::new(3);
        let (store, mut claim) = (world.client(), claim());
        (claim.ttl, claim.place_ttl) = (ttl, ttl);
        let grant = granted(store.acquire(&claim).await);
        settle().await;
        world.pass(TTL).await;
        let renewed = store.renew(std::slice::from_ref(&grant)).await;
        assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
        assert!(matches!(store.release(&grant).await, Released::Released));
        store.withdraw(&claim).await.unwrap();
        settle().await;
        assert_eq!(world.keepers().await, [0; 0]);
    }
}

#[tokio::test]
async fn what_a_quorum_does_not_support_is_refused() {
    let world = World::new(3);
    let store = world.client();
    let (mut reads, mut writes) = (claim(), claim());
    (reads.mode, writes.mode) = (LockMode::Read, LockMode::Write);
    for claim in [reads, writes] {
        let refused = store.acquire(&claim).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{claim:?}");
    }
    assert_eq!(world.keepers().await, [0; 0]);
}

/// A member whose proofs count from an earlier time than the request, as those of a session do.
#[derive(Clone, Debug)]
struct EarlyProofs {
    data: MemoryStore,
    counted_from: Stamp,
}

impl EarlyProofs {
    fn proof(&self) -> GrantProof {
        GrantProof::since(TTL, self.counted_from)
    }
}

impl Changes for EarlyProofs {
    type Store = MemoryStore;

    fn beneath(&self) -> &MemoryStore {
        &self.data
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let renewed = self.data.renew(grants).await;
        let early = |renewed| match renewed {
            Renewed::Extended(_) => Renewed::Extended(self.proof()),
            other => other,
        };
        renewed.into_iter().map(early).collect()
    }
}

impl Member for Over<EarlyProofs> {
    async fn vote(&self, claim: &Claim, floor: Option<FencingToken>) -> Result<Vote, Error> {
        let mut vote = self.0.data.vote(claim, floor).await?;
        if let Acquired::Granted(grant) = &mut vote.acquired {
            grant.proof = self.0.proof();
        }
        Ok(vote)
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<Raised, Error> {
        self.0.data.raise(claim, token).await
    }
}

#[tokio::test]
async fn a_hold_lasts_no_longer_than_its_members_proved() {
    let clock = ManualClock::new();
    let counted_from = Clock::from(clock.clone()).stamp();
    let member = |_| {
        Over(EarlyProofs {
            data: MemoryStore::with_clock(clock.clone()),
            counted_from,
        })
    };
    let store = Quorum::with_clock((0..3).map(member), clock.clone()).unwrap();
    let ends = |sent_at: Stamp, proof: GrantProof| proof.sent_at.unwrap_or(sent_at).plus(proof.ttl);
    let proven = counted_from.plus(TTL);
    let now = || Clock::from(clock.clone()).stamp();

    clock.advance(TTL / 4);
    let grant = granted(store.acquire(&claim()).await);
    assert_eq!(ends(now(), grant.proof), proven);
    clock.advance(TTL / 4);
    let renewed = store.renew(std::slice::from_ref(&grant)).await;
    let [Renewed::Extended(proof)] = renewed[..] else {
        panic!("{renewed:?}");
    };
    assert_eq!(ends(now(), proof), proven);
    clock.advance(TTL / 2);
    let renewed = store.renew(&[grant]).await;
    assert!(matches!(renewed[..], [Renewed::Gone]), "{renewed:?}");
}
