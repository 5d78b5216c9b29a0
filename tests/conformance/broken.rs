//! Stores that each break one promise on purpose.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::store::quorum::{Member, Raised, Vote};
use leasehold::store::{
    Acquired, Capability, Claim, Grant, GrantProof, Hint, LockInfo, LockMode, MemoryStore,
    OwnerToken, Released, Renewed, Revoke, Revoked, Store,
};
use leasehold::{Error, FencingToken, Key};

use crate::over::{Changes, Over};

/// The promise that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    GrantsTwice,
    ForgetsWhoHolds,
    EndsEarly,
    NeverEnds,
    RenewCreates,
    RenewMixesAnswers,
    RenewDoesNothing,
    ReleaseDoesNotCompare,
    ReleaseDoesNothing,
    TokenRepeats,
    NeverWakes,
    WithdrawLeavesNoTombstone,
    WithdrawDoesNotCompare,
    FloorIsIgnored,
    RaiseDoesNothing,
    RaiseDoesNotCompare,
    ListsEverything,
    TellsNothing,
    NamesTheLatestHolder,
    NamesWaitersInAnyOrder,
    ServesInAnyOrder,
    PlacesOutliveTheirWaiters,
    LosesPlaces,
    ReadsAlone,
    WritesTogether,
    ReadersPassWriters,
    /// A claim with a share is one without.
    SharesTakeNothing,
    /// One permit is given away that there is not.
    SharesTakeOneMore,
    SharesAreWhole,
    DowngradeReleases,
    HandsOverToNobody,
    WakesEverybody,
    /// The token of a handover is not the one that the claim then gets.
    HandoverIsAnotherGrant,
    RevokesAtOnce,
    RevokesNothing,
    RestIsForgotten,
    RestEndsWithTheTtl,
    RestIsHandedOver,
    RestDoesNotCompare,
    /// Extends by half of what it proves.
    RenewExtendsHalf,
    /// A claim that holds and asks again gets proof of a full TTL, and keeps the time that it had.
    AskingAgainExtendsNothing,
    /// Forgets a withdrawn claim of a reader or a writer.
    ReadersAndWritersLeaveNoTombstone,
    /// After a downgrade the hold is known by its new mode only.
    DowngradeForgetsTheGrant,
    /// The end of a client frees what it holds.
    CloseReleases,
    /// No fault: all is kept, and as little as possible is claimed.
    ClaimsTheLeast,
}

pub(crate) type Broken = Over<Faults>;

#[derive(Debug)]
pub(crate) struct Faults {
    store: MemoryStore,
    fault: Fault,
    asked: Arc<AtomicU64>,
    memory: Mutex<Memory>,
}

/// What a faulty client remembers.
#[derive(Debug, Default)]
struct Memory {
    /// The owner tokens that claims are known by, where it is not their own.
    owners: Vec<(OwnerToken, OwnerToken)>,
    downgraded: Vec<OwnerToken>,
}

pub(crate) fn broken(store: MemoryStore, fault: Fault) -> Broken {
    Over(Faults {
        store,
        fault,
        asked: Arc::default(),
        memory: Mutex::default(),
    })
}

impl Faults {
    /// The owner token that the store knows a claim by.
    fn known_by(&self, claim: &Claim) -> OwnerToken {
        let memory = self.memory.lock().unwrap();
        let mut owners = memory.owners.iter();
        let known_by = owners.find(|(owner, _)| *owner == claim.owner);
        known_by.map_or(claim.owner, |(_, known_by)| *known_by)
    }

    fn has_forgotten(&self, claim: &Claim) -> bool {
        let memory = self.memory.lock().unwrap();
        claim.mode == LockMode::Write && memory.downgraded.contains(&claim.owner)
    }

    /// Frees a key, whoever holds it: `forget` is the only such power of the memory store.
    fn free(&self) {
        self.store.forget();
    }
}

impl Changes for Faults {
    type Store = MemoryStore;

    fn beneath(&self) -> &MemoryStore {
        &self.store
    }

    fn capability(&self) -> Capability {
        match self.fault {
            Fault::ClaimsTheLeast => Capability::least(),
            _ => self.store.capability(),
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let mut claim = claim.clone();
        claim.owner = self.known_by(&claim);
        let ttl = claim.ttl;
        match self.fault {
            Fault::ForgetsWhoHolds => claim.owner = OwnerToken::generate()?,
            Fault::EndsEarly => claim.ttl = ttl / 2,
            Fault::NeverEnds => claim.ttl = Duration::from_secs(1_000_000),
            Fault::ServesInAnyOrder | Fault::HandsOverToNobody => claim.place_ttl = Duration::ZERO,
            Fault::PlacesOutliveTheirWaiters => claim.place_ttl = Duration::from_secs(1_000_000),
            Fault::LosesPlaces => claim.place_ttl = ttl / 8,
            Fault::ReadsAlone if claim.mode == LockMode::Read => claim.mode = LockMode::Write,
            Fault::WritesTogether if claim.mode == LockMode::Write => claim.mode = LockMode::Read,
            Fault::SharesTakeNothing => claim.share = None,
            Fault::SharesTakeOneMore => {
                if let Some(share) = &mut claim.share {
                    share.of += 1;
                }
            }
            Fault::SharesAreWhole if claim.share.is_some() => claim.mode = LockMode::Write,
            // A place that is over at once blocks nobody.
            Fault::ReadersPassWriters if claim.mode == LockMode::Write => {
                claim.place_ttl = Duration::ZERO;
            }
            _ => {}
        }
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        match self.store.acquire(&claim).await? {
            Acquired::Granted(mut grant) => {
                if self.fault == Fault::TokenRepeats && asked.is_multiple_of(2) {
                    grant.token = FencingToken::new(1)?;
                }
                // The memory store extends nothing when a claim asks again, and proves what is
                // left.
                if matches!(
                    self.fault,
                    Fault::EndsEarly | Fault::NeverEnds | Fault::AskingAgainExtendsNothing
                ) {
                    grant.proof = GrantProof::of(ttl);
                }
                Ok(Acquired::Granted(grant))
            }
            Acquired::Busy { .. } if self.fault == Fault::GrantsTwice => {
                let token = FencingToken::new(u64::from(u32::MAX) << 20)?;
                Ok(Acquired::Granted(Grant::new(
                    claim.clone(),
                    token,
                    GrantProof::of(ttl),
                )))
            }
            busy => Ok(busy),
        }
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        match self.fault {
            Fault::RenewCreates => {
                let mut answers = Vec::new();
                for grant in grants {
                    answers.push(match self.store.acquire(&grant.claim).await {
                        Ok(Acquired::Granted(_)) => Renewed::Extended(grant.proof),
                        _ => Renewed::Gone,
                    });
                }
                answers
            }
            Fault::RenewMixesAnswers => {
                let mut answers = self.store.renew(grants).await;
                answers.sort_by_key(|answer| matches!(answer, Renewed::Gone));
                answers
            }
            Fault::RenewExtendsHalf => {
                let mut halves = grants.to_vec();
                for half in &mut halves {
                    half.claim.ttl /= 2;
                }
                let mut answers = self.store.renew(&halves).await;
                for answer in &mut answers {
                    if let Renewed::Extended(proof) = answer {
                        *proof = GrantProof::of(proof.ttl * 2);
                    }
                }
                answers
            }
            Fault::DowngradeForgetsTheGrant => {
                let mut answers = self.store.renew(grants).await;
                for (grant, answer) in grants.iter().zip(&mut answers) {
                    if self.has_forgotten(&grant.claim) {
                        *answer = Renewed::Gone;
                    }
                }
                answers
            }
            Fault::RenewDoesNothing => grants
                .iter()
                .map(|grant| Renewed::Extended(grant.proof))
                .collect(),
            _ => self.store.renew(grants).await,
        }
    }

    async fn release(&self, grant: &Grant) -> Released {
        match self.fault {
            Fault::ReleaseDoesNotCompare => {
                self.free();
                Released::Released
            }
            Fault::ReleaseDoesNothing => Released::Released,
            _ => self.store.release(grant).await,
        }
    }

    async fn rest(&self, grant: &Grant, rest: Duration) -> Released {
        match self.fault {
            Fault::RestIsForgotten => self.store.release(grant).await,
            Fault::RestEndsWithTheTtl => self.store.rest(grant, rest.min(grant.claim.ttl)).await,
            Fault::RestIsHandedOver => match self.store.inspect(&grant.claim.key).await {
                Ok(Some(info)) if info.queue != Some(0) => self.store.release(grant).await,
                _ => self.store.rest(grant, rest).await,
            },
            Fault::RestDoesNotCompare => {
                let mut claim = grant.claim.clone();
                claim.owner = OwnerToken::generate().unwrap();
                if let Ok(Acquired::Granted(other)) = self.store.acquire(&claim).await {
                    return self.store.rest(&other, rest).await;
                }
                self.store.rest(grant, rest).await
            }
            _ => self.store.rest(grant, rest).await,
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        match self.fault {
            Fault::WithdrawLeavesNoTombstone => {
                let grant = Grant::new(
                    claim.clone(),
                    FencingToken::new(1)?,
                    GrantProof::of(claim.ttl),
                );
                let _ = self.store.release(&grant).await;
                Ok(())
            }
            Fault::ReadersAndWritersLeaveNoTombstone if claim.mode != LockMode::Exclusive => {
                let mut known = claim.clone();
                known.owner = self.known_by(claim);
                self.store.withdraw(&known).await?;
                let next = OwnerToken::generate()?;
                let mut memory = self.memory.lock().unwrap();
                memory.owners.retain(|(owner, _)| *owner != claim.owner);
                memory.owners.push((claim.owner, next));
                Ok(())
            }
            Fault::DowngradeForgetsTheGrant if self.has_forgotten(claim) => Ok(()),
            Fault::WithdrawDoesNotCompare => {
                self.free();
                self.store.withdraw(claim).await
            }
            _ => self.store.withdraw(claim).await,
        }
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        match self.fault {
            Fault::NeverWakes => Ok(Hint::never()),
            Fault::WakesEverybody => Ok(Hint::new(std::future::ready(()))),
            _ => self.store.subscribe(claim).await,
        }
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        let downgraded = self.store.downgrade(grant).await?;
        let owner = grant.claim.owner;
        self.memory.lock().unwrap().downgraded.push(owner);
        if self.fault == Fault::DowngradeReleases {
            let _ = self.store.release(grant).await;
        }
        Ok(downgraded)
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        match self.fault {
            Fault::RevokesAtOnce => self.store.revoke(key, Revoke::Now).await,
            Fault::RevokesNothing => Ok(Revoked::NotHeld),
            _ => self.store.revoke(key, how).await,
        }
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        match self.fault {
            Fault::TellsNothing => Ok(None),
            Fault::NamesTheLatestHolder => {
                let mut info = self.store.inspect(key).await?;
                if let Some(info) = &mut info {
                    info.labels = info.label.iter().cloned().collect();
                }
                Ok(info)
            }
            Fault::NamesWaitersInAnyOrder => {
                let mut info = self.store.inspect(key).await?;
                if let Some(info) = &mut info {
                    info.waiters.reverse();
                }
                Ok(info)
            }
            Fault::HandoverIsAnotherGrant => {
                let mut info = self.store.inspect(key).await?;
                if let Some(info) = &mut info {
                    info.token = Some(FencingToken::new(1)?);
                }
                Ok(info)
            }
            _ => self.store.inspect(key).await,
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        match self.fault {
            Fault::ListsEverything => self.store.list("").await,
            _ => self.store.list(prefix).await,
        }
    }

    async fn close(&self) -> Result<(), Error> {
        if self.fault == Fault::CloseReleases {
            self.free();
        }
        self.store.close().await
    }
}

impl Member for Broken {
    async fn vote(&self, claim: &Claim, floor: Option<FencingToken>) -> Result<Vote, Error> {
        let floor = floor.filter(|_| self.0.fault != Fault::FloorIsIgnored);
        self.0.store.vote(claim, floor).await
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<Raised, Error> {
        match self.0.fault {
            Fault::RaiseDoesNothing => Ok(Raised::Raised),
            Fault::RaiseDoesNotCompare => {
                let mut other = claim.clone();
                other.key = "elsewhere".parse()?;
                // The memory store has one counter for all keys.
                let _vote = self.0.store.vote(&other, Some(token)).await?;
                Ok(Raised::Raised)
            }
            _ => self.0.store.raise(claim, token).await,
        }
    }
}
