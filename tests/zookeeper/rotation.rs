//! Credentials that are asked for at each session.

use std::sync::Arc;

use leasehold::clock::Clock;
use leasehold::store::{Renewed, Store};
use leasehold::zookeeper::{ZooKeeperOptions, ZooKeeperStore};
use leasehold::{Credentials, ErrorKind};
use parking_lot::Mutex;

use crate::rotation_of::SecretFile;
use crate::zookeeper::canary::CANARY;
use crate::zookeeper::{Server, claim, granted, renewed};

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
