//! What a lock in ZooKeeper costs, against what the same client needs for the bare requests, on one real server.
//!
//! - `uncontended`: acquire and confirmed release, against create + children + delete.
//! - `handoff`: with 15 contenders, each with a session of its own, from the delete of one to the start of the next, against
//!   a bare watch and children.
//!
//! Rounds of both are interleaved, so that a busy machine harms both alike; the medians are compared.
#![allow(clippy::unwrap_used)]

#[path = "../tests/support/zookeeper.rs"]
mod zookeeper;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::store::zookeeper::ZooKeeperStore;
use leasehold::store::{Released, Store};
use leasehold::{Clock, LockManager, Stamp};
use zookeeper::{Server, claim, granted, is_busy, store};
use zookeeper_client::{Acls, Client, CreateMode};

const ROUNDS: usize = 2_000;
const CONTENDERS: usize = 15;
const HANDOFF_ROUNDS: usize = 20;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // `cargo test --benches` asks every bench for a short run.
    let part = if std::env::args().any(|argument| argument == "--test") {
        100
    } else {
        1
    };
    let server = Server::start();
    uncontended(&server, ROUNDS / part).await;
    handoff(&server, (HANDOFF_ROUNDS / part).max(1)).await;
}

fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort_unstable();
    spans[spans.len() / 2]
}

fn report(what: &str, floor: Vec<Duration>, ours: Vec<Duration>) {
    let (floor, ours) = (median(floor), median(ours));
    println!(
        "{what:<24} floor {floor:>9.1?}  ours {ours:>9.1?}  ratio {:.2}",
        ours.as_secs_f64() / floor.as_secs_f64()
    );
}

fn sequential() -> zookeeper_client::CreateOptions<'static> {
    CreateMode::EphemeralSequential.with_acls(Acls::anyone_all())
}

async fn client(server: &Server) -> Client {
    Client::connector()
        .with_session_timeout(Duration::from_secs(10))
        .connect(&server.address())
        .await
        .unwrap()
}

async fn uncontended(server: &Server, rounds: usize) {
    let clock = Clock::system().unwrap();
    let raw = client(server).await;
    raw.mkdir(
        "/bench/raw",
        &CreateMode::Persistent.with_acls(Acls::anyone_all()),
    )
    .await
    .unwrap();
    let store = store(server, "/bench").await;
    let locks = LockManager::new(store.clone()).unwrap();
    let lock = locks.lock("managed");
    let (mut floor, mut ours, mut managed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let begin = clock.stamp();
        let (_, sequence) = raw
            .create("/bench/raw/x-", b"tester", &sequential())
            .await
            .unwrap();
        assert_eq!(raw.list_children("/bench/raw").await.unwrap().len(), 1);
        raw.delete(&format!("/bench/raw/x-{sequence}"), None)
            .await
            .unwrap();
        floor.push(clock.stamp().since(&begin));

        let begin = clock.stamp();
        let grant = granted(&store, &claim("k")).await;
        assert!(matches!(store.release(&grant).await, Released::Released));
        ours.push(clock.stamp().since(&begin));

        let begin = clock.stamp();
        let guard = lock.acquire().await.unwrap();
        assert!(matches!(guard.release().await, Released::Released));
        managed.push(clock.stamp().since(&begin));
    }
    report("uncontended, store", floor.clone(), ours);
    report("uncontended, manager", floor, managed);
}

/// When each turn ended and when the next began.
#[derive(Default)]
struct Turns(Mutex<(Option<Stamp>, Vec<Duration>)>);

impl Turns {
    fn begin(&self, now: Stamp) {
        let mut turns = self.0.lock().unwrap();
        if let Some(ended) = turns.0.take() {
            turns.1.push(now.since(&ended));
        }
    }

    fn spans(&self) -> Vec<Duration> {
        std::mem::take(&mut self.0.lock().unwrap().1)
    }

    fn end(&self, now: Stamp) {
        self.0.lock().unwrap().0 = Some(now);
    }
}

async fn handoff(server: &Server, rounds: usize) {
    let mut clients = Vec::new();
    let mut stores = Vec::new();
    for _ in 0..CONTENDERS {
        clients.push(client(server).await);
        stores.push(store(server, "/bench").await);
    }
    clients[0]
        .mkdir(
            "/bench/turns",
            &CreateMode::Persistent.with_acls(Acls::anyone_all()),
        )
        .await
        .unwrap();
    let (mut floor, mut ours, mut requests) = (Vec::new(), Vec::new(), [0, 0]);
    for _ in 0..rounds {
        let before = received(server);
        floor.extend(raw_turns(&clients).await);
        let between = received(server);
        ours.extend(our_turns(&stores).await);
        requests[0] += between - before;
        requests[1] += received(server) - between;
    }
    let per_turn = |all: u64| all as f64 / (rounds * CONTENDERS) as f64;
    println!(
        "packets to the server for each turn, joining, pings and heartbeats included: floor {:.1}  ours {:.1}",
        per_turn(requests[0]),
        per_turn(requests[1])
    );
    report("handoff, 15 contenders", floor, ours);
}

/// How many packets the server has received.
fn received(server: &Server) -> u64 {
    let report = server.ask("mntr").unwrap();
    let line = report
        .lines()
        .find_map(|line| line.strip_prefix("zk_packets_received"))
        .unwrap();
    line.trim().parse().unwrap()
}

async fn raw_turns(clients: &[Client]) -> Vec<Duration> {
    let turns = Arc::new(Turns::default());
    let mut names = Vec::new();
    for client in clients {
        let (_, sequence) = client
            .create("/bench/turns/x-", b"tester", &sequential())
            .await
            .unwrap();
        names.push(format!("x-{sequence}"));
    }
    let tasks = clients.iter().enumerate().map(|(n, client)| {
        let (client, turns, clock) = (client.clone(), Arc::clone(&turns), Clock::system().unwrap());
        let (own, before) = (
            names[n].clone(),
            n.checked_sub(1).map(|before| names[before].clone()),
        );
        tokio::spawn(async move {
            if let Some(before) = before
                && let Ok((_, _, watcher)) = client
                    .get_and_watch_data(&format!("/bench/turns/{before}"))
                    .await
            {
                watcher.changed().await;
            }
            let mut children = client.list_children("/bench/turns").await.unwrap();
            children.sort_unstable();
            assert_eq!(children[0], own);
            turns.begin(clock.stamp());
            turns.end(clock.stamp());
            client
                .delete(&format!("/bench/turns/{own}"), None)
                .await
                .unwrap();
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    turns.spans()
}

async fn our_turns(stores: &[ZooKeeperStore]) -> Vec<Duration> {
    let turns = Arc::new(Turns::default());
    let claims: Vec<_> = stores.iter().map(|_| claim("turns")).collect();
    let first = granted(&stores[0], &claims[0]).await;
    for (store, claim) in stores.iter().zip(&claims).skip(1) {
        assert!(is_busy(store, claim).await);
    }
    let tasks = stores.iter().zip(claims).skip(1).map(|(store, claim)| {
        let (store, turns, clock) = (store.clone(), Arc::clone(&turns), Clock::system().unwrap());
        tokio::spawn(async move {
            let grant = zookeeper::wait_for(&store, &claim).await;
            turns.begin(clock.stamp());
            turns.end(clock.stamp());
            assert!(matches!(store.release(&grant).await, Released::Released));
        })
    });
    let tasks: Vec<_> = tasks.collect();
    turns.end(Clock::system().unwrap().stamp());
    assert!(matches!(
        stores[0].release(&first).await,
        Released::Released
    ));
    for task in tasks {
        task.await.unwrap();
    }
    turns.spans()
}
