//! Every kind of lock is driven by any executor, and blocks where blocking is allowed.

use std::task::Poll;

use futures_util::StreamExt;
use leasehold::executor::EffectError;
use leasehold::reentrant::Scope;
use leasehold::store::MemoryStore;
use leasehold::{ErrorKind, LockManager};

use crate::bare_thread::block_on;
use crate::support::ms;

fn manager() -> LockManager {
    LockManager::new(MemoryStore::new().unwrap()).unwrap()
}

#[test]
fn reentrant_locks_and_elections_need_no_runtime_of_their_own() {
    let locks = manager();
    block_on(async {
        let (ours, theirs) = (Scope::new(), Scope::new());
        let lock = locks.reentrant("r");
        let outer = lock.acquire(&ours).await.unwrap();
        assert!(
            lock.acquire_within(&theirs, ms(20))
                .await
                .unwrap()
                .is_none()
        );
        assert!(outer.release().await.unwrap().is_some());

        let election = locks.election("e");
        let mut seen = Box::pin(election.observe());
        assert!(seen.next().await.unwrap().unwrap().is_none());
        let mut terms = 0;
        let work = async |leadership: &leasehold::Leadership| {
            terms += 1;
            // The second look of the observer waits for its poll.
            assert!(seen.next().await.unwrap().unwrap().is_some());
            leadership.term()
        };
        election.while_leader("host-a", work).await.unwrap();
        assert_eq!(terms, 1);
    });
}

/// Answers at its second poll.
async fn second_poll() {
    let mut is_first = true;
    std::future::poll_fn(|cx| {
        if std::mem::take(&mut is_first) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

#[test]
fn a_one_shot_commit_needs_no_runtime_of_its_own() {
    let locks = manager();
    let done = block_on(locks.lock("a").guarded_async(async |tx| {
        tx.commit_with(async |_permit| {
            second_poll().await;
            Ok::<(), EffectError>(())
        });
        Ok(())
    }));
    assert!(done.is_ok(), "{done:?}");
}

#[tokio::test]
async fn blocking_calls_are_for_threads_that_may_block() {
    let locks = manager();
    let lock = locks.lock("a").blocking();
    let refused = lock.try_acquire().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let held = tokio::task::spawn_blocking(move || lock.acquire().map(|guard| guard.release()));
    let _ = held.await.unwrap().unwrap();
}
