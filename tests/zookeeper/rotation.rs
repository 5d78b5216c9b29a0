//! Credentials that are asked for at each session.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::store::{Renewed, Store};
use leasehold::zookeeper::{ZooKeeperOptions, ZooKeeperStore};
use leasehold::{Credentials, ErrorKind};
use parking_lot::Mutex;
use zookeeper_client::{Acl, AuthId, Client, Permission};

use crate::rotation_of::{Holds, SecretFile, in_turn, manager};
use crate::zookeeper::canary::CANARY;
use crate::zookeeper::{PATIENCE, Server, claim, granted, raw, renewed, rest};

/// Whether nodes that `me` made with the canary as password admit us.
async fn enters(options: &ZooKeeperOptions) -> bool {
    match ZooKeeperStore::open(options.clone(), Clock::system().unwrap()).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert!(!format!("{error:?}").contains(CANARY), "{error:?}");
            false
        }
    }
}

#[tokio::test]
async fn a_password_file_is_read_for_each_session_and_a_session_keeps_what_it_had() {
    let server = Server::shared();
    let file = SecretFile::with(CANARY);
    let url = format!(
        "zookeeper://me@{}/rotation/file?tick_time=500ms&password_file={}",
        server.address(),
        file.path()
    );
    let options = ZooKeeperOptions::parse(&url).unwrap();
    let mine = ZooKeeperStore::open(options.clone(), Clock::system().unwrap()).await;
    let mine = mine.unwrap();
    let held = granted(&mine, &claim("k")).await;
    assert!(enters(&options).await);
    file.write(&format!("{CANARY}-other"));
    assert!(!enters(&options).await);
    let answer = renewed(&mine, &held).await;
    assert!(matches!(answer, Renewed::Extended(_)), "{answer:?}");
    file.write(CANARY);
    assert!(enters(&options).await);
    mine.release(&held).await;

    let missing = url.replace(&file.path(), "/nowhere/password");
    let options = ZooKeeperOptions::parse(&missing).unwrap();
    let refused = ZooKeeperStore::open(options, Clock::system().unwrap()).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("/nowhere/password"), "{text}");
}

#[tokio::test]
async fn a_provider_is_asked_for_each_session() {
    let server = Server::shared();
    let password = Arc::new(Mutex::new(CANARY.to_owned()));
    let given = Arc::clone(&password);
    let url = format!("zookeeper://{}/rotation/provider", server.address());
    let options = ZooKeeperOptions::parse(&format!("{url}?tick_time=500ms")).unwrap();
    let options = options.credentials_from(move || {
        let password = given.lock().clone();
        async move { Ok(Credentials::new("me", password)) }
    });
    assert!(!format!("{options:?}").contains(CANARY));
    assert!(enters(&options).await);
    *password.lock() = format!("{CANARY}-other");
    assert!(!enters(&options).await);
}

#[tokio::test]
async fn a_provider_that_fails_is_the_reason_of_the_error() {
    let server = Server::shared();
    let options = ZooKeeperOptions::new(server.address());
    let options = options.credentials_from(async || Err("no password today".into()));
    let opened = ZooKeeperStore::open(options, Clock::system().unwrap()).await;
    let text = format!("{:?}", opened.unwrap_err());
    assert!(text.contains("no password today"), "{text}");
}

#[tokio::test]
async fn credentials_that_are_refused_are_asked_for_once_more() {
    let server = Server::shared();
    let passwords = ["first", "second"].map(|word| format!("{CANARY}-{word}"));
    let url = format!(
        "zookeeper://{}/rotation-twice?tick_time=500ms",
        server.address()
    );
    let options = ZooKeeperOptions::parse(&url).unwrap();
    let second = Credentials::new("me", passwords[1].as_str());
    let of_second = (options.clone()).credentials_from(move || ready(Ok(second.clone())));
    assert!(enters(&of_second).await);
    let asked = Arc::new(AtomicUsize::new(0));
    assert!(enters(&options.credentials_from(in_turn(&asked, passwords))).await);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

/// Makes a node, and all below it, admit only the users of this client.
async fn admit(client: &Client, root: &str) {
    let acl = Acl::new(Permission::ALL, AuthId::new("auth", ""));
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let children = client.list_children(&path).await.unwrap();
        paths.extend(children.iter().map(|child| format!("{path}/{child}")));
        let acl = std::slice::from_ref(&acl);
        client.set_acl(&path, acl, None).await.unwrap();
    }
}

/// The session stays, since a new one would cost all holds.
#[tokio::test]
async fn a_password_that_changes_costs_no_hold() {
    let server = Server::shared();
    let [first, second] = ["first", "second"].map(|word| format!("{CANARY}-{word}"));
    let file = SecretFile::with(&first);
    let url = format!(
        "zookeeper://me@{}/rotation-holds?tick_time=500ms&password_file={}",
        server.address(),
        file.path()
    );
    let locks = manager(ZooKeeperStore::connect(&url).await.unwrap());
    let breathe = async || rest(Duration::from_millis(20)).await;
    let holds = Holds::of(&locks).await;
    holds.are_renewed(breathe).await;

    let (both, new) = (raw(&server).await, raw(&server).await);
    for (client, password) in [(&both, &first), (&both, &second), (&new, &second)] {
        let login = format!("me:{password}");
        client.auth("digest", login.as_bytes()).await.unwrap();
    }
    for client in [&both, &new] {
        admit(client, "/rotation-holds").await;
    }
    let refused = locks.lock("one-more").acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    file.write(&second);
    holds.are_renewed(breathe).await;
    holds.release().await;
    let (clock, lock) = (Clock::system().unwrap(), locks.lock("one-more"));
    let acquired = clock.timeout(PATIENCE, lock.acquire()).await;
    acquired.unwrap().unwrap().release().await.unwrap();
    locks.shutdown().await;
}
