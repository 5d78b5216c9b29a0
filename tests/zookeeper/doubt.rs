//! Commits that are not answered, and what becomes of the doubt.

use std::sync::Arc;
use std::time::Duration;

use crate::fence::{data, with_data};
use crate::proxy::{Proxy, Way};
use crate::zookeeper::{Server, open, options};
use leasehold::clock::Clock;
use leasehold::fence::{Fence, Resolve};
use leasehold::run::{CommitProof, Doubt, HeldKey, Resolution, TxnId};
use leasehold::testing::TestHold;
use leasehold::zookeeper::{ZkBatch, ZkFence};
use leasehold::{ErrorKind, FencingToken, Key, RunError, Settings};
use zookeeper_client::Client;

const SHORT: Duration = Duration::from_millis(1_500);

/// A fence whose session goes through a proxy, and lives longer than the hold.
struct World {
    /// It ends with the last test that uses it.
    _server: Arc<Server>,
    client: Client,
    proxy: Proxy,
    ours: ZkFence,
    other: ZkFence,
    path: String,
}

fn key(name: &str) -> Key {
    name.parse().unwrap()
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

impl World {
    async fn open(chroot: &str) -> Self {
        let server = Server::shared();
        let path = format!("{chroot}-data");
        let client = with_data(&server, &path).await;
        let proxy = Proxy::to(server.port);
        let fence = async |port: u16| {
            let mut options = options(&format!("127.0.0.1:{port}"), chroot);
            options.session_timeout = Duration::from_secs(10);
            ZkFence::new(&open(options).await)
        };
        let (ours, other) = (fence(proxy.port).await, fence(server.port).await);
        for name in ["a", "b"] {
            ours.raise(&key(name), token(1)).await.unwrap();
        }
        let world = Self {
            _server: server,
            client,
            proxy,
            ours,
            other,
            path,
        };
        let first = world.write("first", |_| ()).await;
        assert_eq!(first.unwrap(), CommitProof::Fenced);
        world
    }

    /// Writes, and lets `spoil` change the connection when the commit call begins.
    async fn write(
        &self,
        value: &str,
        spoil: impl FnOnce(&Proxy),
    ) -> Result<CommitProof, RunError<()>> {
        let clock = Clock::system().unwrap();
        let hold = TestHold::new(clock, &Settings::default(), key("a"), token(1), SHORT);
        let executor = hold.executor();
        let (ours, batch) = (
            self.ours.clone(),
            ZkBatch::new().set(self.path.clone(), value),
        );
        spoil(&self.proxy);
        let run = executor.guarded_async(async move |tx| {
            tx.commit_with(move |permit| ours.apply(permit, batch));
            Ok(())
        });
        run.await.map(|done| done.proof)
    }

    async fn value(&self) -> String {
        data(&self.client, &self.path).await
    }
}

#[tokio::test]
async fn a_commit_that_is_held_back_is_in_doubt_until_it_is_resolved_and_refused_when_it_arrives() {
    let world = World::open("/doubt-held").await;
    let in_doubt = world.write("late", Proxy::stall).await.unwrap_err();
    assert!(matches!(in_doubt, RunError::InDoubt { .. }), "{in_doubt:?}");
    let doubt = in_doubt.doubt().unwrap();
    let resolve = async || world.other.resolve(&doubt).await.unwrap();
    assert_eq!(resolve().await, Resolution::NotApplied);
    world.proxy.resume();
    // Our session is answered in order: when it has read, the late batch has been refused.
    let read = world.ours.read(&world.path).await.unwrap();
    assert_eq!(read.as_deref(), Some(&b"first"[..]));
    assert_eq!(resolve().await, Resolution::NotApplied);
    assert_eq!(world.value().await, "first");
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_resolved_as_committed_within_the_run() {
    let world = World::open("/doubt-lost").await;
    let cut = |proxy: &Proxy| proxy.cut_after(Way::ToClient, 0);
    let done = world.write("second", cut).await;
    match done {
        Ok(proof) => assert_eq!(proof, CommitProof::Fenced),
        // The session was slow to connect again.
        Err(error) => {
            let doubt = error.doubt().unwrap_or_else(|| panic!("{error:?}"));
            let resolution = world.other.resolve(&doubt).await.unwrap();
            assert_eq!(resolution, Resolution::Applied);
        }
    }
    assert_eq!(world.value().await, "second");
}

#[tokio::test]
async fn a_commit_that_was_applied_is_resolved_as_applied_again_and_again() {
    let world = World::open("/doubt-applied").await;
    let mut names = world
        .client
        .list_children("/doubt-applied/a/~fence")
        .await
        .unwrap();
    assert_eq!(names.len(), 1, "{names:?}");
    let txn_id: TxnId = names.pop().unwrap().parse().unwrap();
    let lock = |name, number| HeldKey {
        key: key(name),
        token: token(number),
    };
    // The name of the commit would be looked for, and be taken, beside another key.
    for other in [
        vec![lock("b", 1)],
        vec![lock("b", 1), lock("a", 1)],
        vec![lock("a", 2)],
        Vec::new(),
    ] {
        let doubt = Doubt::new(other, txn_id);
        let error = world.other.resolve(&doubt).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let doubt = Doubt::new(vec![lock("a", 1)], txn_id);
    for newer in [2, 3] {
        let resolution = world.other.resolve(&doubt).await.unwrap();
        assert_eq!(resolution, Resolution::Applied);
        world.other.raise(&key("a"), token(newer)).await.unwrap();
    }
}

#[tokio::test]
async fn a_name_that_was_deleted_proves_nothing_and_is_not_used_again() {
    let world = World::open("/doubt-old").await;
    let fence = "/doubt-old/a/~fence";
    let names = world.client.list_children(fence).await.unwrap();
    let txn_id: TxnId = names[0].parse().unwrap();
    let lock = HeldKey {
        key: key("a"),
        token: token(1),
    };
    let doubt = Doubt::new(vec![lock], txn_id);
    // This client keeps names for no time, and its first raise looks for old ones.
    let hasty = world.other.clone().keep_names(Duration::ZERO);
    hasty.raise(&key("a"), token(1)).await.unwrap();
    let names = world.client.list_children(fence).await.unwrap();
    assert!(names.is_empty(), "{names:?}");
    assert_eq!(data(&world.client, fence).await, format!("1 {txn_id}"));
    let error = world.ours.resolve(&doubt).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    // A newer commit is applied, by a client that knew the fence before.
    assert_eq!(
        world.write("second", |_| ()).await.unwrap(),
        CommitProof::Fenced
    );
    // The fence keeps what it forgot when it is raised.
    world.ours.raise(&key("a"), token(2)).await.unwrap();
    assert_eq!(data(&world.client, fence).await, format!("2 {txn_id}"));
    // A run that began before, and commits only now.
    let millisecond = 1 << 80;
    let late = u128::from_be_bytes(*txn_id.as_bytes()) - millisecond;
    let late: TxnId = format!("{late:032x}").parse().unwrap();
    let mut older = doubt.clone();
    older.txn_id = late;
    let error = world.other.resolve(&older).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn a_doubt_about_a_fence_that_nobody_has_raised_is_void() {
    let world = World::open("/doubt-none").await;
    let lock = HeldKey {
        key: key("c"),
        token: token(1),
    };
    let clock = Clock::system().unwrap();
    let hold = TestHold::new(clock, &Settings::default(), key("c"), token(1), SHORT);
    let named = hold.executor().guarded(|tx| Ok(tx.txn_id()?));
    let doubt = Doubt::new(vec![lock], named.unwrap().value);
    for _ in 0..2 {
        let resolution = world.ours.resolve(&doubt).await.unwrap();
        assert_eq!(resolution, Resolution::NotApplied);
    }
}
