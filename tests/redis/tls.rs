//! Servers over TLS: one, the nodes of a cluster, and a master with its sentinels.

use leasehold::redis::{RedisOptions, RedisStore};
use leasehold::store::quorum::Quorum;
use leasehold::store::{Acquired, Store};
use leasehold::{Error, LockManager};

use crate::certificates::{self, Certificates};
use crate::claims::{claim, grant, release};
use crate::sentinel::Sentinel;
use crate::server::cluster::RedisCluster;
use crate::server::{RedisServer, breathe, free_port, patiently, until};

/// Of the process below: where its server is.
const CHILD: &str = "LEASEHOLD_TEST_TLS";
const FRESH: &str = "prefix=app&restart_quarantine=off";

/// Not a test, but for those that start it: a process whose certificates are those that its
/// environment names.
#[tokio::test]
async fn tls_client() {
    let Ok(url) = std::env::var(CHILD) else {
        return;
    };
    if url.contains(' ') {
        let member = |url| RedisStore::member(RedisOptions::parse(url).unwrap()).unwrap();
        let quorum = Quorum::new(url.split(' ').map(member)).unwrap();
        let claim = claim("a");
        let mut answer = quorum.acquire(&claim).await;
        // A busy machine may not reach a majority in the time of one request.
        for _ in 0..9 {
            if matches!(answer, Ok(Acquired::Granted(_))) {
                break;
            }
            answer = quorum.acquire(&claim).await;
        }
        println!("\n{}", reported(&answer));
        return;
    }
    match RedisStore::connect(&url).await {
        Ok(store) => {
            // In a cluster they are at several nodes.
            for name in ["a", "b", "c", "d"] {
                let held = grant(&store, &claim(name)).await;
                release(&store, &held).await;
            }
            println!("\ngranted");
        }
        Err(error) => println!("\n{error}"),
    }
}

fn reported(answer: &Result<Acquired, Error>) -> String {
    match answer {
        Ok(Acquired::Granted(_)) => "granted".to_owned(),
        answer => format!("{answer:?}"),
    }
}

/// What a process that trusts this authority says of a URL, or of a quorum of several.
fn ask(url: &str, trusted: &str) -> String {
    certificates::ask("tls::tls_client", (CHILD, url), trusted)
}

fn certificates() -> Certificates {
    Certificates::of("IP:127.0.0.1,DNS:localhost")
}

impl Certificates {
    /// Settings of a server that shows the certificate, and asks for none.
    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("tls-auth-clients", "no".into()),
            ("tls-cert-file", self.file("server.pem")),
            ("tls-key-file", self.file("server.key")),
            ("tls-ca-cert-file", self.file("ca.pem")),
        ]
    }

    /// The options of a URL that trusts this authority.
    fn trusting(&self, ca: &str) -> String {
        patiently(&format!("{FRESH}&ca={}", self.file(ca)))
    }

    /// A server that listens at this port too.
    pub(crate) fn server(&self, port: u16, arguments: &[&str]) -> RedisServer {
        let mut words = vec!["--tls-port".to_owned(), port.to_string()];
        for (name, value) in self.settings() {
            words.extend([format!("--{name}"), value]);
        }
        let words = words
            .iter()
            .map(String::as_str)
            .chain(arguments.iter().copied());
        RedisServer::start_with(&words.collect::<Vec<_>>())
    }
}

fn is_refused(reported: &str) -> bool {
    reported.contains("unavailable: the TLS handshake with redis failed")
}

#[test]
fn a_server_over_tls_is_trusted_by_its_certificate_alone() {
    let certificates = certificates();
    let port = free_port();
    let both = ["--bind", "127.0.0.1", "127.0.0.2"];
    let server = certificates.server(port, &both);
    assert_ne!(server.port(), port);
    let url = |host: &str| format!("rediss://{host}:{port}/0?{FRESH}");
    let ca = certificates.file("ca.pem");
    for host in ["127.0.0.1", "localhost"] {
        let reported = ask(&url(host), &ca);
        assert!(reported.contains("\ngranted\n"), "{reported}");
    }
    // Another authority, and a name that the certificate does not have.
    for (host, trusted) in [
        ("127.0.0.1", certificates.file("other.pem")),
        ("127.0.0.2", ca),
    ] {
        let reported = ask(&url(host), &trusted);
        assert!(is_refused(&reported), "{reported}");
    }
}

#[test]
fn a_quorum_is_reached_over_tls_by_the_options_of_its_members() {
    let certificates = certificates();
    let ports: Vec<_> = (0..3).map(|_| free_port()).collect();
    let servers = ports.iter().map(|port| certificates.server(*port, &[]));
    let _servers: Vec<_> = servers.collect();
    let urls = ports
        .iter()
        .map(|port| format!("rediss://127.0.0.1:{port}/0?{FRESH}"));
    let urls = urls.collect::<Vec<_>>().join(" ");
    let reported = ask(&urls, &certificates.file("ca.pem"));
    assert!(reported.contains("\ngranted\n"), "{reported}");
    let reported = ask(&urls, &certificates.file("other.pem"));
    assert!(!reported.contains("\ngranted\n"), "{reported}");
}

#[test]
fn every_node_of_a_cluster_over_tls_is_trusted_by_its_certificate_alone() {
    let certificates = certificates();
    let ports: Vec<_> = (0..3).map(|_| free_port()).collect();
    let cluster = RedisCluster::of_servers(|index, arguments| {
        let arguments = [arguments, &["--tls-cluster", "yes"]].concat();
        certificates.server(ports[index], &arguments)
    });
    // The others are those that the named one names: they too are asked over TLS.
    let url = format!("rediss+cluster://127.0.0.1:{}/?{FRESH}", ports[0]);
    let reported = ask(&url, &certificates.file("ca.pem"));
    assert!(reported.contains("\ngranted\n"), "{reported}");
    for node in cluster.masters() {
        let counters = node.cli(&["KEYS", "app:*:token"]);
        assert!(!counters.is_empty(), "a lock was at every node");
    }
    let reported = ask(&url, &certificates.file("other.pem"));
    assert!(is_refused(&reported), "{reported}");
}

#[tokio::test]
async fn sentinels_and_their_master_over_tls_are_trusted_by_their_certificates_alone() {
    let certificates = certificates();
    let port = free_port();
    let master = certificates.server(port, &["--tls-replication", "yes"]);
    let mut sentinels = Vec::new();
    let mut hosts = Vec::new();
    for _ in 0..3 {
        let own = free_port();
        let mut settings = format!("tls-port {own}\ntls-replication yes\n");
        for (name, value) in certificates.settings() {
            settings.push_str(&format!("{name} {value}\n"));
        }
        sentinels.push(Sentinel::watching_at(&master, port, &settings));
        hosts.push(format!("127.0.0.1:{own}"));
    }
    let url = format!("rediss+sentinel://{}/main?{FRESH}", hosts.join(","));
    let ca = certificates.file("ca.pem");
    // Sentinels need a moment to listen.
    let mut reported = String::new();
    for _ in 0..100 {
        reported = ask(&url, &ca);
        if reported.contains("\ngranted\n") {
            break;
        }
        breathe().await;
    }
    assert!(reported.contains("\ngranted\n"), "{reported}");
    assert_ne!(master.cli(&["KEYS", "app:*:token"]), "");
    let reported = ask(&url, &certificates.file("other.pem"));
    assert!(
        reported.contains("no majority of the sentinels"),
        "{reported}"
    );
}

/// Holds a lock for a moment.
async fn hold(url: &str) -> Result<(), Error> {
    let store = RedisStore::connect(url).await?;
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;
    Ok(())
}

/// The text of the error, which holds the reason.
async fn refusal(url: &str) -> String {
    hold(url).await.unwrap_err().to_string()
}

#[tokio::test]
async fn the_url_names_the_authority_and_an_error_what_is_wrong_with_the_server() {
    let certificates = certificates();
    let port = free_port();
    let both = ["--bind", "127.0.0.1", "127.0.0.2"];
    let server = certificates.server(port, &both);
    let ours = certificates.trusting("ca.pem");
    let url = |host: &str, query: &str| format!("rediss://{host}:{port}/0?{query}");
    hold(&url("127.0.0.1", &ours)).await.unwrap();
    let other = certificates.trusting("other.pem");
    for (host, query, why) in [
        ("127.0.0.1", &other, "unknown authority"),
        ("127.0.0.2", &ours, "another host name"),
    ] {
        let text = refusal(&url(host, query)).await;
        assert!(is_refused(&text) && text.contains(why), "{text}");
    }

    let file = certificates.file("expired.pem");
    server.cli(&["CONFIG", "SET", "tls-cert-file", &file]);
    let text = refusal(&url("127.0.0.1", &ours)).await;
    assert!(is_refused(&text) && text.contains("has expired"), "{text}");
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_demanded_and_read_at_each_connect() {
    let certificates = certificates();
    let port = free_port();
    let _server = certificates.server(port, &["--tls-auth-clients", "yes"]);
    let url = |query: &str| {
        let ours = certificates.trusting("ca.pem");
        format!("rediss://127.0.0.1:{port}/0?{ours}{query}")
    };
    let text = refusal(&url("")).await;
    assert!(text.contains("client certificate"), "{text}");
    let with = |cert: &str, key: &str| {
        let [cert, key] = [cert, key].map(|name| certificates.file(name));
        url(&format!("&cert={cert}&key={key}"))
    };
    hold(&with("client.pem", "client.key")).await.unwrap();
    let text = refusal(&with("stranger.pem", "client.key")).await;
    assert!(text.contains("client certificate"), "{text}");
    let text = refusal(&with("client.pem", "server.key")).await;
    assert!(text.contains("key of another certificate"), "{text}");
    let text = refusal(&with("san", "client.key")).await;
    assert!(text.contains("no certificate in PEM"), "{text}");
    let text = refusal(&with("client.pem", "san")).await;
    assert!(text.contains("no private key in PEM"), "{text}");

    // One URL, while the files behind it are replaced.
    let options = RedisOptions::parse(&with("now.pem", "now.key")).unwrap();
    let put = |cert: &str, key: &str| {
        for (from, to) in [(cert, "now.pem"), (key, "now.key")] {
            std::fs::copy(certificates.file(from), certificates.file(to)).unwrap();
        }
    };
    put("stranger.pem", "client.key");
    let store = RedisStore::member(options).unwrap();
    let ours = claim("a");
    store.acquire(&ours).await.unwrap_err();
    put("client.pem", "client.key");
    until("the new certificate is shown", async || {
        matches!(store.acquire(&ours).await, Ok(Acquired::Granted(_)))
    })
    .await;
}

#[tokio::test]
async fn sentinels_a_cluster_and_a_quorum_are_trusted_by_the_authority_of_the_url() {
    let certificates = certificates();
    let ours = certificates.trusting("ca.pem");
    let ports: Vec<_> = (0..3).map(|_| free_port()).collect();
    let hosts = |ports: &[u16]| {
        let hosts: Vec<_> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        hosts.join(",")
    };
    {
        let servers = ports.iter().map(|port| certificates.server(*port, &[]));
        let _servers: Vec<_> = servers.collect();
        let url = |query: &str| format!("redlocks://{}/0?{query}", hosts(&ports));
        let locks = LockManager::connect(&url(&ours)).await.unwrap();
        let guard = locks.lock("a").acquire().await.unwrap();
        guard.release().await.unwrap();
        let other = url(&certificates.trusting("other.pem"));
        let locks = LockManager::connect(&other).await.unwrap();
        locks.lock("a").try_acquire().await.unwrap_err();
    }
    let ports: Vec<_> = (0..3).map(|_| free_port()).collect();
    let cluster = RedisCluster::of_servers(|index, arguments| {
        let arguments = [arguments, &["--tls-cluster", "yes"]].concat();
        certificates.server(ports[index], &arguments)
    });
    let url = |query: &str| format!("rediss+cluster://127.0.0.1:{}/?{query}", ports[0]);
    hold(&url(&ours)).await.unwrap();
    let text = refusal(&url(&certificates.trusting("other.pem"))).await;
    assert!(text.contains("unknown authority"), "{text}");
    drop(cluster);

    let port = free_port();
    let master = certificates.server(port, &["--tls-replication", "yes"]);
    let (mut sentinels, mut own) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        own.push(free_port());
        let mut settings = format!("tls-port {}\ntls-replication yes\n", own[own.len() - 1]);
        for (name, value) in certificates.settings() {
            settings.push_str(&format!("{name} {value}\n"));
        }
        sentinels.push(Sentinel::watching_at(&master, port, &settings));
    }
    let url = format!("rediss+sentinel://{}/main?{ours}", hosts(&own));
    until("the sentinels listen", async || hold(&url).await.is_ok()).await;
}

/// Nobody writes what is read, and the heartbeats of all other locks are on the same thread.
#[test]
fn certificates_of_the_system_that_cannot_be_read_end_a_connect_in_time() {
    let certificates = certificates();
    let pipe = certificates.file("pipe.pem");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let answer = ask("rediss://127.0.0.1:1/0?timeout_millis=300", &pipe);
    assert!(answer.contains("were not read in time"), "{answer}");
    assert!(answer.contains("with ca"), "{answer}");
    // Each host of the others is asked as this one is.
    for url in [
        "rediss+cluster://127.0.0.1:1/?timeout_millis=300",
        "rediss+sentinel://127.0.0.1:1/main?timeout_millis=300",
    ] {
        let answer = ask(url, &pipe);
        assert!(answer.contains("unavailable"), "{url}: {answer}");
    }
}

#[test]
fn the_authority_of_the_url_replaces_those_of_the_system_whatever_these_are() {
    let certificates = certificates();
    let port = free_port();
    let _server = certificates.server(port, &[]);
    let ours = certificates.trusting("ca.pem");
    let url = format!("rediss://127.0.0.1:{port}/0?{ours}");
    let reported = ask(&url, "/gone");
    assert!(reported.contains("\ngranted\n"), "{reported}");
    // One that the system trusts is none of them.
    let other = certificates.trusting("other.pem");
    let url = format!("rediss://127.0.0.1:{port}/0?{other}");
    let reported = ask(&url, &certificates.file("ca.pem"));
    assert!(reported.contains("unknown authority"), "{reported}");
    let url = format!("rediss://127.0.0.1:{port}/0?{FRESH}");
    let reported = ask(&url, "/gone");
    assert!(reported.contains("unknown authority"), "{reported}");
}

#[tokio::test]
async fn the_certificates_of_a_client_are_used_as_they_are_or_replaced_as_a_whole() {
    let certificates = certificates();
    let port = free_port();
    let _server = certificates.server(port, &["--tls-auth-clients", "yes"]);
    let url = format!("rediss://127.0.0.1:{port}/0");
    let read = |name: &str| std::fs::read(certificates.file(name)).unwrap();
    let identity = ::redis::ClientTlsConfig {
        client_cert: read("client.pem"),
        client_key: read("client.key"),
    };
    let certificates_of_it = ::redis::TlsCertificates {
        client_tls: Some(identity),
        root_cert: Some(read("ca.pem")),
    };
    let client = ::redis::Client::build_with_tls(url.as_str(), certificates_of_it).unwrap();
    let server = || client.get_connection_info().clone();
    let options = RedisOptions::of_client(server(), &patiently(FRESH)).unwrap();
    let store = RedisStore::connect_with(options).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|it| certificates.file(it));
    let files = format!("cert={cert}&key={key}");
    for part in [format!("ca={ca}"), files.clone()] {
        let error = RedisOptions::of_client(server(), &part).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("name all of them as options"), "{text}");
    }
    // A client without any, and all of them as options.
    let client = ::redis::Client::open(url.as_str()).unwrap();
    let server = client.get_connection_info().clone();
    let options = format!("{}&ca={ca}&{files}", patiently(FRESH));
    let options = RedisOptions::of_client(server, &options).unwrap();
    let store = RedisStore::connect_with(options).await.unwrap();
    let held = grant(&store, &claim("a")).await;
    release(&store, &held).await;
}
