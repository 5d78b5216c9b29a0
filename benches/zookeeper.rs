//! What a lock in ZooKeeper costs, against what the same client needs for the bare requests, on one
//! real server.
//!
//! - `uncontended`: acquire and confirmed release, against create + children + delete.
//! - `handoff`: with 15 contenders, each with a session of its own, from the delete of one to the
//!   start of the next, against a bare watch and children. Packets to the server are counted, apart
//!   for joining the queue and for the hand-offs.
//!
//! Rounds of both are interleaved, so that a busy machine harms both alike; the medians are
//! compared.
#![allow(clippy::unwrap_used)]

#[path = "../tests/support/zookeeper.rs"]
mod zookeeper;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::LockManager;
use leasehold::clock::{Clock, Stamp};
use leasehold::store::{Released, Store};
use leasehold::zookeeper::ZooKeeperStore;
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
        assert!(matches!(guard.release().await, Ok(Released::Released)));
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
    let (mut floor, mut ours, mut packets) = (Vec::new(), Vec::new(), [Packets::default(); 2]);
    for _ in 0..rounds {
        floor.extend(raw_turns(server, &clients, &mut packets[0]).await);
        ours.extend(our_turns(server, &stores, &mut packets[1]).await);
    }
    for (who, packets) in ["floor", "ours"].iter().zip(packets) {
        let each = |all: u64| all as f64 / (rounds * CONTENDERS) as f64;
        println!(
            "packets to the server, {who}: {:.1} for each that joins, {:.1} for each hand-off, pings and heartbeats included",
            each(packets.joining),
            each(packets.handing_on)
        );
    }
    report("handoff, 15 contenders", floor, ours);
}

/// Packets of all rounds.
#[derive(Clone, Copy, Default)]
struct Packets {
    joining: u64,
    handing_on: u64,
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

async fn raw_turns(server: &Server, clients: &[Client], packets: &mut Packets) -> Vec<Duration> {
    let turns = Arc::new(Turns::default());
    let before = received(server);
    let mut names: Vec<String> = Vec::new();
    let mut watchers = Vec::new();
    for client in clients {
        let (_, sequence) = client
            .create("/bench/turns/x-", b"tester", &sequential())
            .await
            .unwrap();
        watchers.push(match names.last() {
            Some(before) => {
                let path = format!("/bench/turns/{before}");
                Some(client.get_and_watch_data(&path).await.unwrap().2)
            }
            None => None,
        });
        names.push(format!("x-{sequence}"));
    }
    let joined = received(server);
    let tasks = clients.iter().zip(watchers).zip(names);
    let tasks = tasks.map(|((client, watcher), own)| {
        let (client, turns, clock) = (client.clone(), Arc::clone(&turns), Clock::system().unwrap());
        tokio::spawn(async move {
            if let Some(watcher) = watcher {
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
    packets.joining += joined - before;
    packets.handing_on += received(server) - joined;
    turns.spans()
}

async fn our_turns(
    server: &Server,
    stores: &[ZooKeeperStore],
    packets: &mut Packets,
) -> Vec<Duration> {
    let turns = Arc::new(Turns::default());
    let before = received(server);
    let mut waiting = Vec::new();
    let first = granted(&stores[0], &claim("turns")).await;
    // As a manager does: look, subscribe, look again.
    for store in &stores[1..] {
        let claim = claim("turns");
        assert!(is_busy(store, &claim).await);
        let hint = store.subscribe(&claim).await.unwrap();
        assert!(is_busy(store, &claim).await);
        waiting.push((store.clone(), claim, hint));
    }
    let joined = received(server);
    let tasks = waiting.into_iter().map(|(store, claim, hint)| {
        let (turns, clock) = (Arc::clone(&turns), Clock::system().unwrap());
        tokio::spawn(async move {
            hint.await;
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
    packets.joining += joined - before;
    packets.handing_on += received(server) - joined;
    turns.spans()
}
