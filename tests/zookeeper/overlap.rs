//! Requests of one claim that overlap, and claims that end without a request: nothing is left in
//! the tree or in the client.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold::clock::Clock;
use leasehold::store::{Acquired, Released, Renewed, Store};
use leasehold::zookeeper::ZooKeeperMode;

use crate::zookeeper::{
    Server, children, claim, granted, open, options, raw, renewed, short_store,
};

#[tokio::test]
async fn a_claim_that_is_asked_twice_at_once_is_known_by_the_request_that_is_granted() {
    let server = Server::shared();
    let client = raw(&server).await;
    for mode in [ZooKeeperMode::Queue, ZooKeeperMode::Simple] {
        let chroot = format!("/twice-{mode:?}");
        let mut options = options(&server.address(), &chroot);
        options.mode = mode;
        let (a, b) = (open(options.clone()).await, open(options).await);
        let held = granted(&a, &claim("k")).await;
        let mut twice = claim("k");
        // It takes no place, so nothing is known of it once it was refused.
        twice.place_ttl = Duration::ZERO;
        let (mut first, mut second) = (Box::pin(b.acquire(&twice)), Box::pin(b.acquire(&twice)));
        assert!((&mut first).now_or_never().is_none());
        assert!(
            (&mut second).now_or_never().is_none(),
            "it waits for its turn"
        );
        let refused = first.await.unwrap();
        assert!(matches!(refused, Acquired::Busy { .. }), "{refused:?}");
        assert!(matches!(a.release(&held).await, Released::Released));
        let Acquired::Granted(grant) = second.await.unwrap() else {
            panic!("the lock is free");
        };
        let renewed = renewed(&b, &grant).await;
        assert!(
            matches!(renewed, Renewed::Extended(_)),
            "{mode:?}: {renewed:?}"
        );
        assert!(matches!(b.release(&grant).await, Released::Released));
        let left = children(&client, &format!("{chroot}/k")).await;
        assert_eq!(left, [""; 0], "{mode:?}");
    }
}

#[tokio::test]
async fn a_claim_that_was_never_sent_is_withdrawn_without_a_server() {
    let server = Server::start();
    let store = short_store(&server.address(), "/unsent").await;
    let clock = Clock::system().unwrap();
    server.kill();
    // Once its connection is gone, no request of an attempt leaves any more.
    let mut unsent = claim("k");
    for attempt in 0.. {
        assert!(
            attempt < 1_000,
            "the client never notices that its server is gone"
        );
        let asking = clock.timeout(Duration::from_millis(20), store.acquire(&unsent));
        if asking.await.is_none() && matches!(store.withdraw(&unsent).now_or_never(), Some(Ok(())))
        {
            return;
        }
        unsent = claim("k");
    }
}
