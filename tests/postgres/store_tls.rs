//! TLS to the server: it is encrypted, and the certificate and its name are verified.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use leasehold::ErrorKind;
use leasehold::postgres::{PgFence, PostgresStore};

use crate::certificates::{self, Certificates};
use crate::claims::{claim, grant, release};
use crate::server::{PgServer, until};
use crate::world::hold;

/// Of the process below: the URL of its server.
const CHILD: &str = "LEASEHOLD_TEST_POSTGRES_TLS";

/// Runs as a process of its own for the tests below: its certificates are those that its
/// environment names.
#[tokio::test]
async fn tls_client() {
    let Ok(url) = std::env::var(CHILD) else {
        return;
    };
    match PostgresStore::connect(&url).await {
        Ok(store) => {
            let held = grant(&store, &claim("a")).await;
            release(&store, &held).await;
            println!("\ngranted");
        }
        Err(error) => println!("\n{error}"),
    }
}

/// The same for the fence. It reads no option of the store.
#[tokio::test]
async fn tls_fence() {
    let Ok(url) = std::env::var(CHILD) else {
        return;
    };
    match PgFence::connect(&url.replace("create=auto&", "")).await {
        Ok(fence) => {
            fence.create_schema().await.unwrap();
            let call = fence.transaction(async |t| {
                let how = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl";
                let how: String = t.query_one(how, &[]).await?.get(0);
                t.done(how)
            });
            let done = hold(1).executor().commit(call).await.unwrap();
            println!("\ncommitted over {}", done.value);
        }
        Err(error) => println!("\n{error}"),
    }
}

/// What a process that trusts this authority says of a URL.
fn ask(url: &str, trusted: &str) -> String {
    certificates::ask("store_tls::tls_client", (CHILD, url), trusted)
}

/// A server with this certificate, that lets `me` in over TLS alone, and `guest` only with a
/// certificate of a client.
fn server(certificates: &Certificates, certificate: &str) -> PgServer {
    let key = certificates.file("server.key");
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    crate::server::give_away(Path::new(&key));
    let settings = [
        "fsync=on".to_owned(),
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", certificates.file(certificate)),
        format!("ssl_key_file={key}"),
        format!("ssl_ca_file={}", certificates.file("ca.pem")),
    ];
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let server = PgServer::start_with(&settings);
    server.psql("CREATE ROLE me LOGIN SUPERUSER; CREATE ROLE client LOGIN SUPERUSER");
    let file = server.psql("SHOW hba_file");
    server.psql(&format!(
        "COPY (VALUES ('hostssl all me 127.0.0.1/32 trust'), ('hostssl all client 127.0.0.1/32 cert'), ('host all postgres 127.0.0.1/32 trust')) TO '{file}'"
    ));
    assert_eq!(server.psql("SELECT pg_reload_conf()"), "t");
    server
}

/// Waits until the server has read who may enter, and asks then what becomes of a URL: the refusals
/// of the store and of the fence.
async fn entered(server: &PgServer, user: &str, host: &str, query: &str) -> [Option<String>; 2] {
    let port = server.port();
    let plain = format!("postgres://me@{host}:{port}/postgres?timeout_millis=20000");
    until("the server wants TLS", async || {
        let connected = PostgresStore::connect(&plain).await;
        connected.is_err_and(|error| error.kind() == ErrorKind::Denied)
    })
    .await;
    let url = format!(
        "postgres://{user}@{host}:{port}/postgres?create=auto&timeout_millis=20000{}{query}",
        if query.is_empty() { "" } else { "&" }
    );
    let store = PostgresStore::connect(&url).await.err();
    let fence = PgFence::connect(&url).await.err();
    // The fence has the reason among its causes.
    [store, fence].map(|error| error.map(|error| format!("{error} {error:?}")))
}

#[tokio::test]
async fn the_url_names_the_authority_and_what_is_verified() {
    let certificates = Certificates::of("DNS:localhost");
    let server = server(&certificates, "server.pem");
    let ca = |name: &str| format!("sslrootcert={}", certificates.file(name));
    let (ours, other) = (ca("ca.pem"), ca("other.pem"));
    for (host, mode, is_of_any_name) in [
        ("localhost", "verify-full", false),
        ("localhost", "verify-ca", true),
        ("127.0.0.1", "verify-ca", true),
        // As libpq has it: with a file of authorities `require` is `verify-ca`.
        ("127.0.0.1", "require", true),
        ("127.0.0.1", "verify-full", false),
    ] {
        let is_of_that_name = host == "localhost";
        for refused in entered(&server, "me", host, &format!("sslmode={mode}&{ours}")).await {
            if is_of_that_name || is_of_any_name {
                assert_eq!(refused, None, "{host} {mode}");
            } else {
                let refused = refused.unwrap();
                assert!(refused.contains("another host name"), "{refused}");
            }
        }
        for refused in entered(&server, "me", host, &format!("sslmode={mode}&{other}")).await {
            let refused = refused.unwrap();
            assert!(refused.contains("unknown authority"), "{refused}");
        }
    }
    // Without a file the system's authorities are trusted, which is stricter than libpq.
    for query in ["sslmode=require", "sslmode=require&sslrootcert=system"] {
        for refused in entered(&server, "me", "localhost", query).await {
            let refused = refused.unwrap();
            assert!(refused.contains("unknown authority"), "{refused}");
        }
    }
    for refused in entered(&server, "me", "localhost", &ours).await {
        assert!(refused.unwrap().contains("need TLS"));
    }
    for refused in entered(&server, "me", "localhost", "").await {
        assert!(refused.unwrap().contains("sslmode=verify-full"));
    }
}

/// Whoever is between the two could pass a login on: with its own certificate it cannot.
#[tokio::test]
async fn a_login_is_bound_to_the_certificate_of_the_server() {
    let certificates = Certificates::of("DNS:localhost");
    let server = server(&certificates, "server.pem");
    server.psql("CREATE ROLE bound LOGIN SUPERUSER PASSWORD 'secret'");
    let file = server.psql("SHOW hba_file");
    server.psql(&format!(
        "COPY (VALUES ('hostssl all bound 127.0.0.1/32 scram-sha-256'), ('hostssl all me 127.0.0.1/32 trust'), ('host all postgres 127.0.0.1/32 trust')) TO '{file}'"
    ));
    assert_eq!(server.psql("SELECT pg_reload_conf()"), "t");
    let ca = certificates.file("ca.pem");
    let query =
        |binding: &str| format!("sslmode=verify-full&sslrootcert={ca}&channel_binding={binding}");
    for binding in ["require", "prefer", "disable"] {
        let entered = entered(&server, "bound:secret", "localhost", &query(binding)).await;
        assert_eq!(entered, [None, None], "{binding}");
    }
    // Nothing is bound where no password is asked for.
    for refused in entered(&server, "me", "localhost", &query("require")).await {
        let refused = refused.unwrap();
        assert!(refused.contains("channel binding"), "{refused}");
    }
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_demanded() {
    let certificates = Certificates::of("DNS:localhost");
    let server = server(&certificates, "server.pem");
    let query = |cert: &str, key: &str| {
        let [ca, cert, key] = ["ca.pem", cert, key].map(|name| certificates.file(name));
        format!("sslmode=verify-full&sslrootcert={ca}&sslcert={cert}&sslkey={key}")
    };
    let with = async |query: &str| entered(&server, "client", "localhost", query).await;
    assert_eq!(with(&query("client.pem", "client.key")).await, [None, None]);
    for (query, why) in [
        (query("stranger.pem", "client.key"), "client certificate"),
        (
            query("client.pem", "server.key"),
            "key of another certificate",
        ),
        (query("nothing.pem", "client.key"), "NotFound"),
    ] {
        for refused in with(&query).await {
            let refused = refused.unwrap();
            assert!(refused.contains(why), "{refused}");
        }
    }
    let ca = certificates.file("ca.pem");
    let [store, fence] = with(&format!("sslmode=verify-full&sslrootcert={ca}")).await;
    for refused in [store.unwrap(), fence.unwrap()] {
        assert!(refused.contains("valid client certificate"), "{refused}");
    }
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_refused_in_every_mode() {
    let certificates = Certificates::of("DNS:localhost");
    let server = server(&certificates, "expired.pem");
    let ca = certificates.file("ca.pem");
    for mode in ["require", "verify-ca", "verify-full"] {
        let query = format!("sslmode={mode}&sslrootcert={ca}");
        for refused in entered(&server, "me", "localhost", &query).await {
            let refused = refused.unwrap();
            assert!(refused.contains("has expired"), "{refused}");
        }
    }
}

#[test]
fn only_a_server_of_a_trusted_authority_and_of_that_name_is_used() {
    let certificates = Certificates::of("DNS:localhost");
    let server = server(&certificates, "server.pem");
    let url = |host: &str, mode: &str| {
        let port = server.port();
        format!("postgres://me@{host}:{port}/postgres?create=auto&sslmode={mode}")
    };
    let (ours, other) = (certificates.file("ca.pem"), certificates.file("other.pem"));
    let mut answer = String::new();
    for _ in 0..100 {
        // The server reads its configuration when it gets to it.
        answer = ask(&url("127.0.0.1", "disable"), &ours);
        if answer.contains("denied") {
            break;
        }
    }
    assert!(answer.contains("denied"), "{answer}");
    // One URL serves the locks and the fence.
    for mode in ["verify-full", "require"] {
        let answer = ask(&url("localhost", mode), &ours);
        assert!(answer.contains("granted"), "{answer}");
        let answer = ask(&url("localhost", mode), &other);
        assert!(answer.contains("UnknownIssuer"), "{answer}");
        let answer = ask(&url("127.0.0.1", mode), &ours);
        assert!(
            !answer.contains("granted") && answer.contains("unavailable"),
            "{answer}"
        );
    }

    let fence = |host: &str, mode: &str, trusted: &str| {
        certificates::ask("store_tls::tls_fence", (CHILD, &url(host, mode)), trusted)
    };
    let answer = fence("localhost", "disable", &ours);
    assert!(!answer.contains("committed"), "{answer}");
    for mode in ["verify-full", "require"] {
        let answer = fence("localhost", mode, &ours);
        assert!(answer.contains("committed over TLS"), "{answer}");
        let answer = fence("localhost", mode, &other);
        assert!(!answer.contains("committed"), "{answer}");
        assert!(answer.contains("UnknownIssuer"), "{answer}");
        let answer = fence("127.0.0.1", mode, &ours);
        assert!(!answer.contains("committed"), "{answer}");
    }
}

/// Nobody writes what is read.
#[test]
fn certificates_of_the_system_that_cannot_be_read_end_a_connect_in_time() {
    let certificates = Certificates::of("DNS:localhost");
    let pipe = certificates.file("pipe.pem");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let url = "postgres://me@127.0.0.1:1/postgres?sslmode=verify-full&timeout_millis=300";
    let answer = ask(url, &pipe);
    assert!(answer.contains("were not read in time"), "{answer}");
}
