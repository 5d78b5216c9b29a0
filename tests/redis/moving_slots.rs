//! Ends of holds in a slot that is moving to another node, so that some keys of a lock are here and
//! some are there.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::redis::RedisStore;
use leasehold::store::{Claim, Grant, LockMode, Released, Store};

use crate::claims::{claim_for, grant, is_busy, once, release};
use crate::server::cluster::RedisCluster;

/// Longer than any of these tests.
const LONG: Duration = Duration::from_secs(60);
const QUERY: &str = "prefix=app&restart_quarantine=off&max_ttl=1m";

/// A cluster of two nodes, and a lock whose slot moves from the first to the second.
struct Moving {
    cluster: RedisCluster,
    store: RedisStore,
    name: String,
    slot: usize,
}

impl Moving {
    async fn new() -> Self {
        let cluster = RedisCluster::of_masters(2);
        let store = RedisStore::connect(&cluster.url(QUERY)).await.unwrap();
        let name = cluster.name_at(0);
        let slot = cluster.slot(&format!("app:{name}"));
        Self {
            cluster,
            store,
            name,
            slot,
        }
    }

    fn claim(&self, mode: LockMode) -> Claim {
        let mut claim = claim_for(&self.name, LONG);
        claim.mode = mode;
        claim
    }

    fn lock(&self) -> String {
        format!("app:{}", self.name)
    }

    fn begin(&self) {
        self.cluster.begin_move(self.slot, 0, 1);
    }

    fn end(&self) {
        self.cluster.end_move(self.slot, 0, 1);
    }

    /// What was refused changed nothing.
    async fn is_put_off(&self, held: &Grant) {
        let released = self.store.release(held).await;
        let Released::Unknown(error) = released else {
            panic!("{released:?}");
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }

    /// Nothing of the lock is left at the new node.
    fn is_clean(&self) {
        let left = self.cluster.nodes[1].cli(&["KEYS", &format!("{}*", self.lock())]);
        assert_eq!(left, "");
    }
}

#[tokio::test]
async fn a_reader_that_ends_while_its_keys_are_at_two_nodes_frees_no_other() {
    let moving = Moving::new().await;
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(grant(&moving.store, &moving.claim(LockMode::Read)).await);
    }
    moving.begin();
    moving.cluster.carry(&[&moving.lock()], 0, 1);
    moving.is_put_off(&held[0]).await;
    moving.end();
    let writer = once(moving.claim(LockMode::Write));
    for reader in &held {
        assert!(is_busy(&moving.store, &writer).await, "beside a reader");
        release(&moving.store, reader).await;
    }
    let writes = grant(&moving.store, &writer).await;
    release(&moving.store, &writes).await;
    moving.is_clean();
}

#[tokio::test]
async fn a_withdrawal_while_the_keys_of_readers_are_at_two_nodes_frees_none_of_them() {
    let moving = Moving::new().await;
    let reader = grant(&moving.store, &moving.claim(LockMode::Read)).await;
    let waits = moving.claim(LockMode::Write);
    assert!(is_busy(&moving.store, &waits).await);
    moving.begin();
    moving.cluster.carry(&[&moving.lock()], 0, 1);
    let error = moving.store.withdraw(&waits).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    moving.end();
    let writer = once(moving.claim(LockMode::Write));
    assert!(is_busy(&moving.store, &writer).await, "beside a reader");
    moving.store.withdraw(&waits).await.unwrap();
    release(&moving.store, &reader).await;
    moving.is_clean();
}

#[tokio::test]
async fn an_end_that_needs_keys_that_may_be_elsewhere_changes_nothing_until_the_slot_has_moved() {
    let moving = Moving::new().await;
    let reader = grant(&moving.store, &moving.claim(LockMode::Read)).await;
    moving.begin();
    moving.is_put_off(&reader).await;
    let left =
        moving.cluster.nodes[0].cli(&["ZCARD", &format!("{0}{{{0}}}:readers", moving.lock())]);
    assert_eq!(left, "1");
    moving.end();
    release(&moving.store, &reader).await;
    moving.is_clean();
}

#[tokio::test]
async fn an_exclusive_hold_ends_although_its_slot_moves_whoever_waits_and_watches() {
    let moving = Moving::new().await;
    let held = grant(&moving.store, &moving.claim(LockMode::Exclusive)).await;
    let waits = moving.claim(LockMode::Exclusive);
    assert!(is_busy(&moving.store, &waits).await);
    let watches = once(moving.claim(LockMode::Exclusive));
    let _hint = moving.store.subscribe(&watches).await.unwrap();
    moving.begin();
    release(&moving.store, &held).await;
    moving.end();
    let next = grant(&moving.store, &waits).await;
    release(&moving.store, &next).await;
    moving.is_clean();
}

#[tokio::test]
async fn an_end_with_a_request_unanswered_changes_nothing_until_the_slot_has_moved() {
    let moving = Moving::new().await;
    let held = grant(&moving.store, &moving.claim(LockMode::Exclusive)).await;
    {
        let mut asked = std::pin::pin!(moving.store.acquire(&held.claim));
        assert!(futures_util::poll!(&mut asked).is_pending());
    }
    moving.begin();
    moving.is_put_off(&held).await;
    moving.end();
    release(&moving.store, &held).await;
    // A late request of it is refused from now on.
    let left = moving.cluster.nodes[1].cli(&["KEYS", &format!("{}*", moving.lock())]);
    assert!(left.contains(":gone:"), "{left}");
}

#[tokio::test]
async fn a_key_rests_although_its_slot_moves() {
    let moving = Moving::new().await;
    let held = grant(&moving.store, &moving.claim(LockMode::Exclusive)).await;
    moving.begin();
    let rested = moving.store.rest(&held, LONG).await;
    assert!(matches!(rested, Released::Released), "{rested:?}");
    moving.end();
    let next = once(moving.claim(LockMode::Exclusive));
    assert!(is_busy(&moving.store, &next).await);
    let value = moving.cluster.nodes[1].cli(&["GET", &moving.lock()]);
    assert_eq!(value, "leasehold:rest");
}

#[tokio::test]
async fn a_downgrade_makes_no_key_at_the_other_node_of_a_slot_that_moves() {
    let moving = Moving::new().await;
    let held = grant(&moving.store, &moving.claim(LockMode::Write)).await;
    let waits = moving.claim(LockMode::Write);
    assert!(is_busy(&moving.store, &waits).await);
    moving.begin();
    // What a downgrade names is at the new node, and the line is not.
    let node = &moving.cluster.nodes[0];
    let here = node.cli(&["CLUSTER", "GETKEYSINSLOT", &moving.slot.to_string(), "100"]);
    let named: Vec<_> = (here.lines())
        .filter(|name| !name.starts_with(&format!("{}{{", moving.lock())))
        .collect();
    assert_eq!(named.len(), 3, "{here}");
    moving.cluster.carry(&named, 0, 1);
    let error = moving.store.downgrade(&held).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // A key of the same name would keep the slot from moving.
    moving.end();
    let reads = moving.store.downgrade(&held).await.unwrap();
    release(&moving.store, &reads).await;
    moving.store.withdraw(&waits).await.unwrap();
    moving.is_clean();
}
