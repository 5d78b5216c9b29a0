//! The suite for authors of stores.

use std::time::Duration;

use leasehold::Error;
use leasehold::clock::Clock;
use leasehold::kubernetes::KubernetesStore;
use leasehold::testing::conformance;
use leasehold::testing::conformance::Harness;

use crate::kubernetes::api_server::ApiServer;

struct OnServer(ApiServer);

impl Harness for OnServer {
    type Store = KubernetesStore;

    async fn client(&self) -> Result<KubernetesStore, Error> {
        KubernetesStore::connect(&self.0.url()).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn clock(&self) -> Clock {
        Clock::system().unwrap()
    }
}

#[tokio::test]
async fn leases_on_an_api_server_keep_the_contract() {
    let report = conformance::run(&OnServer(ApiServer::start().await)).await;
    println!("{report}");
    report.assert_passed();
}
