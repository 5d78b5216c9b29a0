//! What a fenced transaction in PostgreSQL costs, against the same transaction without a fence;
//! what a lock in it costs, against the row that a lock by hand needs and against an advisory lock;
//! how long a hand-off and 1,000 renewals take. On one real server that waits for its disk.
//!
//! Rounds of all that are compared are interleaved, so that a busy machine slows them alike; the
//! medians are compared.
#![allow(clippy::unwrap_used)]

#[path = "../tests/support/postgres.rs"]
mod server;

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::postgres::{PgFence, PostgresStore, tokio_postgres};
use leasehold::store::{Acquired, Claim, Grant, Label, OwnerToken, Renewed, Store};
use leasehold::testing::TestHold;
use leasehold::{Executor, FencingToken, LockManager, Settings};
use server::PgServer;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};

const ROUNDS: usize = 1_000;
const ADD: &str = "UPDATE account SET cents = cents + $1 WHERE id = 1";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // `cargo test --benches` asks every bench for a short run.
    let is_test = std::env::args().any(|argument| argument == "--test");
    let rounds = if is_test { ROUNDS / 100 } else { ROUNDS };
    for fsync in ["on", "off"] {
        let server = PgServer::start_with(&[&format!("fsync={fsync}")]);
        compare(&server, fsync, rounds).await;
        // The store refuses a server that may forget locks.
        if fsync == "on" {
            locks(&server, rounds).await;
        }
    }
}

async fn compare(server: &PgServer, fsync: &str, rounds: usize) {
    let fence = PgFence::connect(&server.url()).await.unwrap();
    fence.create_schema().await.unwrap();
    let pipelined = fence.clone().pipelined();
    server.psql("CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL); INSERT INTO account VALUES (1, 0)");
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let clock = Clock::system().unwrap();
    let token = FencingToken::new(1).unwrap();
    let ttl = Duration::from_secs(600);
    let hold = TestHold::new(
        clock.clone(),
        &Settings::default(),
        "a".parse().unwrap(),
        token,
        ttl,
    );
    let executor = hold.executor();
    let mut spans = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let began = clock.stamp();
        transaction(&client, "BEGIN", "COMMIT").await;
        let first = clock.stamp();
        transaction(&client, "BEGIN; SELECT 1", "SELECT 1; COMMIT").await;
        let second = clock.stamp();
        fenced(&executor, &fence).await;
        let third = clock.stamp();
        fenced(&executor, &pipelined).await;
        spans[0].push(first.since(&began));
        spans[1].push(second.since(&first));
        spans[2].push(third.since(&second));
        spans[3].push(clock.stamp().since(&third));
    }
    let [plain, floor, ours, pipelined] = spans.map(median);
    println!(
        "transaction            fsync={fsync:<4} plain {plain:>9.1?}  with two more empty statements {floor:>9.1?} ({:.2})  fenced {ours:>9.1?} ({:.2})  pipelined {pipelined:>9.1?} ({:.2})",
        ratio(floor, plain),
        ratio(ours, plain),
        ratio(pipelined, plain)
    );
}

const INSERT: &str = "INSERT INTO held VALUES ('k', $1, clock_timestamp() + interval '10 s') \
     ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, ends = excluded.ends WHERE held.ends < clock_timestamp()";
const DELETE: &str = "DELETE FROM held WHERE key = 'k' AND owner = $1";
const LOCK: &str = "SELECT pg_advisory_lock($1)";
const UNLOCK: &str = "SELECT pg_advisory_unlock($1)";
const TOUCH: &str = "UPDATE held SET ends = ends WHERE key = 'touched'";
const HOLDS: usize = 1_000;

/// Acquire and release against a row that is inserted and deleted; then renewals of many holds.
async fn locks(server: &PgServer, rounds: usize) {
    let url = format!("{}?create=auto", server.url());
    let store = PostgresStore::connect(&url).await.unwrap();
    server.psql(
        "CREATE TABLE held (key text PRIMARY KEY, owner text NOT NULL, ends timestamptz NOT NULL); INSERT INTO held VALUES ('touched', '', now())",
    );
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let clock = Clock::system().unwrap();
    let owner: [(&(dyn ToSql + Sync), Type); 1] = [(&"an owner", Type::TEXT)];
    let key: [(&(dyn ToSql + Sync), Type); 1] = [(&7_i64, Type::INT8)];
    let mut spans = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let began = clock.stamp();
        client.execute_typed("SELECT 1", &[]).await.unwrap();
        let first = clock.stamp();
        client.execute_typed(INSERT, &owner).await.unwrap();
        client.execute_typed(DELETE, &owner).await.unwrap();
        let second = clock.stamp();
        let held = grant(&store, "k").await;
        let _ = store.release(&held).await;
        let third = clock.stamp();
        client.execute_typed(LOCK, &key).await.unwrap();
        client.execute_typed(UNLOCK, &key).await.unwrap();
        spans[0].push(first.since(&began));
        spans[1].push(second.since(&first));
        spans[2].push(third.since(&second));
        spans[3].push(clock.stamp().since(&third));
    }
    let [trip, floor, ours, advisory] = spans.map(median);
    println!(
        "acquire and release    fsync=on   a row by hand {floor:>9.1?}  ours {ours:>9.1?} ({:.2})  advisory lock {advisory:>9.1?}  round trip {trip:>9.1?}",
        ratio(ours, floor)
    );
    handoffs(&url, &client, rounds.div_ceil(10)).await;
    let mut held = Vec::new();
    for number in 0..HOLDS {
        held.push(grant(&store, &format!("h{number}")).await);
    }
    let mut spans = Vec::new();
    for _ in 0..rounds.div_ceil(20) {
        let began = clock.stamp();
        let renewed = store.renew(&held).await;
        spans.push(clock.stamp().since(&began));
        assert!(
            renewed
                .iter()
                .all(|one| matches!(one, Renewed::Extended(_)))
        );
    }
    println!(
        "{HOLDS} renewals         fsync=on   one statement {:.1?}",
        median(spans)
    );
}

/// From the release of one manager to the guard of another that waits, against a statement that
/// waits for the disk.
async fn handoffs(url: &str, client: &Client, rounds: usize) {
    let clock = Clock::system().unwrap();
    let [one, other] = [
        LockManager::connect(url).await.unwrap(),
        LockManager::connect(url).await.unwrap(),
    ];
    let waiting = "SELECT count(*) FROM leasehold.claim WHERE key = 'handed' AND token IS NULL";
    let (mut durable, mut spans) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let began = clock.stamp();
        client.execute_typed(TOUCH, &[]).await.unwrap();
        durable.push(clock.stamp().since(&began));
        let held = one.lock("handed").acquire().await.unwrap();
        let waiter = other.clone();
        let next = tokio::spawn(async move { waiter.lock("handed").acquire().await.unwrap() });
        // When it has a place it subscribes and asks once more: a few round trips.
        let mut looks = 0;
        while looks < 20 {
            let row = client.query_typed_one(waiting, &[]).await.unwrap();
            looks += usize::from(row.get::<_, i64>(0) > 0);
        }
        let began = clock.stamp();
        let _ = held.release().await;
        let next = next.await.unwrap();
        spans.push(clock.stamp().since(&began));
        let _ = next.release().await;
    }
    let (durable, span) = (median(durable), median(spans));
    println!(
        "hand-off               fsync=on   {span:>9.1?}  one statement on disk {durable:>9.1?} ({:.2})",
        ratio(span, durable)
    );
}

async fn grant(store: &PostgresStore, key: &str) -> Grant {
    let label = Label::parse("a bench").unwrap();
    let ttl = Duration::from_secs(30);
    let owner = OwnerToken::generate().unwrap();
    let claim = Claim::new(key.parse().unwrap(), owner, label, ttl);
    match store.acquire(&claim).await.unwrap() {
        Acquired::Granted(held) => held,
        other => panic!("not granted: {other:?}"),
    }
}

fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort_unstable();
    spans[spans.len() / 2]
}

fn ten() -> [(&'static (dyn ToSql + Sync), Type); 1] {
    [(&10_i64, Type::INT8)]
}

fn ratio(ours: Duration, floor: Duration) -> f64 {
    ours.as_secs_f64() / floor.as_secs_f64()
}

async fn transaction(client: &Client, first: &str, last: &str) {
    client.batch_execute(first).await.unwrap();
    client.execute_typed(ADD, &ten()).await.unwrap();
    client.batch_execute(last).await.unwrap();
}

async fn fenced(executor: &Executor, fence: &PgFence) {
    let call = fence.transaction(async |t| {
        t.execute_typed(ADD, &ten()).await?;
        t.done(())
    });
    let _ = executor.commit(call).await.unwrap();
}
