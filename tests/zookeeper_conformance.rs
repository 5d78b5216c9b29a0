//! The behaviour suite on a real ZooKeeper, in both modes and behind a prefix.
#![allow(clippy::unwrap_used)]

#[path = "support/cutter.rs"]
mod proxy;
#[path = "support/zookeeper.rs"]
mod zookeeper;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::conformance::{self, Harness};
use leasehold::store::zookeeper::{Mode, ZooKeeperStore};
use leasehold::store::{Prefix, Store};
use leasehold::{Clock, Error};
use proxy::Proxy;
use zookeeper::{Server, options};

/// Clients of one server, each behind a proxy of its own, by which it is cut off without a farewell.
struct OnServer<F> {
    server: Arc<Server>,
    mode: Mode,
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
        let store = ZooKeeperStore::open(options, self.clock()).await?;
        self.proxies.lock().unwrap().push(proxy);
        Ok((self.wrap)(store))
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
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

async fn suite<S: Store>(mode: Mode, wrap: impl Fn(ZooKeeperStore) -> S + Sync) {
    let harness = OnServer {
        server: Server::shared(),
        mode,
        wrap,
        proxies: Mutex::default(),
    };
    let report = conformance::run(&harness).await;
    println!("{report}");
    report.assert_passed();
}

#[tokio::test]
async fn the_queue_keeps_every_clause() {
    suite(Mode::Queue, |store| store).await;
}

#[tokio::test]
async fn the_simple_lock_keeps_every_clause() {
    suite(Mode::Simple, |store| store).await;
}

#[tokio::test]
async fn the_queue_behind_a_prefix_keeps_every_clause() {
    suite(Mode::Queue, |store| Prefix::new(store, "app/").unwrap()).await;
}
