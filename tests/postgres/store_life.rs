//! Tables that are not those of before: of another server, from a dump, or created again. What they
//! do not know may be held.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::postgres::{self, PostgresStore};
use leasehold::store::{Acquired, Claim, Renewed, Store};

use crate::claims::{claim, claim_for, grant, release};
use crate::server::{PgBouncer, PgServer, breathe};
use crate::store_world::Locks;
use crate::world::connect;

/// Longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(30);

/// It waits, because the server may lack grants.
#[track_caller]
fn assert_closed(answer: &Acquired) {
    assert!(
        matches!(answer, Acquired::NotReady { retry_after } if !retry_after.is_zero()),
        "{answer:?}"
    );
}

/// The first answer that a server gives.
async fn answered(store: &PostgresStore, claim: &Claim) -> Acquired {
    loop {
        match store.acquire(claim).await {
            Ok(answer) => return answer,
            Err(error) => {
                let is_expected =
                    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::InDoubt);
                assert!(is_expected, "{error}");
            }
        }
        breathe().await;
    }
}

fn open_again(locks: &Locks) {
    locks.psql("UPDATE leasehold.lock_meta SET closed_until = '-infinity'");
}

#[tokio::test]
async fn a_dump_that_is_loaded_again_grants_nothing_for_max_ttl_and_renews_nothing() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let known = grant(&store, &claim_for("a", LONG)).await;
    let dump = locks.server().dump(&locks.name);
    let unknown = grant(&store, &claim_for("b", LONG)).await;
    locks.psql("DROP SCHEMA leasehold CASCADE");
    locks.psql(&dump);
    // Its connection was made before. What the dump knows may have been released since.
    let renewed = store.renew(std::slice::from_ref(&known)).await;
    assert!(matches!(renewed[..], [Renewed::Gone]), "{renewed:?}");
    for key in ["b", "c"] {
        assert_closed(&answered(&store, &claim(key)).await);
        assert_closed(&answered(&locks.store("").await, &claim(key)).await);
    }
    let renewed = store.renew(&[known, unknown.clone()]).await;
    assert!(
        matches!(renewed[..], [Renewed::Gone, Renewed::Gone]),
        "{renewed:?}"
    );
    open_again(&locks);
    let next = grant(&store, &claim("b")).await;
    assert!(next.token > unknown.token);
    release(&store, &next).await;
}

#[tokio::test]
async fn a_dump_that_is_loaded_in_another_database_grants_nothing_for_max_ttl() {
    let locks = Locks::open().await;
    let _held = grant(&locks.store("").await, &claim_for("a", LONG)).await;
    let copy = Locks::empty();
    copy.psql(&locks.server().dump(&locks.name));
    assert_closed(&answered(&copy.store("create=auto").await, &claim("b")).await);
}

/// A copy by files keeps the ids of the tables.
#[tokio::test]
async fn a_database_that_is_made_from_another_as_its_template_grants_nothing_for_max_ttl() {
    let locks = Locks::open().await;
    let name = format!("{}_copy", locks.name);
    let make = format!("CREATE DATABASE {name} TEMPLATE {}", locks.name);
    crate::world::until("nobody uses the template", || {
        locks.server().psql_in("postgres", &make).is_ok()
    })
    .await;
    let url = locks
        .url("timeout_millis=20000")
        .replace(&locks.name, &name);
    let copy = PostgresStore::connect(&url).await.unwrap();
    assert_closed(&answered(&copy, &claim("b")).await);
}

#[tokio::test]
async fn a_schema_that_is_created_again_beside_clients_grants_nothing_for_max_ttl() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let held = grant(&store, &claim_for("a", LONG)).await;
    locks.psql("DROP SCHEMA leasehold CASCADE");
    let other = locks.store("create=auto").await;
    assert_closed(&answered(&other, &claim("a")).await);
    assert!(matches!(store.renew(&[held]).await[..], [Renewed::Gone]));
    open_again(&locks);
    release(&store, &grant(&store, &claim("a")).await).await;
}

/// Nobody is connected when it is created, so it is open. A client that comes back has seen other
/// tables.
#[tokio::test]
async fn a_client_that_saw_other_tables_closes_those_that_it_finds() {
    let locks = Locks::open().await;
    let store = locks.store("").await;
    let _held = grant(&store, &claim_for("a", LONG)).await;
    locks.psql("DROP SCHEMA leasehold CASCADE");
    let clients = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE application_name = 'leasehold' AND datname = current_database()";
    crate::world::until("its connections end", || locks.psql(clients) == "0").await;
    locks.psql(&format!("BEGIN; {} COMMIT", postgres::SCHEMA));
    let first = locks.store("").await;
    release(&first, &grant(&first, &claim("b")).await).await;
    assert_closed(&answered(&store, &claim("a")).await);
    assert_closed(&answered(&first, &claim("a")).await);
    // Once.
    open_again(&locks);
    release(&store, &grant(&store, &claim("a")).await).await;
}

/// Its connection stays, and the server behind it has the same timeline.
#[tokio::test]
async fn a_client_that_a_pooler_moves_to_another_server_is_granted_nothing_for_max_ttl() {
    let [ours, theirs] = [(), ()].map(|()| PgServer::start_with(&["fsync=on"]));
    for server in [&ours, &theirs] {
        let url = format!("{}?create=auto&timeout_millis=20000", server.url());
        PostgresStore::connect(&url).await.unwrap();
    }
    let pooler = PgBouncer::before(&ours);
    let url = format!("{}?timeout_millis=20000", pooler.url());
    let store = PostgresStore::connect(&url).await.unwrap();
    let held = grant(&store, &claim_for("a", LONG)).await;
    pooler.lead_to(&theirs);
    // Until it has read its file a claim is answered by the first one.
    let answer = loop {
        match answered(&store, &claim("a")).await {
            Acquired::Busy { .. } => breathe().await,
            answer => break answer,
        }
    };
    assert_closed(&answer);
    assert!(matches!(store.renew(&[held]).await[..], [Renewed::Gone]));
    theirs.psql("UPDATE leasehold.lock_meta SET closed_until = '-infinity'");
    release(&store, &grant(&store, &claim("a")).await).await;
}

/// A check that waited for the first one knows the life of before. Meanwhile the key may be granted.
#[tokio::test]
async fn a_late_check_of_another_life_deletes_nothing_that_was_granted_since() {
    let locks = Locks::open().await;
    locks.psql("UPDATE leasehold.lock_meta SET system = 'another', max_ttl = '100 ms'");
    // Those that wait may do so for as long as this machine needs.
    locks.psql("ALTER FUNCTION leasehold.hello SET lock_timeout = 0");
    let url = locks.url("");
    let [first, second, third] = [
        connect(&url).await,
        connect(&url).await,
        connect(&url).await,
    ];
    let hello = "BEGIN; SELECT leasehold.hello(NULL)";
    first.batch_execute(hello).await.unwrap();
    let second = tokio::spawn(async move {
        second.batch_execute(hello).await.unwrap();
        second
    });
    let blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                   AND query LIKE '%hello%' AND datname = current_database()";
    crate::world::until("the second waits", || locks.psql(blocked) == "1").await;
    let third = tokio::spawn(async move {
        let alone = "SELECT leasehold.hello(NULL)";
        third.batch_execute(alone).await.unwrap();
    });
    crate::world::until("the third waits", || locks.psql(blocked) == "2").await;
    first.batch_execute("COMMIT").await.unwrap();
    let second = second.await.unwrap();
    let ask = "SELECT answer FROM leasehold.ask('a', gen_random_uuid(), 'x', 100, 0, 'l', false)";
    crate::world::until("it grants again", || locks.psql(ask) == "granted").await;
    second.batch_execute("COMMIT").await.unwrap();
    third.await.unwrap();
    assert_eq!(locks.psql("SELECT count(*) FROM leasehold.claim"), "1");
}
