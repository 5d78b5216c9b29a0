//! The suite for authors of stores, over an object storage in memory.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Error;
use leasehold::bucket::BucketStore;
use leasehold::bucket::object_store::memory::InMemory;
use leasehold::clock::{Clock, ManualClock};
use leasehold::testing::conformance::{self, Harness};

/// How often other tasks get a turn when the clock was moved.
const TURNS: usize = 64;

struct OnMemory {
    clock: ManualClock,
    objects: Arc<InMemory>,
}

impl Harness for OnMemory {
    type Store = BucketStore;

    async fn client(&self) -> Result<BucketStore, Error> {
        BucketStore::over(self.objects.clone(), "app/locks", self.clock()).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn clock(&self) -> Clock {
        self.clock.clone().into()
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn locks_in_memory_objects_keep_the_contract() {
    let harness = OnMemory {
        clock: ManualClock::new(),
        objects: Arc::new(InMemory::new()),
    };
    let report = conformance::run(&harness).await;
    println!("{report}");
    report.assert_passed();
}
