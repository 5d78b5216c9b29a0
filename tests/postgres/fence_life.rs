//! Fences that are not those of before: from a dump, or a copy of the database. They may lack the
//! newest tokens.

use leasehold::fence::Fence;
use leasehold::{Ended, ErrorKind, RunError};

use crate::world::{Bank, assert_not_applied, connect, hold, key, take_ten, token, until};

/// In place of its tables.
fn load(bank: &Bank, dump: &str) {
    bank.psql("DROP SCHEMA leasehold CASCADE; DROP TABLE account");
    bank.psql(dump);
}

/// It enters, without a run, and stays in no transaction.
fn enter(key: &str, token: u64) -> String {
    format!("SELECT leasehold.enter('{{{key}}}', '{{{token}}}', gen_random_uuid(), 60000)")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_that_is_loaded_beside_holders_lets_no_token_of_before_in() {
    let bank = Bank::open().await;
    let (fence, plain) = (bank.fence().await, bank.connect().await);
    take_ten(&hold(1).executor(), &fence).await.unwrap();
    let dump = bank.server().dump(bank.name());
    fence.raise(&key("a"), token(2)).await.unwrap();
    fence.raise(&key("b"), token(2)).await.unwrap();
    take_ten(&hold(2).executor(), &fence).await.unwrap();
    let entered = format!("BEGIN; {}; ROLLBACK", enter("b", 2));
    plain.batch_execute(&entered).await.unwrap();
    load(&bank, &dump);

    // Whether the dump knows the key or not, over connections of before and new ones.
    for number in [1, 2] {
        for fence in [&fence, &bank.fence().await] {
            let end = take_ten(&hold(number).executor(), fence).await.unwrap_err();
            assert_not_applied(&end);
            assert!(
                format!("{end:?}").contains("acquire the lock again"),
                "{end:?}"
            );
        }
        for plain in [&plain, &bank.connect().await] {
            let error = plain.batch_execute(&enter("b", number)).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "LH009");
        }
    }
    assert_eq!(bank.cents(), 90);
    // A holder from now on.
    fence.raise(&key("a"), token(3)).await.unwrap();
    assert_eq!(take_ten(&hold(3).executor(), &fence).await.unwrap(), 80);
    for number in [1, 2] {
        let end = take_ten(&hold(number).executor(), &fence)
            .await
            .unwrap_err();
        assert!(matches!(end, RunError::Fenced { .. }), "{end:?}");
    }
    let error = fence.raise(&key("a"), token(2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost(Ended::Gone), "{error}");
}

/// A raise of before may arrive after the load. It proves nothing about those that followed it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_above_that_of_a_raise_since_the_load_needs_one_of_its_own() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    load(&bank, &bank.server().dump(bank.name()));
    fence.raise(&key("a"), token(1)).await.unwrap();
    let end = take_ten(&hold(2).executor(), &fence).await.unwrap_err();
    assert_not_applied(&end);
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 90);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_who_knows_that_nobody_is_left_lets_every_token_in() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    fence.raise(&key("a"), token(1)).await.unwrap();
    load(&bank, &bank.server().dump(bank.name()));
    // The schema is there, so this is no word of an operator.
    fence.create_schema().await.unwrap();
    let end = take_ten(&hold(2).executor(), &fence).await.unwrap_err();
    let text = format!("{end:?}");
    let (_, typed) = text.split_once("run as its owner: ").unwrap();
    let (typed, _) = typed.split_once("()").unwrap();
    bank.psql(&format!("{typed}()"));
    assert_eq!(take_ten(&hold(2).executor(), &fence).await.unwrap(), 90);
    let end = take_ten(&hold(1).executor(), &fence).await.unwrap_err();
    assert!(matches!(end, RunError::Fenced { .. }), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_database_lets_no_token_of_before_in() {
    let bank = Bank::open().await;
    bank.fence().await.raise(&key("a"), token(1)).await.unwrap();
    let copy = format!("{}_copy", bank.name());
    let make = format!("CREATE DATABASE {copy} TEMPLATE {}", bank.name());
    until("nobody uses the template", || {
        bank.server().psql_in("postgres", &make).is_ok()
    })
    .await;
    let url = bank.url().replace(bank.name(), &copy);
    let error = connect(&url).await.batch_execute(&enter("a", 1)).await;
    assert_eq!(error.unwrap_err().code().unwrap().code(), "LH009");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_an_earlier_version_are_those_of_this_database() {
    let bank = Bank::open().await;
    let fence = bank.fence().await;
    take_ten(&hold(1).executor(), &fence).await.unwrap();
    bank.psql("ALTER TABLE leasehold.fence DROP life; ALTER TABLE leasehold.fence_meta DROP life");
    fence.create_schema().await.unwrap();
    assert_eq!(take_ten(&hold(1).executor(), &fence).await.unwrap(), 80);
    fence.raise(&key("a"), token(2)).await.unwrap();
    assert_eq!(take_ten(&hold(3).executor(), &fence).await.unwrap(), 70);
}

/// Both have to write the row first.
#[tokio::test(flavor = "multi_thread")]
async fn two_runs_of_one_holder_enter_a_fence_of_an_earlier_version_side_by_side() {
    let bank = Bank::open().await;
    bank.fence().await.raise(&key("a"), token(1)).await.unwrap();
    bank.psql("UPDATE leasehold.fence SET life = NULL");
    let blocker = bank.connect().await;
    let lock = "BEGIN; SELECT FROM leasehold.fence WHERE key = 'a' FOR UPDATE";
    blocker.batch_execute(lock).await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..2 {
        let client = bank.connect().await;
        let run = format!("BEGIN; {}; ROLLBACK", enter("a", 1));
        runs.push(tokio::spawn(
            async move { client.batch_execute(&run).await },
        ));
    }
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                   AND query LIKE '%leasehold.enter%' AND pid <> pg_backend_pid()";
    until("both wait", || bank.psql(waiting) == "2").await;
    blocker.batch_execute("ROLLBACK").await.unwrap();
    for run in runs {
        run.await.unwrap().unwrap();
    }
}
