//! Passwords that change while locks are held and transactions commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::ErrorKind;
use leasehold::postgres::{PgFence, PostgresOptions, PostgresStore};

use crate::rotation_of::{Holds, SecretFile, in_turn, manager};
use crate::server::canary::CANARY;
use crate::server::{PgServer, breathe, until};
use crate::world::hold;

fn first() -> String {
    format!("{CANARY}-first")
}

fn second() -> String {
    format!("{CANARY}-second")
}

/// A server that asks the user `me` for a password, and logs whom it refuses.
async fn server() -> PgServer {
    let server = PgServer::start_with(&["fsync=on"]);
    server.psql(&format!("CREATE ROLE me LOGIN PASSWORD '{}'", first()));
    server.psql("CREATE DATABASE locks OWNER me");
    let file = server.psql("SHOW hba_file");
    server.psql(&format!(
        "COPY (VALUES ('host all me 127.0.0.1/32 scram-sha-256'), ('host all postgres 127.0.0.1/32 trust')) TO '{file}'"
    ));
    assert_eq!(server.psql("SELECT pg_reload_conf()"), "t");
    let url = url(&server, "create=auto").replace("me@", &format!("me:{CANARY}-no@"));
    until("the server asks for a password", async || {
        let connected = PostgresStore::connect(&url).await;
        connected.is_err_and(|error| error.kind() == ErrorKind::Denied)
    })
    .await;
    server
}

fn set_password(server: &PgServer, password: &str) {
    server.psql(&format!("ALTER ROLE me PASSWORD '{password}'"));
}

/// Ends every connection of the user.
fn disconnect(server: &PgServer) {
    let ended =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'me'";
    assert_ne!(server.psql(ended), "0");
}

/// How many logins the server has refused.
fn refusals(server: &PgServer) -> usize {
    let log = server.log();
    log.matches("password authentication failed for user \"me\"")
        .count()
}

fn url(server: &PgServer, query: &str) -> String {
    let port = server.port();
    format!("postgres://me@127.0.0.1:{port}/locks?timeout_millis=20000&{query}")
}

#[tokio::test]
async fn a_password_file_that_changes_costs_no_hold_and_no_commit() {
    let server = server().await;
    let file = SecretFile::with(&first());
    let url = url(
        &server,
        &format!("create=auto&password_file={}", file.path()),
    );
    let store = PostgresStore::connect(&url).await.unwrap();
    // One URL serves the locks and the fence.
    let fence = PgFence::connect(&url).await.unwrap();
    fence.create_schema().await.unwrap();
    let locks = manager(store);
    let holds = Holds::of(&locks).await;
    // Now there is a connection for heartbeats too.
    holds.are_renewed(breathe).await;

    // First the server: what is open stays open.
    set_password(&server, &second());
    holds.are_renewed(breathe).await;
    // What connects is refused until the file changes.
    let before = refusals(&server);
    disconnect(&server);
    until("a login is refused", async || refusals(&server) > before).await;
    file.write(&second());
    holds.are_renewed(breathe).await;
    let call = fence.transaction(async |t| {
        let who: String = t.query_one("SELECT current_user::text", &[]).await?.get(0);
        t.done(who)
    });
    let done = hold(1).executor().commit(call).await.unwrap();
    assert_eq!(done.value, "me");
    assert!(!format!("{locks:?} {fence:?}").contains(CANARY));
    holds.release().await;
}

/// The options of a user whose password was the first, and is the second.
fn provided(url: &str, asked: &Arc<AtomicUsize>) -> PostgresOptions {
    let options = PostgresOptions::parse(url).unwrap();
    options.credentials_from(in_turn(asked, [first(), second()]))
}

#[tokio::test]
async fn a_provider_is_asked_again_when_its_credentials_are_refused() {
    let server = server().await;
    set_password(&server, &second());
    let url = url(&server, "create=auto").replace("me@", "");
    let asked = Arc::default();
    let options = provided(&url, &asked);
    assert!(!format!("{options:?}").contains(CANARY), "{options:?}");
    // The first connect succeeds, though its first credentials are of yesterday.
    let store = PostgresStore::connect_with(options).await.unwrap();
    let locks = manager(store);
    let holds = Holds::of(&locks).await;
    let before = asked.load(Ordering::SeqCst);
    disconnect(&server);
    holds.are_renewed(breathe).await;
    assert!(asked.load(Ordering::SeqCst) > before);
    holds.release().await;

    let asked = Arc::default();
    let fence = PgFence::connect_with(provided(&url, &asked)).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    fence.create_schema().await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_missing_is_named() {
    let server = server().await;
    let url = url(&server, "password_file=/nowhere/password");
    for error in [
        PostgresStore::connect(&url).await.unwrap_err(),
        PgFence::connect(&url).await.unwrap_err(),
    ] {
        let text = error.to_string();
        for part in ["password_file", "/nowhere/password", "NotFound", "check"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
