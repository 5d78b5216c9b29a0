//! From when and for how long a manager counts what a store proved (I1, I3), on a store whose
//! answers travel.
use std::sync::Arc;
use std::time::Duration;

use crate::support::over::{Changes, Over};
use crate::support::{ms, poll_once, secs};
use leasehold::clock::{Clock, ClockKind, ManualClock};
use leasehold::store::{
    Acquired, Capability, Claim, Grant, GrantProof, Hint, MemoryStore, Renewed, Revoke, Revoked,
    Store,
};
use leasehold::{Error, ErrorKind, LockManager, Settings};
use parking_lot::Mutex;

/// What is done to the answers on their way, and what was seen of the requests.
#[derive(Debug, Default)]
struct Road {
    /// How long the next answer travels.
    travels: Duration,
    /// What is granted in place of what was asked for.
    grants: Option<Duration>,
    /// The store has one TTL for all locks, and is asked for none.
    has_one_ttl: bool,
    /// Renewals are answered by an acknowledgement that proves nothing.
    proves_nothing: bool,
    /// Whoever holds the lock releases it while a caller subscribes, and no wake-up comes of it.
    freed_at_subscription: Option<Grant>,
    /// The next acquire arrives twice, what the first copy was granted is revoked in between, and
    /// only the second is answered.
    revoked_between_copies: bool,
    renewals: usize,
    renewed_at: u64,
}

/// The memory store at the end of a road.
#[derive(Clone, Debug)]
struct Far {
    clock: ManualClock,
    memory: MemoryStore,
    road: Arc<Mutex<Road>>,
}

impl Far {
    fn travel(&self) {
        let travels = std::mem::take(&mut self.road.lock().travels);
        self.clock.advance(travels);
    }

    fn proof(&self, proof: GrantProof) -> GrantProof {
        self.road.lock().grants.map_or(proof, GrantProof::of)
    }
}

impl Changes for Far {
    type Store = MemoryStore;

    fn beneath(&self) -> &MemoryStore {
        &self.memory
    }

    fn capability(&self) -> Capability {
        let mut capability = self.memory.capability();
        capability.ttl_per_lock = !self.road.lock().has_one_ttl;
        capability
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        if std::mem::take(&mut self.road.lock().revoked_between_copies) {
            let _ = self.memory.acquire(claim).await;
            let revoked = self.memory.revoke(&claim.key, Revoke::Now).await;
            assert!(matches!(revoked, Ok(Revoked::Revoked { .. })));
        }
        let mut answer = self.memory.acquire(claim).await;
        if let Ok(Acquired::Granted(grant)) = &mut answer {
            grant.proof = self.proof(grant.proof);
        }
        self.travel();
        answer
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        {
            let mut road = self.road.lock();
            road.renewals += 1;
            road.renewed_at = Clock::from(self.clock.clone()).stamp().on(ClockKind::Boot);
            if road.proves_nothing {
                return Vec::new();
            }
        }
        let answers = self.memory.renew(grants).await;
        self.travel();
        let on_the_road = |answer| match answer {
            Renewed::Extended(proof) => Renewed::Extended(self.proof(proof)),
            other => other,
        };
        answers.into_iter().map(on_the_road).collect()
    }

    async fn subscribe(&self, _: &Claim) -> Result<Hint, Error> {
        let freed = self.road.lock().freed_at_subscription.take();
        if let Some(grant) = freed {
            let _ = self.memory.release(&grant).await;
        }
        Ok(Hint::never())
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn far() -> (Far, LockManager) {
    on(Road::default())
}

fn on(road: Road) -> (Far, LockManager) {
    let clock = ManualClock::new();
    let store = Far {
        memory: MemoryStore::with_clock(clock.clone()),
        clock: clock.clone(),
        road: Arc::new(Mutex::new(road)),
    };
    let locks = LockManager::builder(Over(store.clone()))
        .clock(clock)
        .build()
        .unwrap();
    (store, locks)
}

fn usable(ttl: Duration) -> Duration {
    Settings::default().usable_ttl(ttl)
}

async fn pass(store: &Far, locks: &LockManager, span: Duration) {
    let steps = span.as_millis() / 100;
    for _ in 0..steps {
        store.clock.advance(ms(100));
        locks.settled().await;
    }
}

#[tokio::test]
async fn a_grant_counts_from_before_its_request_left() {
    let (store, locks) = far();
    store.road.lock().travels = ms(400);
    let guard = locks.lock("a").acquire().await.unwrap();
    assert_eq!(guard.remaining(), usable(secs(10)) - ms(400));
}

#[tokio::test]
async fn a_renewal_counts_from_before_its_request_left() {
    let (store, locks) = far();
    let guard = locks.lock("a").acquire().await.unwrap();
    store.road.lock().travels = ms(400);
    pass(&store, &locks, secs(4)).await;
    let now = Clock::from(store.clock.clone()).stamp().on(ClockKind::Boot);
    let since = {
        let road = store.road.lock();
        assert_eq!(road.renewals, 1, "the one whose answer travelled");
        Duration::from_nanos(now - road.renewed_at)
    };
    assert_eq!(guard.remaining(), usable(secs(10)) - since);
}

#[tokio::test]
async fn a_lease_counts_what_was_granted_and_not_what_was_asked_for() {
    let (store, locks) = far();
    store.road.lock().grants = Some(secs(4));
    let guard = locks.lock("a").acquire().await.unwrap();
    assert_eq!(guard.remaining(), usable(secs(4)));
    pass(&store, &locks, secs(20)).await;
    assert!(
        guard.lease().is_live(),
        "renewed at the rhythm of what is granted"
    );
    assert!(guard.remaining() <= usable(secs(4)));
}

/// "What is left" by the server's clock is long after that clock has gone back.
#[tokio::test]
async fn a_store_that_answers_more_than_was_asked_for_makes_no_lease_longer() {
    let (store, locks) = far();
    store.road.lock().grants = Some(secs(3_600));
    let guard = locks.lock("a").acquire().await.unwrap();
    assert_eq!(guard.remaining(), usable(secs(10)));
    pass(&store, &locks, secs(4)).await;
    assert!(store.road.lock().renewals > 0);
    assert!(guard.remaining() <= usable(secs(10)));
}

/// The settings do not say which.
#[tokio::test]
async fn a_store_with_one_ttl_for_all_locks_says_how_long_a_lease_is() {
    let (_store, locks) = on(Road {
        grants: Some(secs(60)),
        has_one_ttl: true,
        ..Road::default()
    });
    let guard = locks.lock("a").acquire().await.unwrap();
    assert_eq!(guard.remaining(), usable(secs(60)));
}

#[tokio::test]
async fn each_lease_of_a_batch_counts_its_own_ttl() {
    let (store, locks) = far();
    let mut held = Vec::new();
    for (name, ttl) in [("a", 10), ("b", 6), ("c", 10), ("d", 8)] {
        let guard = locks.lock(name).ttl(secs(ttl)).acquire().await.unwrap();
        held.push((guard, secs(ttl)));
    }
    // All are due at once, and the shortest has time enough for an ordinary call.
    store.clock.advance(ms(3_500));
    locks.settled().await;
    assert_eq!(store.road.lock().renewals, 1, "one call for all");
    for (guard, ttl) in held {
        assert_eq!(guard.remaining(), usable(ttl), "{ttl:?}");
    }
}

#[tokio::test]
async fn a_grant_with_less_than_min_usable_left_is_given_back() {
    let (store, locks) = far();
    let min_usable = Settings::default().min_usable;
    store.road.lock().travels = usable(secs(10)) - min_usable + Duration::from_nanos(1);
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    locks.settled().await;
    assert!(
        locks.inspect("a").await.unwrap().is_none(),
        "it was not given back"
    );

    store.road.lock().travels = usable(secs(10)) - min_usable;
    let guard = locks.lock("a").try_acquire().await.unwrap().unwrap();
    // More, if the manager has renewed it already.
    assert!(guard.remaining() >= min_usable);
}

/// Its caller broke no rule.
#[tokio::test]
async fn a_claim_that_was_revoked_between_two_copies_of_its_request_is_made_anew() {
    let (store, locks) = far();
    for _ in 0..2 {
        store.road.lock().revoked_between_copies = true;
        let guard = locks.lock("a").try_acquire().await.unwrap();
        assert!(guard.expect("it is free").lease().is_live());
        locks.settled().await;
    }
}

#[tokio::test]
async fn an_answer_that_proves_nothing_renews_nothing() {
    let (store, locks) = far();
    let guard = locks.lock("a").acquire().await.unwrap();
    store.road.lock().proves_nothing = true;
    pass(&store, &locks, secs(9)).await;
    let asked = store.road.lock().renewals;
    assert!(
        asked > 3,
        "asked {asked} times only, though the deadline came near"
    );
    assert!(guard.lease().is_at_risk() && guard.lease().is_live());
    assert_eq!(guard.remaining(), usable(secs(10)) - secs(9));
    pass(&store, &locks, secs(1)).await;
    assert!(!guard.lease().is_live());
}

#[tokio::test]
async fn a_release_between_the_look_and_the_subscription_is_not_missed() {
    let (store, locks) = far();
    let owner = leasehold::store::OwnerToken::generate().unwrap();
    let claim = Claim::new(
        "a".parse().unwrap(),
        owner,
        leasehold::store::Label::parse("other").unwrap(),
        secs(30),
    );
    let Ok(Acquired::Granted(grant)) = store.memory.acquire(&claim).await else {
        panic!("nobody else wants it");
    };
    store.road.lock().freed_at_subscription = Some(grant);
    let lock = locks.lock("a");
    let mut acquire = Box::pin(lock.acquire());
    // No time passes: who waits for a poll or for the holder's end waits in vain.
    for _ in 0..100 {
        if let std::task::Poll::Ready(guard) = poll_once(acquire.as_mut()).await {
            assert!(guard.unwrap().lease().is_live());
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it did not look again after it had subscribed");
}
