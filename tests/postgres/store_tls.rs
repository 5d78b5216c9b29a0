//! TLS to the server: it is encrypted, and the certificate and its name are verified.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use leasehold::postgres::{PgFence, PostgresStore};

use crate::certificates::{self, Certificates};
use crate::claims::{claim, grant, release};
use crate::server::PgServer;
use crate::world::hold;

/// Of the process below: the URL of its server.
const CHILD: &str = "LEASEHOLD_TEST_POSTGRES_TLS";

/// Runs as a process of its own for the tests below: its certificates are those that its environment names.
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

#[test]
fn only_a_server_of_a_trusted_authority_and_of_that_name_is_used() {
    let certificates = Certificates::of("DNS:localhost");
    let key = certificates.file("server.key");
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    crate::server::give_away(Path::new(&key));
    let settings = [
        "fsync=on".to_owned(),
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", certificates.file("server.pem")),
        format!("ssl_key_file={}", certificates.file("server.key")),
    ];
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let server = PgServer::start_with(&settings);
    server.psql("CREATE ROLE me LOGIN SUPERUSER");
    let file = server.psql("SHOW hba_file");
    server.psql(&format!(
        "COPY (VALUES ('hostssl all me 127.0.0.1/32 trust'), ('host all postgres 127.0.0.1/32 trust')) TO '{file}'"
    ));
    assert_eq!(server.psql("SELECT pg_reload_conf()"), "t");
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
        assert!(answer.contains("postgresql did not answer"), "{answer}");
        let answer = fence("127.0.0.1", mode, &ours);
        assert!(!answer.contains("committed"), "{answer}");
    }
}
