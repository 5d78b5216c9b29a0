//! The suite for authors of stores, over an API server.

use std::time::Duration;

use leasehold::Error;
use leasehold::clock::Clock;
use leasehold::kubernetes::KubernetesStore;
use leasehold::testing::conformance;
use leasehold::testing::conformance::Harness;

/// Where the server is.
struct At(String);

impl Harness for At {
    type Store = KubernetesStore;

    async fn client(&self) -> Result<KubernetesStore, Error> {
        KubernetesStore::connect(&self.0).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn clock(&self) -> Clock {
        Clock::system().unwrap()
    }
}

pub(crate) async fn keeps_the_contract(url: String) {
    let report = conformance::run(&At(url)).await;
    println!("{report}");
    report.assert_passed();
}
