//! What the log says about renewals that fail: each thing once, with its cause.
use leasehold::LockManager;
use leasehold::clock::ManualClock;
use leasehold::store::{Faulty, MemoryStore, Operation};

use crate::support::log;
use crate::support::ms;

struct Scene {
    clock: ManualClock,
    network: Faulty<MemoryStore>,
    locks: LockManager,
}

impl Scene {
    fn new() -> Self {
        log::keep();
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let network = Faulty::new(store, clock.clone(), 7);
        let locks = LockManager::builder(network.clone()).clock(clock.clone());
        let locks = locks.build().unwrap();
        Self {
            clock,
            network,
            locks,
        }
    }

    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.clock.advance(ms(100));
            self.locks.settled().await;
        }
    }
}

#[tokio::test]
async fn renewals_that_fail_are_reported_once_and_so_is_the_store_that_answers_again() {
    let scene = Scene::new();
    let guard = scene.locks.lock("log/shaky").acquire().await.unwrap();
    scene.network.block(Operation::Renew);
    scene.pass(7).await;
    scene.network.unblock(Operation::Renew);
    scene.pass(7).await;
    assert!(guard.lease().is_live());
    let warned = log::lines(&["WARN", "renewals fail", "key=log/shaky "]);
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(
        warned[0].contains("remaining=") && warned[0].contains("error="),
        "{warned:?}"
    );
    assert!(!log::lines(&["INFO", "store reachable again"]).is_empty());
}

#[tokio::test]
async fn a_lost_lease_is_reported_once_with_the_last_error_and_for_how_long_renewals_failed() {
    let scene = Scene::new();
    let guard = scene.locks.lock("log/lost").acquire().await.unwrap();
    scene.network.block(Operation::Renew);
    scene.pass(12).await;
    assert!(!guard.lease().is_live());
    let warned = log::lines(&["WARN", "lease lost", "key=log/lost "]);
    assert_eq!(warned.len(), 1, "{warned:?}");
    for field in ["reason=", "last_error=", "failing_for="] {
        assert!(warned[0].contains(field), "{warned:?}");
    }
}
