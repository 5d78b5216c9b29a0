//! What is done once, while other clients delete names that are over.

use std::sync::Arc;
use std::time::Duration;

use super::tree::{Access, Tree};
use super::{ZkBatch, ZkFence};
use crate::clock::{Clock, ManualClock};
use crate::fence::{AlreadyApplied, Fence};
use crate::model::commit::EffectError;
use crate::model::error::{Error, ErrorKind};
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::zookeeper::store::{ZooKeeperOptions, ZooKeeperStore};

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);
pub(super) const FENCE: &str = "/k/~fence";
const NAME: &str = "/k/~fence/once-n";
const DATA: &str = "/data";

pub(super) struct World {
    pub(super) manual: ManualClock,
    pub(super) tree: Arc<Tree>,
    store: ZooKeeperStore,
}

impl World {
    pub(super) async fn new() -> Self {
        let manual = ManualClock::new();
        let tree = Arc::new(Tree::new(&Clock::from(manual.clone())));
        tree.put(DATA);
        let options = ZooKeeperOptions::parse("zookeeper://model").expect("a URL");
        let access = Arc::new(Access(Arc::clone(&tree)));
        let store = ZooKeeperStore::simulated(options, manual.clone(), access);
        let store = store.expect("the options are in range");
        let world = Self {
            manual,
            tree,
            store,
        };
        world.pass(SECOND).await;
        world
    }

    async fn pass(&self, span: Duration) {
        const STEP: Duration = Duration::from_millis(50);
        for _ in 0..span.as_millis() / STEP.as_millis() {
            yields().await;
            self.manual.advance(STEP);
        }
        yields().await;
    }

    /// That of another client.
    pub(super) fn fence(&self) -> ZkFence {
        ZkFence::new(&self.store)
    }

    /// Another client deletes what is over.
    async fn sweep(&self, number: u64) {
        let raised = at_once(raise(&self.fence(), number)).await;
        raised.expect("it is the newest");
        yields().await;
        assert_eq!(self.tree.version(NAME), None, "it is deleted");
    }

    /// How many batches were applied.
    fn applied(&self) -> i32 {
        self.tree.version(DATA).expect("nobody deletes it")
    }
}

pub(super) async fn yields() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// What a call gives that waits for no time and no request that is stopped.
pub(super) async fn at_once<T>(call: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        given = call => given,
        () = async { for _ in 0..100 { yields().await } } => panic!("it waits"),
    }
}

pub(super) async fn raise(fence: &ZkFence, number: u64) -> Result<(), Error> {
    fence.raise(&key(), token(number)).await
}

pub(super) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a token")
}

pub(super) fn key() -> Key {
    Key::parse("k").expect("a key")
}

async fn claim(fence: ZkFence, number: u64, keep: Duration) -> Result<(), EffectError> {
    let batch = ZkBatch::new().once("n", keep).set(DATA, "");
    fence.write(&key(), token(number), &batch).await.map(drop)
}

fn is_done(claimed: Result<(), EffectError>) -> bool {
    matches!(claimed, Err(EffectError::NotApplied(why)) if why.is::<AlreadyApplied>())
}

/// A node that is made again has the version of the one that was deleted.
#[tokio::test]
async fn a_sweep_that_was_stopped_deletes_no_name_that_was_claimed_since() {
    for newer in [1, 2] {
        let world = World::new().await;
        at_once(claim(world.fence(), 1, SHORT)).await.unwrap();
        world.pass(SECOND).await;
        let stop = world.tree.stop("Delete(/k/~fence/once-n)");
        // Nobody waits for it.
        at_once(raise(&world.fence(), 1)).await.unwrap();
        at_once(stop.reached.notified()).await;
        world.sweep(newer).await;
        at_once(claim(world.fence(), newer, LONG)).await.unwrap();
        stop.go.notify_one();
        yields().await;
        assert_eq!(world.tree.version(NAME), Some(0));
        assert!(is_done(at_once(claim(world.fence(), newer, LONG)).await));
        assert_eq!(world.applied(), 2);
    }
}

#[tokio::test]
async fn of_two_runs_that_found_a_name_over_one_is_applied_though_it_is_deleted_in_between() {
    for moment in ["read /k/~fence/once-n", "Set(/k/~fence/once-n)"] {
        let world = World::new().await;
        at_once(claim(world.fence(), 1, SHORT)).await.unwrap();
        world.pass(SECOND).await;
        // The runs of one hold.
        let fence = world.fence();
        let stop = world.tree.stop(moment);
        let late = tokio::spawn(claim(fence.clone(), 1, LONG));
        at_once(stop.reached.notified()).await;
        world.sweep(1).await;
        at_once(claim(fence.clone(), 1, LONG)).await.unwrap();
        stop.go.notify_one();
        assert!(is_done(at_once(late).await.unwrap()), "{moment}");
        assert_eq!(world.applied(), 2);
    }
}

#[tokio::test]
async fn a_sweep_that_ran_out_of_time_is_begun_again_after_a_minute() {
    let world = World::new().await;
    let fence = world.fence();
    let lists = || {
        let lists = world.tree.lists.lock();
        lists.iter().filter(|path| *path == FENCE).count()
    };
    at_once(claim(fence.clone(), 1, LONG)).await.unwrap();
    let _never = world.tree.stop("children /k/~fence");
    let slow = tokio::spawn({
        let fence = fence.clone();
        async move { raise(&fence, 1).await }
    });
    world.pass(SECOND).await;
    at_once(slow).await.unwrap().unwrap();
    assert_eq!(lists(), 1);
    at_once(raise(&fence, 1)).await.unwrap();
    assert_eq!(lists(), 1);
    world.pass(Duration::from_secs(60)).await;
    at_once(raise(&fence, 1)).await.unwrap();
    assert_eq!(lists(), 2);
    world.pass(Duration::from_secs(61)).await;
    at_once(raise(&fence, 1)).await.unwrap();
    assert_eq!(lists(), 2, "it was done");
}

#[tokio::test]
async fn a_batch_that_claims_one_name_twice_is_refused() {
    let world = World::new().await;
    let batch = ZkBatch::new()
        .once("n", LONG)
        .once("m", LONG)
        .once("n", SHORT);
    let (fence, key) = (world.fence(), key());
    let refused = at_once(fence.write(&key, token(1), &batch)).await;
    let Err(EffectError::NotApplied(why)) = refused else {
        panic!("{refused:?}");
    };
    let why = why.downcast_ref::<Error>().map(Error::kind);
    assert_eq!(why, Some(ErrorKind::Invalid));
}
