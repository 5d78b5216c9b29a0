//! The fence behind PgBouncer, which gives each transaction any connection to the server.

use std::time::Duration;

use leasehold::RunError;
use leasehold::fence::{Fence, Resolve};
use leasehold::postgres::{PgFence, tokio_postgres};
use leasehold::run::{CommitProof, Resolution};
use tokio_postgres::types::Type;

use crate::proxy::{Fate, Proxy};
use crate::server::PgBouncer;
use crate::world::{Bank, TAKE, connect, hold_for, key, take_ten, token, until};

const LONG: Duration = Duration::from_secs(60);
/// For a run that ends with its lease, and is waited for: short, and longer than a busy machine
/// stands still.
const SHORT: Duration = Duration::from_secs(6);

/// With statements that prepare nothing. `spoil` is called just before `COMMIT` is sent.
async fn take_and(
    ttl: Duration,
    fence: &PgFence,
    spoil: impl FnOnce() + Send + 'static,
) -> Result<i64, RunError<i64>> {
    let call = fence.transaction(async move |t| {
        let rows = t.query_typed(TAKE, &[(&10_i64, Type::INT8)]).await?;
        spoil();
        t.done(rows[0].get(0))
    });
    let done = hold_for(1, ttl).executor().commit(call).await;
    done.map(|done| done.value)
}

#[tokio::test]
async fn behind_a_pooler_transactions_are_fenced_and_leave_nothing_in_its_connections() {
    let bank = Bank::open().await;
    let pooler = PgBouncer::before(bank.server());
    let url = bank.url_at(pooler.port());
    let fence = PgFence::connect(&url).await.unwrap();
    fence.raise(&key("a"), token(1)).await.unwrap();
    let mut workers = Vec::new();
    for _ in 0..4 {
        let fence = PgFence::connect(&url).await.unwrap();
        workers.push(tokio::spawn(async move {
            for _ in 0..5 {
                take_and(LONG, &fence, || {}).await.unwrap();
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(bank.cents(), 100 - 4 * 5 * 10);
    let plain = connect(&url).await;
    for setting in [
        "statement_timeout",
        "idle_in_transaction_session_timeout",
        "lock_timeout",
    ] {
        let row = plain
            .query_typed_one(&format!("SHOW {setting}"), &[])
            .await
            .unwrap();
        assert_eq!(row.get::<_, &str>(0), "0", "{setting}");
    }
    fence.raise(&key("a"), token(2)).await.unwrap();
    let refused = take_and(LONG, &fence, || {}).await.unwrap_err();
    assert!(
        matches!(refused, RunError::Fenced { seen: Some(seen), .. } if seen == token(2)),
        "{refused:?}"
    );
}

#[tokio::test]
async fn behind_a_pooler_a_commit_without_an_answer_is_resolved() {
    let bank = Bank::open().await;
    let pooler = PgBouncer::before(bank.server());
    let proxy = Proxy::before(pooler.port());
    let fence = PgFence::connect(&bank.url_at(proxy.port())).await.unwrap();
    let wire = proxy.wires().pop().unwrap();
    let applied = take_and(LONG, &fence, move || {
        let cut_down = wire.carried().1;
        wire.set(Fate {
            cut_down,
            ..Fate::KIND
        });
    });
    assert_eq!(applied.await.unwrap(), 90);
    assert_eq!(bank.cents(), 90);

    let wire = proxy.wires().pop().unwrap();
    let held = std::sync::Arc::clone(&wire);
    let late = take_and(SHORT, &fence, move || {
        held.set(Fate {
            hold_up: true,
            ..Fate::KIND
        });
    });
    let late = late.await.unwrap_err();
    let doubt = late.doubt().unwrap_or_else(|| panic!("{late:?}"));
    let resolver = PgFence::connect(&bank.url_at(pooler.port())).await.unwrap();
    let resolution = resolver.resolve(&doubt).await.unwrap();
    assert_eq!(resolution, Resolution::NotApplied);
    let before = wire.carried().0;
    wire.set(Fate::KIND);
    until("the late COMMIT arrives", || wire.carried().0 > before).await;
    let resolution = resolver.resolve(&doubt).await.unwrap();
    assert_eq!(resolution, Resolution::NotApplied);
    assert_eq!(bank.cents(), 90);
}

#[tokio::test]
async fn behind_a_pooler_a_dropped_run_leaves_no_transaction_open() {
    let bank = Bank::open().await;
    let pooler = PgBouncer::before(bank.server());
    let fence = PgFence::connect(&bank.url_at(pooler.port())).await.unwrap();
    let (entered, in_work) = tokio::sync::oneshot::channel();
    let call = fence.transaction::<(), _, _>(async move |t| {
        t.execute_typed(TAKE, &[(&10_i64, Type::INT8)]).await?;
        entered.send(()).unwrap();
        std::future::pending().await
    });
    let run = tokio::spawn(async move { hold_for(1, LONG).executor().commit(call).await });
    in_work.await.unwrap();
    run.abort();
    let _ = run.await;
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%' AND datname = current_database()";
    until("the server has rolled it back", || bank.psql(open) == "0").await;
    assert_eq!(bank.cents(), 100);
}

/// A pooler without support for prepared statements may lend a connection in which another client's
/// statement has the same name. Then the run is rolled back, with proof, and never anything else.
#[tokio::test]
async fn behind_a_pooler_statements_that_are_prepared_have_a_true_outcome() {
    let bank = Bank::open().await;
    let pooler = PgBouncer::before(bank.server());
    let url = bank.url_at(pooler.port());
    let fences = [
        PgFence::connect(&url).await.unwrap(),
        PgFence::connect(&url).await.unwrap(),
    ];
    let mut expected = 100;
    for round in 0..10 {
        match take_ten(&hold_for(1, LONG).executor(), &fences[round % 2]).await {
            Ok(left) => {
                expected -= 10;
                assert_eq!(left, expected);
            }
            Err(RunError::RolledBack { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
        assert_eq!(bank.cents(), expected);
    }
}

/// The pooler gives its connection to another client as soon as the transaction is over.
#[tokio::test]
async fn behind_a_pooler_a_commit_waits_for_nobody_and_leaves_nothing_to_the_next_client() {
    let bank = Bank::open().await;
    let pooler = PgBouncer::with_connections(bank.server(), 1);
    let url = bank.url_at(pooler.port());
    let fence = PgFence::connect(&url).await.unwrap();
    let other = connect(&url).await;
    let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let call = fence.transaction(async move |t| {
        let rows = t.query_typed(TAKE, &[(&10_i64, Type::INT8)]).await?;
        t.execute_typed("SELECT set_config('my.mark', 'the first run', false)", &[])
            .await?;
        // It gets the connection after this transaction, and keeps it.
        let waits = tokio::spawn(async move { other.batch_execute("BEGIN").await.map(|()| other) });
        begin.send(waits).unwrap();
        // The pooler says to nobody that it has a waiter, but a request that is on its way arrives.
        let clock = leasehold::clock::Clock::system().unwrap();
        clock.sleep(Duration::from_millis(200)).await;
        t.done(rows[0].get::<_, i64>(0))
    });
    let done = hold_for(1, SHORT).executor().commit(call).await.unwrap();
    assert_eq!((done.value, done.proof), (90, CommitProof::Fenced));
    let other = begun.recv().await.unwrap().await.unwrap().unwrap();
    let mark = "SELECT coalesce(current_setting('my.mark', true), '')";
    let row = other.query_typed_one(mark, &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "");
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(bank.cents(), 90);
}
