//! Servers and databases with a setting, or a state, that others do not have.

use leasehold::ErrorKind;
use leasehold::postgres::PostgresStore;
use leasehold::store::Store;

use crate::claims::{claim, grant, is_busy, release};
use crate::store_world::Locks;

/// A transaction that notifies fails at its end while the queue is full, as it is here for whoever
/// sends a message. A server needs 8 GB of messages for that, which no test sends.
const FULL: &str = "CREATE OR REPLACE FUNCTION pg_catalog.pg_notification_queue_usage() RETURNS float8 LANGUAGE sql AS 'SELECT 1.0::float8';
    CREATE OR REPLACE FUNCTION pg_catalog.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
      RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$;";

#[tokio::test]
async fn a_full_queue_of_messages_keeps_nobody_out_and_no_lock_held() {
    let locks = Locks::open().await;
    let early = locks.store("").await;
    locks.psql(FULL);
    let late = locks.store("").await;
    assert!(!late.capability().wakes);
    for store in [&early, &late] {
        let held = grant(store, &claim("a")).await;
        let mut waits = claim("a");
        waits.place_ttl = std::time::Duration::from_secs(600);
        assert!(is_busy(store, &waits).await);
        let hint = store.subscribe(&waits).await;
        assert!(hint.is_ok(), "{hint:?}");
        release(store, &held).await;
        // It polls, so its place lasts.
        let left = "SELECT ends > clock_timestamp() + interval '1 min' FROM leasehold.claim WHERE key = 'a' AND token IS NULL";
        assert_eq!(locks.psql(left), "t");
        let held = grant(store, &waits).await;
        release(store, &held).await;
    }
}

/// A plan for which there is no choice is counted as dear, and a dear one is compiled: for 300 ms,
/// at each call.
#[tokio::test]
async fn no_call_compiles_its_plans() {
    let locks = Locks::open().await;
    let compiling = "SELECT string_agg(proname, ' ') FROM pg_proc WHERE pronamespace = 'leasehold'::regnamespace
       AND 'enable_seqscan=off' = ANY (proconfig) AND NOT 'jit=off' = ANY (proconfig)";
    assert_eq!(locks.psql(compiling), "");
}

#[tokio::test]
async fn a_label_that_the_database_cannot_store_is_invalid_with_its_encoding() {
    let locks = Locks::empty();
    locks
        .server()
        .psql(&format!("DROP DATABASE {}", locks.name));
    locks.server().psql(&format!(
        "CREATE DATABASE {} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
        locks.name
    ));
    let store = locks.store("create=auto").await;
    let mut ours = claim("a");
    ours.label = leasehold::store::Label::parse("łódź").unwrap();
    let error = store.acquire(&ours).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let text = error.to_string();
    assert!(text.contains("łódź") && text.contains("LATIN1"), "{text}");
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;
}

#[tokio::test]
async fn a_role_whose_transactions_are_read_only_is_told_so() {
    let locks = Locks::open().await;
    locks.psql(&format!(
        "ALTER DATABASE {} SET default_transaction_read_only = on",
        locks.name
    ));
    let error = PostgresStore::connect(&locks.url("")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(text.contains("default_transaction_read_only"), "{text}");
    assert!(!text.contains("cannot be reached"), "{text}");
}
