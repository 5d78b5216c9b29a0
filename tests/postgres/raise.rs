//! What a raise does to the transactions of former holders.

use std::time::Duration;

use leasehold::fence::{Fence, Resolve};
use leasehold::postgres::PgFence;
use leasehold::run::{CommitProof, Doubt, Resolution};
use leasehold::{Ended, ErrorKind, LockManager, RunError};

use crate::proxy::{Fate, Proxy};
use crate::world::{Bank, TAKE, hold, key, take_ten, token, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_is_raised_and_never_lowered() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    fence.raise(&key("a"), token(5)).await.unwrap();
    fence.raise(&key("a"), token(5)).await.unwrap();
    let error = fence.raise(&key("a"), token(4)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost(Ended::Gone), "{error}");
    fence.raise(&key("b"), token(1)).await.unwrap();
    assert_eq!(
        bank.psql("SELECT key, token FROM leasehold.fence ORDER BY key"),
        "a|5\nb|1"
    );
}

/// Tokens of a store that counts from one are never larger than those of one that counts
/// microseconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_moved_to_a_store_that_counts_otherwise_is_told_what_moves_its_fence() {
    const THEIRS: u64 = 1 << 50;
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    // A name of the former store is deleted, and one is left.
    take_ten(&hold(THEIRS).executor(), &fence).await.unwrap();
    fence.raise(&key("a"), token(THEIRS + 1)).await.unwrap();
    bank.psql("UPDATE leasehold.fence_meta SET names_kept = '0', swept_at = '-infinity'");
    assert_eq!(bank.psql("SELECT leasehold.sweep()"), "1");
    take_ten(&hold(THEIRS + 1).executor(), &fence)
        .await
        .unwrap();

    let refused = fence.raise(&key("a"), token(2)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(!refused.is_retryable());
    let text = refused.to_string();
    let (_, forget) = text.split_once("forget the key: ").unwrap();
    bank.psql(forget);
    fence.raise(&key("a"), token(2)).await.unwrap();
    assert_eq!(take_ten(&hold(2).executor(), &fence).await.unwrap(), 70);
    // What is in doubt from now on is not taken for a name of the former store that was deleted.
    let run = hold(2).executor().guarded(|tx| Ok(tx.txn_id()?));
    let locks = vec![leasehold::run::HeldKey {
        key: key("a"),
        token: token(2),
    }];
    let doubt = Doubt::new(locks, run.unwrap().value);
    let resolution = fence.resolve(&doubt).await.unwrap();
    assert_eq!(resolution, Resolution::NotApplied);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_token_is_fenced_before_it_reads() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 90);
    fence.raise(&key("a"), token(2)).await.unwrap();
    let call = fence.transaction::<(), _, _>(async |_| panic!("the work was begun"));
    let refused = hold(1).executor().commit(call).await.unwrap_err();
    assert!(
        matches!(refused, RunError::Fenced { seen: Some(seen), .. } if seen == token(2)),
        "{refused:?}"
    );
    assert_eq!(bank.cents(), 90);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raise_waits_for_the_open_transaction_of_the_former_holder() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let (entered, in_work) = tokio::sync::oneshot::channel();
    let (go_on, may_go_on) = tokio::sync::oneshot::channel();
    let call = fence.transaction(async move |t| {
        t.execute(TAKE, &[&10_i64]).await?;
        entered.send(()).unwrap();
        may_go_on.await.unwrap();
        t.done(())
    });
    let older = tokio::spawn(async move { hold(1).executor().commit(call).await });
    in_work.await.unwrap();
    let newer = bank.fence().await;
    let raised = tokio::spawn(async move { newer.raise(&key("a"), token(2)).await });
    until("the raise waits", || {
        bank.psql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%leasehold.raise%'") == "1"
    })
    .await;
    assert!(!raised.is_finished());
    go_on.send(()).unwrap();
    // It was before the raise, and so it counts.
    assert_eq!(older.await.unwrap().unwrap().proof, CommitProof::Fenced);
    raised.await.unwrap().unwrap();
    assert_eq!(bank.cents(), 90);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_never_ends_makes_the_raise_fail() {
    let bank = Bank::open().await;
    bank.fence().await.raise(&key("a"), token(1)).await.unwrap();
    let client = bank.connect().await;
    client
        .batch_execute(
            "BEGIN; SELECT leasehold.enter(ARRAY['a'], ARRAY[1::bigint], gen_random_uuid(), 60000)",
        )
        .await
        .unwrap();
    let fence = bank.fence().await.wait(Duration::from_millis(50));
    let error = fence.raise(&key("a"), token(2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(bank.psql("SELECT token FROM leasehold.fence"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_holder_blocks_nobody_for_ever() {
    let bank = Bank::open().await;
    let hung = bank.connect().await;
    hung.batch_execute(
        "BEGIN; SELECT leasehold.enter(ARRAY['a'], ARRAY[1::bigint], gen_random_uuid(), 5000); UPDATE account SET cents = 0",
    )
    .await
    .unwrap();
    let fence = bank.fence().await;
    fence.raise(&key("a"), token(2)).await.unwrap();
    assert!(hung.batch_execute("COMMIT").await.is_err());
    assert_eq!(bank.cents(), 100);
}

/// A first raise is given less time than the server takes to end the transaction.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_waits_until_the_transaction_of_a_frozen_holder_is_ended() {
    let bank = Bank::open().await;
    let frozen = bank.connect().await;
    frozen
        .batch_execute(
            "BEGIN; SELECT leasehold.enter(ARRAY['a'], ARRAY[1::bigint], gen_random_uuid(), 4000)",
        )
        .await
        .unwrap();
    let fence = PgFence::connect(&bank.url()).await.unwrap();
    let locks = LockManager::connect("memory:").await.unwrap();
    let guard = locks.lock("a").fence(fence).acquire().await.unwrap();
    let raised = bank.psql("SELECT token FROM leasehold.fence WHERE key = 'a'");
    assert_eq!(raised, guard.token().to_string());
    assert!(frozen.batch_execute("COMMIT").await.is_err());
}

/// The statements are short, so that no time-out of the server ends them: the client does, at the
/// end of the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_that_sends_short_statements_for_ever_is_cut_off() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let (entered, in_work) = tokio::sync::oneshot::channel();
    let call = fence.transaction::<(), _, _>(async move |t| {
        entered.send(()).unwrap();
        // Out of the run's hands: nothing but the end of the connection stops it.
        tokio::spawn(async move { while t.execute("SELECT 1", &[]).await.is_ok() {} });
        std::future::pending().await
    });
    let zombie = tokio::spawn(async move {
        let hold = crate::world::hold_for(1, Duration::from_secs(6));
        hold.executor().commit(call).await
    });
    in_work.await.unwrap();
    fence.raise(&key("a"), token(2)).await.unwrap();
    let end = zombie.await.unwrap().unwrap_err();
    assert!(matches!(end, RunError::RolledBack { .. }), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_tied_to_the_fence_raises_it_before_its_guard_is_there() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let locks = LockManager::connect("memory:").await.unwrap();
    let guard = locks
        .lock("a")
        .fence(fence.clone())
        .acquire()
        .await
        .unwrap();
    let raised = bank.psql("SELECT token FROM leasehold.fence WHERE key = 'a'");
    assert_eq!(raised, guard.token().to_string());
    drop(guard);
    let lock = locks.lock("a").fence(fence.clone());
    let done = lock.commit(fence.transaction(async |t| {
        let left: i64 = t.query_one(TAKE, &[&10_i64]).await?.get(0);
        t.done(left)
    }));
    let done = done.await.unwrap();
    assert_eq!((done.value, done.proof), (90, CommitProof::Fenced));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_is_missing_is_reported_with_what_to_do() {
    let bank = Bank::open().await;
    bank.psql("DROP SCHEMA leasehold CASCADE");
    let fence = bank.fence().await;
    let error = fence.raise(&key("a"), token(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("create_schema"), "{error}");
    let again = bank.fence().await;
    let (one, other) = tokio::join!(fence.create_schema(), again.create_schema());
    one.unwrap();
    other.unwrap();
    fence.raise(&key("a"), token(1)).await.unwrap();
}

/// By somebody in `psql`, or by a server that hangs.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_cannot_be_created_now_ends_with_what_to_do() {
    let bank = Bank::open().await;
    let somebody = bank.connect().await;
    let lock = "BEGIN; LOCK TABLE leasehold.fence_meta IN ACCESS EXCLUSIVE MODE";
    somebody.batch_execute(lock).await.unwrap();
    let fence = PgFence::connect(&bank.url()).await.unwrap();
    let fence = fence.wait(Duration::from_millis(100));
    let error = fence.create_schema().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("pg_stat_activity"), "{error}");
    somebody.batch_execute("ROLLBACK").await.unwrap();
    fence
        .wait(Duration::from_secs(60))
        .create_schema()
        .await
        .unwrap();

    let proxy = Proxy::before(bank.server().port());
    let fence = PgFence::connect(&bank.url_at(proxy.port())).await.unwrap();
    proxy.all(Fate {
        hold_up: true,
        ..Fate::KIND
    });
    let fence = fence.wait(Duration::from_millis(100));
    let error = fence.create_schema().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("in time"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_and_a_malformed_url_are_errors_without_the_password() {
    let url = format!("postgres://app:{}@127.0.0.1:1/bank", crate::canary::CANARY);
    let error = PgFence::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!crate::canary::is_in(format!("{error:?}").as_bytes()));
    let url = format!(
        "postgres://app:{}@127.0.0.1:port/bank",
        crate::canary::CANARY
    );
    let error = PgFence::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!crate::canary::is_in(format!("{error:?}").as_bytes()));
}

/// A caller with the right to use the schema could otherwise shut every holder out for good.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_no_store_grants_is_no_token() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    let client = bank.connect().await;
    let name = "'00000000-0000-0000-0000-000000000001'";
    for number in ["9223372036854775807", "9007199254740992", "-1", "NULL"] {
        for call in [
            format!("raise('a', {number}, 1000)"),
            format!("enter('{{a}}', ARRAY[{number}]::bigint[], {name}, 1000)"),
            format!("resolve('{{a}}', ARRAY[{number}]::bigint[], {name}, 1000)"),
        ] {
            let called = client
                .batch_execute(&format!("SELECT leasehold.{call}"))
                .await;
            assert!(called.is_err(), "{call}");
        }
    }
    for call in [
        format!("resolve('{{a,b}}', '{{1}}', {name}, 1000)"),
        format!("resolve('{{NULL}}', '{{1}}', {name}, 1000)"),
    ] {
        let called = client
            .batch_execute(&format!("SELECT leasehold.{call}"))
            .await;
        assert!(called.is_err(), "{call}");
    }
    fence.raise(&key("a"), token(5)).await.unwrap();
    fence
        .raise(&key("b"), leasehold::FencingToken::MAX)
        .await
        .unwrap();
}

/// A time-out that the role or the database sets already runs when the fence shortens it. Servers
/// before 17 have none.
#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_is_cut_off_by_the_server_also_where_a_longer_limit_was_set() {
    let bank = Bank::open().await;
    let version: u32 = bank.psql("SHOW server_version_num").parse().unwrap();
    if version >= 170_000 {
        let name = bank.psql("SELECT current_database()");
        bank.psql(&format!(
            "ALTER DATABASE {name} SET transaction_timeout = '1h'"
        ));
    }
    for other in ["idle_in_transaction_session_timeout", "statement_timeout"] {
        let name = bank.psql("SELECT current_database()");
        bank.psql(&format!("ALTER DATABASE {name} SET {other} = '1h'"));
    }
    let zombie = bank.connect().await;
    zombie
        .batch_execute(
            "BEGIN; SELECT leasehold.enter(ARRAY['a'], ARRAY[1::bigint], gen_random_uuid(), 1000)",
        )
        .await
        .unwrap();
    if version >= 170_000 {
        while zombie.batch_execute("SELECT 1").await.is_ok() {}
    }
    // Where statements that are short enough are not ended, one that is too long is.
    let last = zombie.batch_execute("SELECT pg_sleep(600)").await;
    assert!(last.is_err());
    bank.fence().await.raise(&key("a"), token(2)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_connections_is_dialled_now_and_then_however_often_it_is_asked() {
    let bank = Bank::open().await;
    let proxy = Proxy::before(bank.server().port());
    let fence = PgFence::connect(&bank.url_at(proxy.port())).await.unwrap();
    proxy.all(Fate {
        cut_up: 0,
        ..Fate::KIND
    });
    let asking = async {
        loop {
            let error = fence.raise(&key("a"), token(1)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    };
    // Without a pause there are hundreds of dials in this time, and on a busy machine fewer of
    // both.
    let clock = leasehold::clock::Clock::system().unwrap();
    let _ = clock.timeout(Duration::from_secs(2), asking).await;
    let dials = proxy.wires().len();
    assert!(dials < 20, "{dials}");
    proxy.next(Fate::KIND);
    crate::server::until("it is dialled again", async || {
        fence.raise(&key("a"), token(1)).await.is_ok()
    })
    .await;
}
