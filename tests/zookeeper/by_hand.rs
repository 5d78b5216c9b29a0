//! What an operator who deletes nodes by hand may cost, and where.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};

use leasehold::store::{Released, Renewed, Store};

use crate::zookeeper::{Server, claim, granted, raw, renewed, simple_store, until};

const ATTEMPTS: usize = 20;

/// Polls a future each time it is woken, `times` times at most. Between two polls its answers
/// arrive, and it does nothing.
async fn poll_times<F: Future + Unpin>(future: &mut F, times: usize) -> bool {
    for _ in 0..times {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        if Pin::new(&mut *future)
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            return true;
        }
        until("a wake-up", async || woken.0.load(SeqCst)).await;
    }
    false
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// What [the docs](leasehold::zookeeper::ZooKeeperStore) do not promise: ZooKeeper compares a
/// node's version when it deletes it, and no owner. So a release whose node an operator deletes by
/// hand, between its look and its delete, deletes the node that another client made at the same
/// path in between. That client learns it from its next renewal. Anywhere else in the release the
/// other's node stays.
#[tokio::test]
async fn a_simple_lock_deleted_by_hand_during_its_release_may_cost_the_next_holder_its_node() {
    let server = Server::shared();
    // A busy machine may leave no pause between the look and the delete.
    for attempt in 0..ATTEMPTS {
        let costs = costs_of_a_deletion(&server, attempt).await;
        assert!(!costs[0], "nothing was looked at yet");
        // A task may be woken for nothing, so two pauses can be at the same place.
        let places = costs.windows(2).filter(|two| !two[0] && two[1]).count();
        assert!(places <= 1, "at one place, and at no other: {costs:?}");
        if places == 1 {
            return;
        }
    }
    panic!("no release was caught between its look and its delete");
}

/// Deletes the node of a hold at each pause of its release in turn. For each: whether the next
/// holder lost its node.
async fn costs_of_a_deletion(server: &Server, attempt: usize) -> Vec<bool> {
    let mut costs = Vec::new();
    for polls in 0.. {
        let chroot = format!("/by-hand-{attempt}-{polls}");
        let (a, b) = (
            simple_store(server, &chroot).await,
            simple_store(server, &chroot).await,
        );
        let old = granted(&a, &claim("k")).await;
        let mut release = Box::pin(a.release(&old));
        if poll_times(&mut release, polls).await {
            break;
        }
        // Where the delete was sent before, there is nothing to delete.
        let path = format!("{chroot}/k/~lock");
        let _ = raw(server).await.delete(&path, None).await;
        let new = granted(&b, &claim("k")).await;
        let released = release.await;
        let renewed = renewed(&b, &new).await;
        let is_lost = matches!(renewed, Renewed::Gone);
        assert!(
            !is_lost || matches!(released, Released::Released),
            "{released:?}"
        );
        if is_lost {
            // The next client enters with a larger token, which a fence compares.
            let third = granted(&a, &claim("k")).await;
            assert!(third.token > new.token);
        }
        costs.push(is_lost);
    }
    costs
}
