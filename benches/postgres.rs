//! What a fenced transaction in PostgreSQL costs, against the same transaction without a fence, on one real server that waits
//! for its disk.
//!
//! Rounds of both are interleaved, so that a busy machine slows both alike; the medians are compared.
#![allow(clippy::unwrap_used)]

#[path = "../tests/support/postgres.rs"]
mod server;

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::fence::{PgFence, tokio_postgres};
use leasehold::test_util::TestHold;
use leasehold::{Executor, FencingToken, Settings};
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
    }
}

async fn compare(server: &PgServer, fsync: &str, rounds: usize) {
    let fence = PgFence::connect(&server.url()).await.unwrap();
    fence.create_schema().await.unwrap();
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
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let began = clock.stamp();
        plain(&client).await;
        let middle = clock.stamp();
        fenced(&executor, &fence).await;
        floor.push(middle.since(&began));
        ours.push(clock.stamp().since(&middle));
    }
    let (floor, ours) = (median(floor), median(ours));
    println!(
        "fenced transaction, fsync={fsync:<4} floor {floor:>9.1?}  ours {ours:>9.1?}  ratio {:.2}",
        ours.as_secs_f64() / floor.as_secs_f64()
    );
}

fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort_unstable();
    spans[spans.len() / 2]
}

fn ten() -> [(&'static (dyn ToSql + Sync), Type); 1] {
    [(&10_i64, Type::INT8)]
}

async fn plain(client: &Client) {
    client.batch_execute("BEGIN").await.unwrap();
    client.execute_typed(ADD, &ten()).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
}

async fn fenced(executor: &Executor, fence: &PgFence) {
    let call = fence.transaction(async |t| {
        t.execute_typed(ADD, &ten()).await?;
        t.done(())
    });
    let _ = executor.commit(call).await.unwrap();
}
