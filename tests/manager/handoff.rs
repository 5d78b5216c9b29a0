//! A hot lock: what one process hands on costs the store nothing, and the others get their turn.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::over::{Changes, Over};
use crate::support::{World, held_and_waited_for, secs, while_time_passes};
use leasehold::clock::ManualClock;
use leasehold::store::{
    Acquired, Capability, Claim, Grant, Hint, LockInfo, MemoryStore, Queue, Released, Store,
};
use leasehold::{Error, FencingToken, Key, LockManager, Settings};
use tokio::task::JoinSet;

/// How many turns of the runtime a request, or an answer, is on its way.
const WAY: usize = 8;

/// A memory store that is some way off.
#[derive(Clone, Debug)]
struct Far {
    store: MemoryStore,
    /// Whether claims that wait get a place.
    queues: bool,
}

impl Far {
    fn with_queue(clock: &ManualClock) -> Over<Self> {
        let store = MemoryStore::with_clock(clock.clone());
        Over(Self {
            store,
            queues: true,
        })
    }

    fn without_queue(clock: &ManualClock) -> Over<Self> {
        let Over(far) = Self::with_queue(clock);
        Over(Self {
            queues: false,
            ..far
        })
    }
}

async fn way() {
    for _ in 0..WAY {
        tokio::task::yield_now().await;
    }
}

async fn there_and_back<T>(asked: impl Future<Output = T>) -> T {
    way().await;
    let answer = asked.await;
    way().await;
    answer
}

impl Changes for Far {
    type Store = MemoryStore;

    fn beneath(&self) -> &MemoryStore {
        &self.store
    }

    fn capability(&self) -> Capability {
        let mut capability = self.store.capability();
        if !self.queues {
            capability.queue = Queue::None;
        }
        capability
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let mut claim = claim.clone();
        if !self.queues {
            claim.place_ttl = Duration::ZERO;
        }
        there_and_back(self.store.acquire(&claim)).await
    }

    async fn release(&self, grant: &Grant) -> Released {
        there_and_back(self.store.release(grant)).await
    }

    /// A wake-up takes twice as long as an answer: who is woken is always later than who was
    /// answered.
    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        let woken = self.store.subscribe(claim).await?;
        Ok(Hint::new(async {
            woken.await;
            way().await;
            way().await;
        }))
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        there_and_back(self.store.inspect(key)).await
    }
}

/// Who had a section, under which token, in the order of the sections.
type Order = Arc<Mutex<Vec<(usize, FencingToken)>>>;

/// Each process runs `tasks` tasks, each of which has `sections` sections with nothing to do in
/// them.
async fn run(
    processes: &[LockManager],
    tasks: usize,
    sections: usize,
) -> Vec<(usize, FencingToken)> {
    let order = Order::default();
    let mut running = JoinSet::new();
    for (process, locks) in processes.iter().enumerate() {
        for _ in 0..tasks {
            let (lock, order) = (locks.lock("hot"), Arc::clone(&order));
            running.spawn(async move {
                for _ in 0..sections {
                    let guard = lock.acquire().await.unwrap();
                    order.lock().unwrap().push((process, guard.token()));
                    let _ = guard.release().await;
                }
            });
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    drop(running);
    Arc::try_unwrap(order).unwrap().into_inner().unwrap()
}

#[tokio::test]
async fn no_process_has_two_grants_in_a_row_while_another_waits() {
    for far in [Far::with_queue, Far::without_queue] {
        take_turns(far).await;
    }
}

async fn take_turns(far: fn(&ManualClock) -> Over<Far>) {
    const SECTIONS: usize = 50;
    const TASKS: usize = 4;
    let clock = ManualClock::new();
    let store = far(&clock);
    let mut settings = Settings::default();
    settings.handoff_count = 2;
    let processes = [(); 4].map(|()| {
        let locks = LockManager::builder(store.clone()).clock(clock.clone());
        locks.settings(settings.clone()).build().unwrap()
    });
    let order = run(&processes, TASKS, SECTIONS).await;
    assert_eq!(order.len(), processes.len() * TASKS * SECTIONS);
    // Until the first process has nobody left who waits.
    let mut left = [TASKS * SECTIONS; 4];
    let contended = order.iter().position(|(process, _)| {
        left[*process] -= 1;
        left[*process] < TASKS
    });
    let contended = &order[..contended.unwrap()];
    assert!(contended.len() > 100, "{}", contended.len());
    for row in contended.chunk_by(|one, next| one.0 == next.0) {
        assert!(row.len() <= 3, "{} in a row to one process", row.len());
        assert!(row.iter().all(|turn| turn.1 == row[0].1), "two grants");
    }
}

#[tokio::test]
async fn sixteen_tasks_ask_the_store_for_less_than_a_tenth_of_their_sections() {
    let clock = ManualClock::new();
    let store = Far::with_queue(&clock);
    let locks = LockManager::builder(store).clock(clock).build().unwrap();
    let order = run(&[locks], 16, 100).await;
    let grants = order.chunk_by(|one, next| one.1 == next.1).count();
    assert!(grants <= order.len() / 10, "{grants} of {}", order.len());
}

/// The process was stopped between the handoff and the moment at which the caller comes to it.
#[tokio::test]
async fn a_caller_that_comes_too_late_to_a_handoff_asks_again() {
    let world = World::new();
    let (held, waiting) = held_and_waited_for(&world.ours).await;
    let former = held.token();
    held.release().await.unwrap();
    world.clock.advance(secs(11));
    let guard = while_time_passes(&world, secs(20), waiting).await.unwrap();
    assert!(guard.lease().is_live(), "{guard:?}");
    assert!(guard.token() > former);
}
