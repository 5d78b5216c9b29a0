//! What is withheld keeps the others out for its whole time, also if its manager ends earlier (I5).

use std::sync::Arc;

use leasehold::clock::ManualClock;
use leasehold::store::{MemoryStore, Store};
use leasehold::{Error, Key, LockGuard, LockManager, Settings};
use tokio::sync::Notify;

use crate::support::in_doubt::leave_in_doubt;
use crate::support::over::{Changes, Over};
use crate::support::{ms, poll_once, secs};

/// The memory store, which reports that its manager has ended.
#[derive(Clone, Debug)]
struct Reporting {
    memory: MemoryStore,
    closed: Arc<Notify>,
}

impl Changes for Reporting {
    type Store = MemoryStore;

    fn beneath(&self) -> &MemoryStore {
        &self.memory
    }

    async fn close(&self) -> Result<(), Error> {
        self.closed.notify_one();
        self.memory.close().await
    }
}

/// Why a hold is withheld.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Why {
    /// Its commit had no answer, and its guard was released.
    InDoubt,
    /// Its commit had no answer, and its guard lives on.
    InDoubtAndHeld,
    /// A run under it never ends.
    Undrained,
    /// Its lease lapsed, and it has a lock delay.
    LockDelay,
    /// The same, and its guard lives on: nobody has noticed.
    LockDelayUnnoticed,
}

/// How its manager ends.
#[derive(Clone, Copy, Debug)]
enum How {
    Shutdown,
    Drop,
}

const TTL: u64 = 10;
const LOCK_DELAY: u64 = 5;

struct Scene {
    clock: ManualClock,
    store: Reporting,
    key: Key,
}

impl Scene {
    async fn is_free(&self) -> bool {
        self.store
            .memory
            .inspect(&self.key)
            .await
            .unwrap()
            .is_none()
    }

    /// Ends the manager while time passes, and looks at the key until the hold's time is over.
    async fn end(&self, locks: LockManager, how: How) -> u64 {
        let mut ending = Box::pin(async {
            match how {
                How::Shutdown => locks.shutdown().await,
                How::Drop => drop(locks),
            }
            self.store.closed.notified().await;
        });
        let mut passed = 0;
        let mut has_ended = false;
        while !self.is_free().await {
            // The manager does what is due before more time passes.
            for _ in 0..200 {
                has_ended = has_ended || poll_once(&mut ending).await.is_ready();
                tokio::task::yield_now().await;
            }
            self.clock.advance(ms(100));
            passed += 100;
        }
        assert!(has_ended || poll_once(&mut ending).await.is_ready());
        passed
    }
}

/// Brings the hold into its state. What is returned lives on.
async fn withhold(scene: &Scene, guard: LockGuard, why: Why) -> Option<LockGuard> {
    match why {
        Why::InDoubt => {
            leave_in_doubt(&guard.executor());
            guard.release().await.unwrap();
            None
        }
        Why::InDoubtAndHeld => {
            leave_in_doubt(&guard.executor());
            Some(guard)
        }
        Why::Undrained => {
            let executor = guard.executor();
            let mut run = Box::pin(async move {
                let run = executor.guarded_async(async |_| {
                    std::future::pending::<()>().await;
                    Ok(())
                });
                run.await.map(drop)
            });
            assert!(poll_once(&mut run).await.is_pending());
            std::mem::forget(run);
            Some(guard)
        }
        Why::LockDelay | Why::LockDelayUnnoticed => {
            // At one go, so that no renewal comes in between.
            scene.clock.advance(secs(TTL));
            if why == Why::LockDelay {
                guard.release().await.unwrap();
                return None;
            }
            Some(guard)
        }
    }
}

#[tokio::test]
async fn what_is_withheld_keeps_the_others_out_after_the_end_of_its_manager() {
    for how in [How::Shutdown, How::Drop] {
        for (why, expected) in [
            (Why::InDoubt, TTL),
            (Why::InDoubtAndHeld, TTL),
            (Why::Undrained, TTL),
            (Why::LockDelay, LOCK_DELAY),
            (Why::LockDelayUnnoticed, LOCK_DELAY),
        ] {
            let clock = ManualClock::new();
            let scene = Scene {
                store: Reporting {
                    memory: MemoryStore::with_clock(clock.clone()),
                    closed: Arc::default(),
                },
                key: "a".parse().unwrap(),
                clock: clock.clone(),
            };
            let mut settings = Settings::default();
            settings.ttl = secs(TTL);
            // On this thread: the manager does what is due when the test yields, and never later.
            let locks = LockManager::builder(Over(scene.store.clone()))
                .clock(clock)
                .settings(settings)
                .on_current_runtime()
                .build()
                .unwrap();
            let delay = match why {
                Why::LockDelay | Why::LockDelayUnnoticed => LOCK_DELAY,
                _ => 0,
            };
            let lock = locks.lock("a").lock_delay(secs(delay));
            let guard = lock.acquire().await.unwrap();
            let kept = withhold(&scene, guard, why).await;
            drop(lock);
            let passed = match how {
                How::Shutdown => {
                    let passed = scene.end(locks, how).await;
                    drop(kept);
                    passed
                }
                How::Drop => {
                    drop(kept);
                    scene.end(locks, how).await
                }
            };
            assert_eq!(passed, expected * 1_000, "{why:?}, {how:?}");
        }
    }
}
