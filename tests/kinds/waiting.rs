//! Every kind of lock says at once that it is busy, waits for as long as asked and no longer, and
//! never without an end.

use std::fmt::Debug;
use std::task::Poll;

use leasehold::reentrant::Scope;
use leasehold::{Error, ErrorKind, Settings};

use crate::support::{World, ms, poll_once, secs, while_time_passes};

type Held<T> = Result<Option<T>, Error>;

/// A call for what another process holds: one look, a wait of two seconds, and the wait of the
/// settings.
async fn is_bounded<T: Debug>(
    world: &World,
    once: impl Future<Output = Held<T>>,
    within: impl Future<Output = Held<T>>,
    acquire: impl Future<Output = Result<T, Error>>,
) {
    let began = world.now();
    assert!(once.await.unwrap().is_none(), "one look");
    assert_eq!(world.now().since(&began), secs(0), "a look does not wait");

    let mut within = Box::pin(within);
    while world.now().since(&began) < ms(1_900) {
        if let Poll::Ready(early) = poll_once(&mut within).await {
            panic!("within two seconds: {early:?}");
        }
        world.clock.advance(ms(100));
        world.settled().await;
    }
    let waited = while_time_passes(world, ms(200), within).await;
    assert!(waited.unwrap().is_none(), "two seconds");

    let began = world.now();
    let wait = Settings::default().wait;
    let refused = while_time_passes(world, wait + secs(1), acquire).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Contended);
    let waited = world.now().since(&began);
    assert!(waited >= wait && waited < wait + ms(200), "{waited:?}");
}

/// The three calls of a kind by their names, and what they take.
macro_rules! is_bounded {
    ($world:ident, $lock:expr, $once:ident, $within:ident, $acquire:ident $(, $taken:expr)?) => {{
        let (lock, wait) = (&$lock, secs(2));
        is_bounded(
            &$world,
            lock.$once($($taken)?),
            lock.$within($($taken,)? wait),
            lock.$acquire($($taken)?),
        )
        .await;
    }};
}

#[tokio::test]
async fn a_lock() {
    let world = World::new();
    let _theirs = world.theirs.lock("a").acquire().await.unwrap();
    for lock in [world.ours.lock("a"), world.ours.lock("a").fair()] {
        is_bounded!(world, lock, try_acquire, acquire_within, acquire);
    }
}

#[tokio::test]
async fn a_reentrant_lock() {
    let world = World::new();
    let _theirs = world.theirs.lock("a").acquire().await.unwrap();
    let (lock, scope) = (world.ours.reentrant("a"), Scope::new());
    is_bounded!(world, lock, try_acquire, acquire_within, acquire, &scope);
}

#[tokio::test]
async fn a_read_write_lock() {
    let world = World::new();
    let (ours, theirs) = (world.ours.read_write("a"), world.theirs.read_write("a"));
    let writer = theirs.write().await.unwrap();
    is_bounded!(world, ours, try_read, read_within, read);
    let _reader = writer.downgrade().await.unwrap();
    is_bounded!(world, ours, try_write, write_within, write);
}

#[tokio::test]
async fn permits() {
    let world = World::new();
    let (ours, theirs) = (world.ours.permits("a", 3), world.theirs.permits("a", 3));
    let _taken = theirs.acquire_many(2).await.unwrap();
    is_bounded!(
        world,
        ours,
        try_acquire_many,
        acquire_many_within,
        acquire_many,
        2
    );
}

#[tokio::test]
async fn a_semaphore() {
    let world = World::new();
    let theirs = world.theirs.semaphore("a", 2);
    let _theirs = [
        theirs.acquire().await.unwrap(),
        theirs.acquire().await.unwrap(),
    ];
    let ours = world.ours.semaphore("a", 2);
    is_bounded!(world, ours, try_acquire, acquire_within, acquire);
}

#[tokio::test]
async fn several_keys_at_once() {
    let world = World::new();
    let _theirs = world.theirs.lock("b").acquire().await.unwrap();
    let ours = world.ours.lock_all(["a", "b"]);
    is_bounded!(world, ours, try_acquire, acquire_within, acquire);
    assert!(world.is_free("a").await);
}

#[tokio::test]
async fn an_election() {
    let world = World::new();
    let _theirs = world.theirs.election("a").campaign("b").await.unwrap();
    let ours = world.ours.election("a");
    is_bounded(
        &world,
        ours.campaign_within("a", secs(0)),
        ours.campaign_within("a", secs(2)),
        ours.campaign("a"),
    )
    .await;
}
