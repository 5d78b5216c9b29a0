//! Isolation levels, deadlocks, time-outs of the session: whatever ends a transaction is refused,
//! with proof.

use leasehold::RunError;
use leasehold::fence::Fence;
use leasehold::postgres::PgFence;
use leasehold::run::CommitProof;

use crate::world::{Bank, assert_not_applied, hold, key, take_ten, token};

const ENTER: &str =
    "SELECT leasehold.enter(ARRAY['a'], ARRAY[1::bigint], gen_random_uuid(), 60000)";

/// `enter` is to be the first statement. As the second, after one that took a snapshot, it still
/// lets no former holder in.
#[tokio::test]
async fn enter_as_the_second_statement_lets_no_former_holder_in_at_any_isolation_level() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for was_raised_before in [true, false] {
            let bank = Bank::open().await;
            let fence = bank.fence().await;
            if was_raised_before {
                fence.raise(&key("a"), token(1)).await.unwrap();
            }
            let zombie = bank.connect().await;
            let begin = format!("BEGIN ISOLATION LEVEL {level}");
            zombie.batch_execute(&begin).await.unwrap();
            zombie
                .query_one("SELECT sum(cents) FROM account", &[])
                .await
                .unwrap();
            fence.raise(&key("a"), token(2)).await.unwrap();
            assert_eq!(take_ten(&hold(2).executor(), &fence).await.unwrap(), 90);
            let refused = zombie.query_one(ENTER, &[]).await.unwrap_err();
            let code = refused.code().unwrap().code().to_owned();
            let expected: &[&str] = if level == "READ COMMITTED" {
                &["LH001"]
            } else {
                &["LH001", "40001"]
            };
            assert!(expected.contains(&code.as_str()), "{level} {code}");
            assert!(
                zombie.query_one("SELECT 1", &[]).await.is_err(),
                "the transaction is aborted"
            );
        }
    }
}

#[tokio::test]
async fn a_stale_snapshot_at_the_enter_is_fenced_if_there_is_a_newer_holder() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    fence.raise(&key("a"), token(1)).await.unwrap();
    // A role whose functions fail as a snapshot that is too old does.
    bank.psql("ALTER FUNCTION leasehold.enter RENAME TO entered; CREATE FUNCTION leasehold.enter(text[], bigint[], uuid, int) RETURNS void \
        LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stale' USING ERRCODE = '40001'; END $$");
    let run = take_ten(&hold(1).executor(), &fence).await.unwrap_err();
    assert_not_applied(&run);
    fence.raise(&key("a"), token(2)).await.unwrap();
    let run = take_ten(&hold(1).executor(), &fence).await.unwrap_err();
    assert!(
        matches!(run, RunError::Fenced { seen: Some(seen), .. } if seen == token(2)),
        "{run:?}"
    );
}

#[tokio::test]
async fn a_serialization_failure_is_rolled_back_and_the_other_run_committed() {
    let bank = Bank::open().await;
    let url = format!(
        "{}?options=-c%20default_transaction_isolation%3Dserializable",
        bank.url()
    );
    let fence = PgFence::connect(&url).await.unwrap();
    fence.raise(&key("a"), token(1)).await.unwrap();
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    // Each reads what the other writes.
    let run = |reads: i32, writes: i32| {
        let barrier = std::sync::Arc::clone(&barrier);
        let call = fence.transaction(async move |t| {
            let cents: i64 = t
                .query_one("SELECT cents FROM account WHERE id = $1", &[&reads])
                .await?
                .get(0);
            barrier.wait().await;
            t.execute(
                "UPDATE account SET cents = $1 WHERE id = $2",
                &[&(cents - 10), &writes],
            )
            .await?;
            t.done(())
        });
        async move { hold(1).executor().commit(call).await }
    };
    let (one, other) = tokio::join!(run(1, 2), run(2, 1));
    let failed = match (one, other) {
        (Ok(done), Err(failed)) | (Err(failed), Ok(done)) => {
            assert_eq!(done.proof, CommitProof::Fenced);
            failed
        }
        both => panic!("{both:?}"),
    };
    assert_not_applied(&failed);
    assert_eq!(bank.psql("SELECT sum(cents) FROM account"), "190");
}

#[tokio::test]
async fn of_two_transactions_that_deadlock_one_is_rolled_back() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    fence.raise(&key("a"), token(1)).await.unwrap();
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let run = |first: i32, second: i32| {
        let barrier = std::sync::Arc::clone(&barrier);
        let call = fence.transaction(async move |t| {
            let add = "UPDATE account SET cents = cents + 1 WHERE id = $1";
            t.execute(add, &[&first]).await?;
            barrier.wait().await;
            t.execute(add, &[&second]).await?;
            t.done(())
        });
        async move { hold(1).executor().commit(call).await }
    };
    let (one, other) = tokio::join!(run(1, 2), run(2, 1));
    let failed = match (one, other) {
        (Ok(_), Err(failed)) | (Err(failed), Ok(_)) => failed,
        both => panic!("{both:?}"),
    };
    assert_not_applied(&failed);
    assert_eq!(bank.psql("SELECT sum(cents) FROM account"), "202");
}

#[tokio::test]
async fn a_time_out_of_the_session_stays_and_what_it_ends_is_rolled_back() {
    let bank = Bank::open().await;
    let url = format!("{}?options=-c%20statement_timeout%3D5s", bank.url());
    let fence = PgFence::connect(&url).await.unwrap();
    let call = fence.transaction(async move |t| {
        t.execute("UPDATE account SET cents = 0", &[]).await?;
        t.execute("SELECT pg_sleep(60)", &[]).await?;
        t.done(())
    });
    let failed = hold(1).executor().commit(call).await.unwrap_err();
    assert_not_applied(&failed);
    assert_eq!(bank.cents(), 100);
    // A limit that is longer than the lease is shortened for the transaction, and comes back after
    // it.
    let limits = fence.transaction(async |t| {
        let limit = t.query_one(
            "SELECT current_setting('idle_in_transaction_session_timeout')",
            &[],
        );
        let limit: String = limit.await?.get(0);
        t.done(limit)
    });
    let done = hold(1).executor().commit(limits).await.unwrap();
    assert_ne!(done.value, "0");
}

/// By the user, the role or the database: what is shorter than the lease stays.
#[tokio::test]
async fn a_pause_or_a_wait_that_the_session_limits_is_rolled_back() {
    let bank = Bank::open().await;
    let role = bank.psql("SELECT 'role_' || current_database()");
    bank.psql(&format!(
        "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET idle_in_transaction_session_timeout = '200ms'; ALTER ROLE {role} SET lock_timeout = '150ms'"
    ));
    let url = bank.url().replace("postgres@", &format!("{role}@"));
    let fence = PgFence::connect(&url).await.unwrap();
    fence.raise(&key("a"), token(1)).await.unwrap();

    let idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%' AND datname = current_database()";
    let watcher = bank.connect().await;
    let call = fence.transaction(async move |t| {
        t.execute("UPDATE account SET cents = 0", &[]).await?;
        // Until the server has ended the session of a client that does nothing.
        while watcher.query_one(idle, &[]).await?.get::<_, i64>(0) > 0 {
            crate::server::breathe().await;
        }
        t.execute("UPDATE account SET cents = 0", &[]).await?;
        t.done(())
    });
    let idled = hold(1).executor().commit(call).await.unwrap_err();
    assert!(matches!(&idled, RunError::RolledBack { .. }), "{idled:?}");

    let other = bank.connect().await;
    for blocked in ["leasehold.fence", "account"] {
        let lock = format!("BEGIN; SELECT FROM {blocked} FOR UPDATE");
        other.batch_execute(&lock).await.unwrap();
        let waited = take_ten(&hold(1).executor(), &fence).await.unwrap_err();
        assert_not_applied(&waited);
        other.batch_execute("ROLLBACK").await.unwrap();
    }
    let fence = bank.fence().await;
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 90);
}
