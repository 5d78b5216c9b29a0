//! A real ZooKeeper through each driver, in both modes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Error;
use leasehold::clock::Clock;
use leasehold::testing::conformance;
use leasehold::testing::conformance::{Harness, Report};
use leasehold::zookeeper::{DriverKind, ZooKeeperMode, ZooKeeperStore};

use crate::proxy::Proxy;
use crate::zookeeper::{Server, options};

/// Clients of one server, each behind a proxy of its own, by which it is cut off without a
/// farewell.
struct OnServer {
    server: Arc<Server>,
    mode: ZooKeeperMode,
    driver: DriverKind,
    /// In the order in which the clients were made.
    proxies: Mutex<Vec<Proxy>>,
}

impl Harness for OnServer {
    type Store = ZooKeeperStore;

    async fn client(&self) -> Result<ZooKeeperStore, Error> {
        let proxy = Proxy::to(self.server.port);
        let mut options = options(&format!("127.0.0.1:{}", proxy.port), "/conformance");
        options.session_timeout = self.ttl();
        options.mode = self.mode;
        options.driver = self.driver;
        let store = ZooKeeperStore::open(options, self.clock()).await?;
        self.proxies.lock().unwrap().push(proxy);
        Ok(store)
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn clock(&self) -> Clock {
        Clock::system().unwrap()
    }

    /// A case crashes the client that it made last.
    async fn crash(&self, client: ZooKeeperStore) {
        self.proxies
            .lock()
            .unwrap()
            .last()
            .expect("it was made here")
            .stall();
        drop(client);
    }
}

async fn suite(mode: ZooKeeperMode, driver: DriverKind) -> Report {
    let harness = OnServer {
        server: Server::shared(),
        mode,
        driver,
        proxies: Mutex::default(),
    };
    conformance::run(&harness).await
}

pub(crate) async fn queue() -> Report {
    suite(ZooKeeperMode::Queue, DriverKind::Client).await
}

pub(crate) async fn simple() -> Report {
    suite(ZooKeeperMode::Simple, DriverKind::Client).await
}

pub(crate) async fn queue_by_the_second_driver() -> Report {
    suite(ZooKeeperMode::Queue, DriverKind::Async).await
}

pub(crate) async fn simple_by_the_second_driver() -> Report {
    suite(ZooKeeperMode::Simple, DriverKind::Async).await
}
