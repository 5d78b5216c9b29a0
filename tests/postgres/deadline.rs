//! The end of the lease, inside of the server's `COMMIT`: what arrives later is refused, though
//! nobody has raised the fence.

use std::time::Duration;

use leasehold::postgres::{PgFence, tokio_postgres};

use crate::proxy::{Fate, Proxy};
use crate::world::{Bank, TAKE, assert_not_applied, hold, hold_for, take_ten, until};

const ENTER: &str =
    "SELECT leasehold.enter(ARRAY['a'], ARRAY[1::bigint], gen_random_uuid(), 60000)";
const NAME: &str = "SELECT current_setting('leasehold.txn')";

/// A transaction of another driver that has entered and worked; its name, and the server's clock as
/// `enter` answered it.
async fn worked(client: &tokio_postgres::Client) -> (String, i64) {
    client.batch_execute("BEGIN").await.unwrap();
    let now = client.query_one(ENTER, &[]).await.unwrap().get(0);
    client.query_one(TAKE, &[&10_i64]).await.unwrap();
    let name = client.query_one(NAME, &[]).await.unwrap().get(0);
    (name, now)
}

async fn seal(client: &tokio_postgres::Client, name: &str, until: &str) {
    let seal = format!("SELECT leasehold.seal('{name}', {until})");
    client.batch_execute(&seal).await.unwrap();
}

/// The error of `COMMIT`; empty: it was committed.
async fn commit(client: &tokio_postgres::Client) -> String {
    let committed = client.batch_execute("COMMIT").await;
    committed.map_or_else(
        |error| error.code().unwrap().code().to_owned(),
        |()| String::new(),
    )
}

#[tokio::test]
async fn a_commit_that_arrives_after_the_lease_is_refused_though_nobody_raised_the_fence() {
    let bank = Bank::open().await;
    let client = bank.connect().await;
    for _ in 0..200 {
        let (name, now) = worked(&client).await;
        // The lease is over when COMMIT arrives: the clock goes on between the two.
        seal(&client, &name, &(now + 1).to_string()).await;
        assert_eq!(commit(&client).await, "LH005");
    }
    assert_eq!(bank.cents(), 100);
    assert_eq!(bank.psql("SELECT count(*) FROM leasehold.txn"), "0");
    let (name, now) = worked(&client).await;
    seal(&client, &name, &(now + 60_000_000).to_string()).await;
    assert_eq!(commit(&client).await, "");
    assert_eq!(bank.cents(), 90);
}

/// Each answer is what happened, also at the edge.
#[tokio::test]
async fn a_commit_at_the_very_end_of_the_lease_is_answered_as_it_happened() {
    let bank = Bank::open().await;
    let client = bank.connect().await;
    let mut cents = 100;
    for lasts in 0..200 {
        let (name, now) = worked(&client).await;
        seal(&client, &name, &(now + lasts * 20).to_string()).await;
        match commit(&client).await.as_str() {
            "" => cents -= 10,
            code => assert_eq!(code, "LH005"),
        }
        assert_eq!(bank.cents(), cents);
    }
}

#[tokio::test]
async fn an_end_that_is_null_compares_no_time() {
    let bank = Bank::open().await;
    let client = bank.connect().await;
    let (name, _) = worked(&client).await;
    seal(&client, &name, "NULL").await;
    assert_eq!(commit(&client).await, "");
    assert_eq!(bank.cents(), 90);
}

#[tokio::test]
async fn a_commit_among_the_statements_of_the_work_applies_nothing() {
    let bank = Bank::open().await;
    let client = bank.connect().await;
    worked(&client).await;
    assert_eq!(commit(&client).await, "LH006");
    assert_eq!(bank.cents(), 100);
    // A seal of another transaction is none of this one.
    let (name, now) = worked(&client).await;
    seal(&client, &name, &(now + 60_000_000).to_string()).await;
    client.batch_execute("ROLLBACK").await.unwrap();
    worked(&client).await;
    assert_eq!(commit(&client).await, "LH006");
    assert_eq!(bank.cents(), 100);
}

/// So a time-out is no proof where the work can send `COMMIT`: only the seal knows.
#[tokio::test]
async fn what_the_work_sends_after_a_commit_of_its_own_stays_and_the_seal_says_so() {
    let bank = Bank::open().await;
    let client = bank.connect().await;
    for ends in ["COMMIT", "ROLLBACK"] {
        let (name, now) = worked(&client).await;
        let _swallowed = client.batch_execute(ends).await;
        let before = bank.cents();
        client.query_one(TAKE, &[&10_i64]).await.unwrap();
        assert_eq!(bank.cents(), before - 10);
        let seal = format!("SELECT leasehold.seal('{name}', {})", now + 60_000_000);
        let error = client.batch_execute(&seal).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "LH003");
    }
}

#[tokio::test]
async fn constraints_that_become_immediate_have_to_be_named() {
    let bank = Bank::open().await;
    bank.psql("ALTER TABLE account ADD CONSTRAINT one UNIQUE (id) DEFERRABLE INITIALLY DEFERRED");
    let client = bank.connect().await;
    worked(&client).await;
    let all = client.batch_execute("SET CONSTRAINTS ALL IMMEDIATE").await;
    assert_eq!(all.unwrap_err().code().unwrap().code(), "LH006");
    client.batch_execute("ROLLBACK").await.unwrap();
    let (name, now) = worked(&client).await;
    let named = client.batch_execute("SET CONSTRAINTS one IMMEDIATE").await;
    named.unwrap();
    seal(&client, &name, &(now + 60_000_000).to_string()).await;
    assert_eq!(commit(&client).await, "");
}

/// A deferred constraint of the work runs inside of `COMMIT`, and may take any time: here until the
/// lease is over. The check is behind it.
#[tokio::test]
async fn a_deferred_constraint_of_the_work_that_outlasts_the_lease_is_not_applied() {
    let bank = Bank::open().await;
    bank.psql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           PERFORM pg_sleep(extract(epoch FROM to_timestamp(current_setting('leasehold.until')::float8 / 1000000) - clock_timestamp()) + 0.001); \
           RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON account DEFERRABLE INITIALLY DEFERRED \
           FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let client = bank.connect().await;
    for level in ["READ COMMITTED", "SERIALIZABLE"] {
        client
            .batch_execute(&format!("SET default_transaction_isolation = '{level}'"))
            .await
            .unwrap();
        let (name, now) = worked(&client).await;
        // Not over yet when COMMIT begins, on a busy machine too.
        seal(&client, &name, &(now + 3_000_000).to_string()).await;
        assert_eq!(commit(&client).await, "LH005", "{level}");
        assert_eq!(bank.cents(), 100);
    }
}

/// A search of the names' index would be a read of what others write later, and the second of three
/// would be between a reader and a writer.
#[tokio::test]
async fn serializable_runs_that_have_nothing_in_common_do_not_fail_together() {
    let bank = Bank::open().await;
    bank.psql("SELECT leasehold.raise('a', 1, 1000)");
    let mut runs = Vec::new();
    for _ in 0..3 {
        let client = bank.connect().await;
        let begin = format!("BEGIN ISOLATION LEVEL SERIALIZABLE; {ENTER}");
        client.batch_execute(&begin).await.unwrap();
        let name: String = client.query_one(NAME, &[]).await.unwrap().get(0);
        seal(&client, &name, "NULL").await;
        runs.push(client);
    }
    for client in runs.iter().rev() {
        assert_eq!(commit(client).await, "");
    }
}

/// Otherwise nothing would compare the lease behind the deferred constraints.
#[tokio::test]
async fn a_seal_that_does_not_find_its_name_fails_and_a_second_seal_does() {
    let bank = Bank::open().await;
    let client = bank.connect().await;
    let seal = |name: &str| format!("SELECT leasehold.seal('{name}', NULL)");
    let (name, _) = worked(&client).await;
    client.batch_execute(&seal(&name)).await.unwrap();
    client.batch_execute(&seal(&name)).await.unwrap();
    assert_eq!(commit(&client).await, "");
    assert_eq!(bank.cents(), 90);

    let (name, _) = worked(&client).await;
    let moved = format!("UPDATE leasehold.txn SET at = at WHERE txn_id = '{name}'");
    client.batch_execute(&moved).await.unwrap();
    let missed = client.batch_execute(&seal(&name)).await.unwrap_err();
    assert_eq!(missed.code().unwrap().code(), "LH003");
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(bank.cents(), 90);
}

#[tokio::test]
async fn a_savepoint_of_the_work_changes_nothing_about_the_check() {
    let bank = Bank::open().await;
    let client = bank.connect().await;
    for (lasts, expected) in [(1, "LH005"), (60_000_000, "")] {
        let (name, now) = worked(&client).await;
        let undone = "SAVEPOINT a; UPDATE account SET cents = 0; ROLLBACK TO a; SAVEPOINT b";
        client.batch_execute(undone).await.unwrap();
        seal(&client, &name, &(now + lasts).to_string()).await;
        assert_eq!(commit(&client).await, expected);
    }
    assert_eq!(bank.cents(), 90);
}

/// The request with `COMMIT` is on its way when the lease ends, and arrives while the server still
/// keeps the transaction.
#[tokio::test]
async fn a_commit_of_a_run_that_is_delivered_after_its_lease_is_not_applied() {
    let bank = Bank::open().await;
    let proxy = Proxy::before(bank.server().port());
    let fence = PgFence::connect(&bank.url_at(proxy.port())).await.unwrap();
    let wire = proxy.wires().remove(0);
    let held = hold_for(1, Duration::from_secs(4));
    let lease = held.lease().clone();
    let executor = held.executor();
    let call = fence.transaction(async move |t| {
        t.execute(TAKE, &[&10_i64]).await?;
        wire.set(Fate {
            hold_up: true,
            ..Fate::KIND
        });
        t.done(())
    });
    let run = tokio::spawn(async move { executor.commit(call).await });
    until("the lease is over", || !lease.is_live()).await;
    proxy.wires()[0].set(Fate::KIND);
    let end = run.await.unwrap();
    // Its lease is over, so it may not have the time to learn that nothing was applied.
    assert!(end.is_err(), "{end:?}");
    let open = "SELECT count(*) FROM pg_stat_activity WHERE xact_start < now() AND query LIKE '%account%' \
        AND pid <> pg_backend_pid() AND datname = current_database()";
    until("the transaction is over", || bank.psql(open) == "0").await;
    assert_eq!(bank.cents(), 100);
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 90);
}

/// A schema that was made by an earlier version answers no time: nothing is committed unchecked.
#[tokio::test]
async fn a_schema_that_answers_no_time_is_refused_and_made_again() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    bank.psql(
        "DROP FUNCTION leasehold.enter; CREATE FUNCTION leasehold.enter(text[], bigint[], uuid, int) \
         RETURNS void LANGUAGE sql AS 'SELECT'; DROP TRIGGER at_commit ON leasehold.txn",
    );
    let end = take_ten(&hold(1).executor(), &fence).await.unwrap_err();
    assert_not_applied(&end);
    assert!(format!("{end:?}").contains("older version"), "{end:?}");
    fence.create_schema().await.unwrap();
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 90);
}
