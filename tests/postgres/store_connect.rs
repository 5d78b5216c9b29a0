//! What a store of locks needs of its database, and what it refuses.

use std::io::Write;
use std::net::{Shutdown, TcpListener};

use leasehold::postgres::{PgFence, PostgresOptions, PostgresStore};
use leasehold::store::Store;
use leasehold::{Error, ErrorKind, postgres};

use crate::canary::{self, CANARY};
use crate::claims::{claim, grant, release};
use crate::server::{PgBouncer, PgServer, until};
use crate::store_world::Locks;
use crate::world::connect;

async fn refused(url: &str) -> Error {
    let error = PostgresStore::connect(url).await.expect_err(url);
    assert!(
        !canary::is_in(format!("{error} {error:?}").as_bytes()),
        "the password is shown"
    );
    error
}

#[tokio::test]
async fn clients_that_create_the_schema_at_once_do_not_disturb_each_other() {
    let locks = Locks::empty();
    let stores = (0..4).map(|_| locks.store("create=auto&max_ttl=20s"));
    let stores = futures_util::future::join_all(stores).await;
    let held = grant(&stores[0], &claim("a")).await;
    release(&stores[3], &held).await;
    let kept = locks.psql("SELECT version, max_ttl FROM leasehold.lock_meta");
    assert_eq!(kept, "4|00:00:20");
}

#[tokio::test]
async fn the_database_of_a_client_serves_locks_and_a_fence() {
    let locks = Locks::open().await;
    let config: tokio_postgres::Config = locks.url("").parse().unwrap();
    let options = || PostgresOptions::of_client(config.clone(), "max_ttl=30s");
    let store = PostgresStore::connect_with(options().unwrap()).await;
    let held = grant(&store.unwrap(), &claim("a")).await;
    release(&locks.store("").await, &held).await;
    PgFence::connect_with(options().unwrap()).await.unwrap();
}

#[tokio::test]
async fn an_application_needs_usage_of_the_schema_and_reads_no_table() {
    let locks = Locks::open().await;
    let role = format!("app_{}", locks.name);
    locks.psql(&format!("CREATE ROLE {role} LOGIN"));
    let url = locks
        .url("create=auto")
        .replace("postgres@", &format!("{role}@"));
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("GRANT USAGE"), "{error}");

    locks.psql(&format!("GRANT USAGE ON SCHEMA leasehold TO {role}"));
    let store = PostgresStore::connect(&url).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    assert_eq!(store.list("").await.unwrap().len(), 1);
    let plain = connect(url.split('?').next().unwrap()).await;
    for statement in [
        "SELECT owner FROM leasehold.claim",
        "DELETE FROM leasehold.claim",
        "UPDATE leasehold.lock_meta SET max_ttl = '1 s'",
        "SELECT leasehold.hand_over('a', true)",
    ] {
        let error = plain.batch_execute(statement).await.unwrap_err();
        let code = error.code().expect("an answer").code();
        assert_eq!(code, "42501", "{statement}: {error}");
    }
    release(&store, &held).await;
}

#[tokio::test]
async fn a_database_that_does_not_suit_is_refused_at_the_connect() {
    let locks = Locks::empty();
    let error = refused(&locks.url("")).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(
        error.to_string().contains("leasehold sql postgres"),
        "{error}"
    );

    locks.store("create=auto").await;
    let error = refused(&locks.url("max_ttl=1m")).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("max_ttl=30s"), "{error}");

    for (version, kind, word) in [
        (5, ErrorKind::Unsupported, "newer"),
        (3, ErrorKind::Invalid, "older"),
    ] {
        locks.psql(&format!(
            "UPDATE leasehold.lock_meta SET version = {version}"
        ));
        for query in ["", "create=auto"] {
            let error = refused(&locks.url(query)).await;
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
        // Its functions would be those of one version, and its tables of another.
        let again = locks
            .server()
            .psql_in(&locks.name, &format!("BEGIN; {}", postgres::SCHEMA));
        assert!(
            again
                .expect_err("another version")
                .contains("another version")
        );
    }
    // A version that lacks what this one asks first.
    locks.psql("DROP FUNCTION leasehold.hello(text)");
    let error = refused(&locks.url("create=auto")).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("another version"), "{error}");
}

#[tokio::test]
async fn a_server_that_may_forget_locks_in_a_crash_is_refused() {
    for (setting, name) in [
        ("fsync=off", "fsync"),
        ("full_page_writes=off", "full_page_writes"),
    ] {
        let server = PgServer::start_with(&["fsync=on", setting]);
        let error = refused(&format!("{}?create=auto", server.url())).await;
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[tokio::test]
async fn whatever_the_default_isolation_is_the_locks_are_read_committed_or_refused() {
    let locks = Locks::open().await;
    locks.psql(&format!(
        "ALTER DATABASE {} SET default_transaction_isolation = 'repeatable read'",
        locks.name
    ));
    let direct = locks.store("").await;
    let held = grant(&direct, &claim("a")).await;
    release(&direct, &held).await;
    // A pooler passes no options of a connection on.
    let pooler = PgBouncer::before(locks.server());
    let pooled = PostgresStore::connect(&locks.url_at(pooler.port(), ""))
        .await
        .unwrap();
    let error = pooled.acquire(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("READ COMMITTED"), "{error}");
}

#[tokio::test]
async fn an_address_that_is_wrong_is_reported_without_the_password() {
    let error = refused(&format!("postgres://me:{CANARY}@no-such-host.invalid/db")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(
        error.to_string(),
        "unavailable: host name not found: address=no-such-host.invalid:5432; check the host in the URL, and the name service"
    );
    assert!(std::error::Error::source(&error).is_some(), "{error:?}");

    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let error = refused(&format!("postgres://me:{CANARY}@{}/db", nobody.unwrap())).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        error.to_string().contains("reason=ConnectionRefused"),
        "{error}"
    );
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(!error.to_string().contains(&cause), "said twice: {cause}");

    let redis = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = redis.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in redis.incoming() {
            let mut client = client.unwrap();
            let _ = client.write_all(b"-ERR Protocol error: invalid multibulk length\r\n");
            let _ = client.shutdown(Shutdown::Write);
            // A connection that is closed with something unread is reset, and the answer with it.
            let _ = std::io::copy(&mut client, &mut std::io::sink());
        }
    });
    let error = refused(&format!("postgres://me:{CANARY}@127.0.0.1:{port}/db")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("no PostgreSQL"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_a_right_one_is_logged_nowhere() {
    let server = PgServer::start_with(&["fsync=on"]);
    server.psql(&format!(
        "CREATE ROLE me LOGIN SUPERUSER PASSWORD '{CANARY}'"
    ));
    let file = server.psql("SHOW hba_file");
    server.psql(&format!(
        "COPY (VALUES ('host all me 127.0.0.1/32 scram-sha-256'), ('host all all 127.0.0.1/32 trust')) TO '{file}'"
    ));
    assert_eq!(server.psql("SELECT pg_reload_conf()"), "t");
    let url = |password: &str| {
        format!(
            "postgres://me:{password}@127.0.0.1:{}/postgres?create=auto",
            server.port()
        )
    };
    let mut error = None;
    for _ in 0..1_000 {
        // The server reads its configuration when it gets to it.
        error = PostgresStore::connect(&url(&format!("not-{CANARY}")))
            .await
            .err();
        if error.is_some() {
            break;
        }
        crate::server::breathe().await;
    }
    let error = error.expect("a refusal");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!canary::is_in(format!("{error} {error:?}").as_bytes()));

    let store = PostgresStore::connect(&url(CANARY)).await.unwrap();
    assert!(!canary::is_in(format!("{store:?}").as_bytes()));
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;
    let error = refused(&format!("{}&max_ttl=1m", url(CANARY))).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// A connect ends, and so does what it left at the server.
#[tokio::test]
async fn tables_that_somebody_locks_end_a_connect_in_time() {
    let locks = Locks::open().await;
    let somebody = connect(locks.url("").trim_end_matches('?')).await;
    let lock = "BEGIN; LOCK TABLE leasehold.lock_meta IN ACCESS EXCLUSIVE MODE";
    somebody.batch_execute(lock).await.unwrap();
    for query in ["timeout_millis=300", "timeout_millis=300&create=auto"] {
        let error = refused(&locks.url(query)).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{query}: {error}");
    }
    let waiting = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("nobody waits for the tables", async || {
        locks.psql(waiting) == "0"
    })
    .await;
    somebody.batch_execute("ROLLBACK").await.unwrap();
    drop(locks.store("create=auto").await);
}

/// Somebody else is creating it, and does not end.
#[tokio::test]
async fn a_schema_that_somebody_creates_for_ever_ends_a_connect_in_time() {
    let locks = Locks::empty();
    let somebody = connect(locks.url("").trim_end_matches('?')).await;
    let turn = "SELECT pg_advisory_lock(hashtext('leasehold'))";
    somebody.batch_execute(turn).await.unwrap();
    let error = refused(&locks.url("timeout_millis=300&create=auto")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
