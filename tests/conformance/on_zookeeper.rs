//! A real ZooKeeper through each driver, in both modes and behind a prefix.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Error;
use leasehold::clock::Clock;
use leasehold::conformance::{self, Harness, Report};
use leasehold::store::zookeeper::{DriverKind, ZooKeeperMode, ZooKeeperStore};
use leasehold::store::{Prefix, Store};

use crate::proxy::Proxy;
use crate::zookeeper::{Server, options};

/// Clients of one server, each behind a proxy of its own, by which it is cut off without a farewell.
struct OnServer<F> {
    server: Arc<Server>,
    mode: ZooKeeperMode,
    driver: DriverKind,
    wrap: F,
    /// In the order in which the clients were made.
    proxies: Mutex<Vec<Proxy>>,
}

impl<S: Store, F: Fn(ZooKeeperStore) -> S + Sync> Harness for OnServer<F> {
    type Store = S;

    async fn client(&self) -> Result<S, Error> {
        let proxy = Proxy::to(self.server.port);
        let mut options = options(&format!("127.0.0.1:{}", proxy.port), "/conformance");
        options.session_timeout = self.ttl();
        options.mode = self.mode;
        options.driver = self.driver;
        let store = ZooKeeperStore::open(options, self.clock()).await?;
        self.proxies.lock().unwrap().push(proxy);
        Ok((self.wrap)(store))
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn clock(&self) -> Clock {
        Clock::system().unwrap()
    }

    /// A case crashes the client that it made last.
    async fn crash(&self, client: S) {
        self.proxies
            .lock()
            .unwrap()
            .last()
            .expect("it was made here")
            .stall();
        drop(client);
    }
}

async fn suite<S: Store>(
    mode: ZooKeeperMode,
    driver: DriverKind,
    wrap: impl Fn(ZooKeeperStore) -> S + Sync,
) -> Report {
    let harness = OnServer {
        server: Server::shared(),
        mode,
        driver,
        wrap,
        proxies: Mutex::default(),
    };
    conformance::run(&harness).await
}

pub(crate) async fn queue() -> Report {
    suite(ZooKeeperMode::Queue, DriverKind::Client, |store| store).await
}

pub(crate) async fn simple() -> Report {
    suite(ZooKeeperMode::Simple, DriverKind::Client, |store| store).await
}

pub(crate) async fn behind_a_prefix() -> Report {
    let wrap = |store| Prefix::new(store, "app/").unwrap();
    suite(ZooKeeperMode::Queue, DriverKind::Client, wrap).await
}

pub(crate) async fn queue_by_the_second_driver() -> Report {
    suite(ZooKeeperMode::Queue, DriverKind::Async, |store| store).await
}

pub(crate) async fn simple_by_the_second_driver() -> Report {
    suite(ZooKeeperMode::Simple, DriverKind::Async, |store| store).await
}

pub(crate) async fn behind_a_prefix_by_the_second_driver() -> Report {
    let wrap = |store| Prefix::new(store, "app/").unwrap();
    suite(ZooKeeperMode::Queue, DriverKind::Async, wrap).await
}
