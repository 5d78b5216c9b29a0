//! One URL serves the store and the fence, with the options of libpq.

use leasehold::ErrorKind;
use leasehold::postgres::{PgFence, PostgresOptions, PostgresStore, tokio_postgres};

use crate::claims::{claim, grant, release};
use crate::server::until;
use crate::store_world::Locks;
use crate::world::{Bank, hold};

#[tokio::test]
async fn one_url_with_the_options_of_libpq_serves_the_store_and_the_fence() {
    let locks = Locks::open().await;
    let port = locks.server().port();
    let address = |query: &str| {
        let url = locks.url(&format!("timeout_millis=20000&{query}"));
        if query.starts_with("user=") {
            return url.replace("postgres@", "");
        }
        if query.starts_with("dbname=") {
            return url.replace(&format!("/{}?", locks.name), "?");
        }
        url
    };
    for query in [
        "sslmode=disable",
        "application_name=bank",
        "connect_timeout=10",
        "connect_timeout=0",
        "options=-c%20statement_timeout%3D30s",
        "target_session_attrs=read-write",
        "target_session_attrs=primary",
        "target_session_attrs=any",
        "channel_binding=prefer",
        "channel_binding=disable",
        "keepalives=0",
        "keepalives=1&keepalives_idle=60&keepalives_interval=10&keepalives_count=3",
        "tcp_user_timeout=20000",
        "load_balance_hosts=random",
        "hostaddr=127.0.0.1",
        "user=postgres&password=none",
        &format!("dbname={}", locks.name),
    ] {
        let url = address(query);
        let store = PostgresStore::connect(&url).await;
        let store = store.unwrap_or_else(|error| panic!("{query}: {error}"));
        let held = grant(&store, &claim("a")).await;
        release(&store, &held).await;
        let fence = PgFence::connect(&url).await;
        fence.unwrap_or_else(|error| panic!("{query}: {error}"));
    }
    for (query, why) in [
        // Without TLS, and nobody would know.
        ("sslmode=prefer", "sslmode"),
        ("sslmode=allow", "sslmode"),
        ("target_session_attrs=read-only", "target_session_attrs"),
        (
            "target_session_attrs=prefer-standby",
            "target_session_attrs",
        ),
        ("channel_binding=maybe", "channel_binding"),
        ("channel_binding=require", "needs TLS"),
        ("hostaddr=127.0.0.1,127.0.0.2", "hostaddr"),
        ("port=1", "behind the host"),
        ("service=bank", "service"),
    ] {
        let url = address(query);
        let [store, fence] = [
            PostgresStore::connect(&url).await.map(drop),
            PgFence::connect(&url).await.map(drop),
        ];
        for refused in [store, fence] {
            let refused = refused.expect_err(query);
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{query}: {refused}");
            assert!(refused.to_string().contains(why), "{query}: {refused}");
        }
    }
    let several = format!("127.0.0.1:1,127.0.0.1:{port}");
    let several = locks
        .url("target_session_attrs=any&timeout_millis=20000")
        .replace(&format!("127.0.0.1:{port}"), &several);
    drop(PostgresStore::connect(&several).await.unwrap());
    drop(PgFence::connect(&several).await.unwrap());
}

/// What a fence calls its connections; the store's have one name, by which the schema counts them.
#[tokio::test]
async fn the_name_of_an_application_is_that_of_its_fence() {
    let locks = Locks::open().await;
    let url = locks.url("timeout_millis=20000&application_name=bank");
    let store = PostgresStore::connect(&url).await.unwrap();
    let fence = PgFence::connect(&url).await.unwrap();
    fence.create_schema().await.unwrap();
    let names = "SELECT string_agg(DISTINCT application_name, ' ') FROM pg_stat_activity \
        WHERE datname = current_database() AND application_name <> 'psql'";
    until("both are connected", async || {
        locks.psql(names) == "bank leasehold"
    })
    .await;
    drop((store, fence));
}

/// As settings of the user's: here those of a role that may do nothing.
#[tokio::test]
async fn the_options_of_a_users_configuration_reach_the_server() {
    let locks = Locks::open().await;
    let role = format!("nobody_{}", locks.name);
    locks.psql(&format!("CREATE ROLE {role}"));
    let config = |options: &str| {
        let mut config: tokio_postgres::Config = locks.url("").replace('?', "").parse().unwrap();
        config.options(options);
        PostgresOptions::of_client(config, "timeout_millis=20000").unwrap()
    };
    let refused = PostgresStore::connect_with(config(&format!("-c role={role}"))).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Denied);
    // What the locks need is set after that.
    let other = "-c default_transaction_isolation=serializable";
    let store = PostgresStore::connect_with(config(other)).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;

    let bank = Bank::open().await;
    let mut config: tokio_postgres::Config = bank.url().parse().unwrap();
    config.options("-c work_mem=7MB");
    let options = PostgresOptions::of_client(config, "").unwrap();
    let fence = PgFence::connect_with(options).await.unwrap();
    for fence in [fence.clone(), fence.pipelined()] {
        let call = fence.transaction(async |t| {
            let work_mem: String = t.query_one("SHOW work_mem", &[]).await?.get(0);
            t.done(work_mem)
        });
        let done = hold(1).executor().commit(call).await.unwrap();
        assert_eq!(done.value, "7MB");
    }
}

/// The store's own words, from the fence too.
#[tokio::test]
async fn a_host_that_is_unknown_and_a_database_that_is_missing_are_named() {
    let locks = Locks::open().await;
    let unknown = "postgres://postgres@no-such-host.invalid/bank";
    let missing = locks.url("timeout_millis=20000");
    let missing = missing.replace(&locks.name, "no_such_database");
    for (url, kind, text) in [
        (unknown, ErrorKind::Unavailable, "host name not found"),
        (&missing, ErrorKind::Invalid, "no such database"),
    ] {
        let [store, fence] = [
            PostgresStore::connect(url).await.map(drop),
            PgFence::connect(url).await.map(drop),
        ];
        for refused in [store, fence] {
            let refused = refused.expect_err(url);
            assert_eq!(refused.kind(), kind, "{refused}");
            assert!(refused.to_string().contains(text), "{refused}");
        }
    }
}
