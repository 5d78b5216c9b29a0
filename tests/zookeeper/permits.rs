//! Permits in ZooKeeper.

use std::time::Duration;

use crate::pool::callers_have_together_at_most_the_size;
use crate::zookeeper::{Server, children, claim_in, granted, is_busy, open, options, raw, store};
use leasehold::store::{LockMode, Revoke, Share, Store};
use leasehold::{LockManager, Settings};

#[tokio::test]
async fn callers_of_two_processes_have_together_at_most_the_size() {
    let server = Server::shared();
    let manager = async || {
        let mut settings = Settings::default();
        settings.request_timeout = Duration::from_secs(2);
        let store = open(options(&server.address(), "/permits")).await;
        let builder = LockManager::builder(store).settings(settings);
        builder.build().unwrap()
    };
    let (ours, theirs) = (manager().await, manager().await);
    callers_have_together_at_most_the_size(&ours, &theirs).await;
}

/// Those that wait are in front of everybody too, and hold nothing.
#[tokio::test]
async fn a_share_that_waits_is_no_holder() {
    let server = Server::shared();
    let (store, client) = (store(&server, "/permits-wait").await, raw(&server).await);
    let share = |permits| {
        let mut claim = claim_in(LockMode::Read, "k");
        claim.share = Some(Share { permits, of: 3 });
        claim
    };
    let held = granted(&store, &share(2)).await;
    let waits = share(2);
    assert!(is_busy(&store, &waits).await);
    let info = store.inspect(&waits.key).await.unwrap().unwrap();
    assert_eq!((info.holders, info.queue), (1, Some(1)));
    let names = children(&client, "/permits-wait/k").await;
    assert!(
        names.iter().all(|name| name.contains("-2of3-__READ__")),
        "{names:?}"
    );
    let _ = store.revoke(&waits.key, Revoke::Now).await.unwrap();
    let now = granted(&store, &waits).await;
    assert_ne!(now.token, held.token);
}
