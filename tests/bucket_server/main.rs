//! Locks in buckets of services that keep them: moto for S3, Azurite for Azure, which `install.sh`
//! in this folder installs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/canary.rs"]
mod canary;
#[path = "../support/process.rs"]
mod process;

mod server;

use std::collections::HashSet;
use std::time::Duration;

use leasehold::bucket::{BucketOptions, BucketStore};
use leasehold::clock::Clock;
use leasehold::store::{Acquired, Claim, Label, OwnerToken, Released, Store};
use leasehold::testing::conformance::{self, Harness};
use leasehold::{Error, ErrorKind, Key, LockManager, Settings};

use server::Server;

struct On<'a>(&'a Server);

impl Harness for On<'_> {
    type Store = BucketStore;

    async fn client(&self) -> Result<BucketStore, Error> {
        open(self.0.options()).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn clock(&self) -> Clock {
        Clock::system().unwrap()
    }
}

async fn open(options: BucketOptions) -> Result<BucketStore, Error> {
    BucketStore::open(options, Clock::system().unwrap()).await
}

async fn keep_the_contract(server: &Server) {
    let report = conformance::run(&On(server)).await;
    println!("{report}");
    report.assert_passed();
}

#[tokio::test]
async fn locks_in_s3_keep_the_contract() {
    keep_the_contract(&Server::moto()).await;
}

#[tokio::test]
async fn locks_in_azure_keep_the_contract() {
    keep_the_contract(&Server::azurite()).await;
}

/// Eight clients ask at once: one is granted each time, and the tokens grow.
async fn exclude_each_other(server: &Server) {
    let mut stores = Vec::new();
    for _ in 0..8 {
        stores.push(open(server.options()).await.unwrap());
    }
    let mut tokens = Vec::new();
    for _ in 0..20 {
        let asked = stores.iter().map(|store| async move {
            let owner = OwnerToken::generate().unwrap();
            let label = Label::parse("host-a").unwrap();
            let ttl = Duration::from_secs(30);
            let claim = Claim::new(Key::parse("a/b").unwrap(), owner, label, ttl);
            (store, store.acquire(&claim).await.unwrap())
        });
        let answers = futures_util::future::join_all(asked).await;
        let mut grants = answers
            .into_iter()
            .filter_map(|(store, answer)| match answer {
                Acquired::Granted(grant) => Some((store, grant)),
                _ => None,
            });
        let (store, grant) = grants.next().expect("one is granted");
        assert!(grants.next().is_none());
        tokens.push(grant.token);
        assert!(matches!(store.release(&grant).await, Released::Released));
    }
    let distinct: HashSet<_> = tokens.iter().collect();
    assert!(tokens.is_sorted() && distinct.len() == 20, "{tokens:?}");
}

#[tokio::test]
async fn clients_of_s3_exclude_each_other() {
    exclude_each_other(&Server::moto()).await;
}

#[tokio::test]
async fn clients_of_azure_exclude_each_other() {
    exclude_each_other(&Server::azurite()).await;
}

/// What the messages of real services come to.
async fn is_named(server: &Server) {
    let mut options = server.options();
    options.bucket = "missing".to_owned();
    let error = open(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    assert!(error.to_string().contains("create it"), "{error}");
    assert!(!canary::is_in(format!("{error:?}").as_bytes()));
}

#[tokio::test]
async fn a_bucket_that_is_missing_is_named() {
    is_named(&Server::moto()).await;
    is_named(&Server::azurite()).await;
}

#[tokio::test]
async fn a_server_that_ends_leaves_holds_to_lapse_and_writes_unanswered() {
    let server = Server::moto();
    let mut settings = Settings::default();
    settings.ttl = Duration::from_secs(5);
    settings.request_timeout = Duration::from_secs(1);
    let store = open(server.options()).await.unwrap();
    let locks = LockManager::builder(store).settings(settings).build();
    let locks = locks.unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    drop(server);
    guard.lease().lost().await;
    let error = locks.lock("b").try_acquire().await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
}
