//! Calls that are dropped at any await, before and after the answer that they waited for has
//! arrived.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use leasehold::clock::Clock;
use leasehold::reentrant::Scope;
use leasehold::{GuardedCell, LockManager};

use super::sites::{PATIENCE, Site, on_every_store};

on_every_store! {
    a_call_that_is_dropped_at_any_await_leaves_every_key_free
    a_caller_that_is_dropped_in_a_queue_holds_up_nobody_behind_it
}

/// The longest that all stores allow: a key that nobody gave back is not free in time.
const TTL: Duration = Duration::from_secs(10);
/// More than any call here is polled.
const MOST_POLLS: u32 = 200;

type Call = fn(LockManager, String) -> LocalBoxFuture<'static, ()>;

/// Each takes no key but `at` and `at/b`, and gives back what it took.
const CALLS: [(&str, Call); 9] = [
    ("acquire", |locks, at| {
        async move { drop(locks.lock(at).acquire().await.unwrap()) }.boxed_local()
    }),
    ("release", |locks, at| {
        async move {
            let guard = locks.lock(at).acquire().await.unwrap();
            let _ = guard.release().await.unwrap();
        }
        .boxed_local()
    }),
    ("fair", |locks, at| {
        async move { drop(locks.lock(at).fair().acquire().await.unwrap()) }.boxed_local()
    }),
    ("several", |locks, at| {
        async move {
            let inner = format!("{at}/b");
            let guard = locks.lock_all([at, inner]).acquire().await.unwrap();
            drop(guard.release().await);
        }
        .boxed_local()
    }),
    ("downgrade", |locks, at| {
        async move {
            let writer = locks.read_write(at).write().await.unwrap();
            let reader = writer.downgrade().await.unwrap();
            let _ = reader.release().await.unwrap();
        }
        .boxed_local()
    }),
    ("reentrant", |locks, at| {
        async move {
            let scope = Scope::new();
            let lock = locks.reentrant(at);
            let outer = lock.acquire(&scope).await.unwrap();
            let inner = lock.acquire(&scope).await.unwrap();
            let _ = outer.release().await.unwrap();
            let _ = inner.release().await.unwrap();
        }
        .boxed_local()
    }),
    ("election", |locks, at| {
        async move {
            let election = locks.election(at);
            let leadership = election.campaign("us").await.unwrap();
            let _ = leadership.resign().await.unwrap();
        }
        .boxed_local()
    }),
    ("guarded", |locks, at| {
        async move {
            let cell = GuardedCell::new(0);
            let lock = locks.lock(at);
            let run = lock.guarded_async(async |tx| {
                tokio::task::yield_now().await;
                *tx.write(&cell) += 1;
                Ok(())
            });
            run.await.unwrap().into_value();
        }
        .boxed_local()
    }),
    ("within", |locks, at| {
        async move {
            let lock = locks.lock(at);
            drop(lock.acquire_within(PATIENCE).await.unwrap());
            drop(lock.try_acquire().await.unwrap());
        }
        .boxed_local()
    }),
];

/// When a future is dropped: as soon as it has waited so often, or once it was woken after that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    Waiting,
    Woken,
}

/// Whether it completed before that.
async fn drop_at(polls: u32, moment: Moment, future: impl Future) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 && moment == Moment::Waiting => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Well before a hold would end by itself.
async fn assert_is_free(locks: &LockManager, key: &str, what: &str) {
    let guard = locks.lock(key).acquire_within(TTL * 3 / 4).await.unwrap();
    let guard = guard.unwrap_or_else(|| panic!("not free: {what}"));
    let _ = guard.release().await.unwrap();
}

async fn a_call_that_is_dropped_at_any_await_leaves_every_key_free(site: Site) {
    let (ours, theirs) = (site.manager(TTL).await, site.manager(TTL).await);
    for (name, call) in CALLS {
        for moment in [Moment::Waiting, Moment::Woken] {
            for polls in 1.. {
                assert!(polls < MOST_POLLS, "{name} never ends");
                let at = format!("{name}/{moment:?}/{polls}k");
                let has_ended = drop_at(polls, moment, call(ours.clone(), at.clone())).await;
                for key in [at.clone(), format!("{at}/b")] {
                    assert_is_free(&theirs, &key, &key).await;
                }
                if has_ended {
                    break;
                }
            }
        }
    }
    ours.settled().await;
    assert!(ours.held().is_empty(), "{:?}", ours.held());
}

/// The place that it had in the store's queue must not outlive it.
async fn a_caller_that_is_dropped_in_a_queue_holds_up_nobody_behind_it(site: Site) {
    let clock = Clock::system().unwrap();
    let (ours, theirs) = (site.manager(TTL).await, site.manager(TTL).await);
    for (name, call) in CALLS {
        for polls in [1, 2, 4] {
            let at = format!("{name}/{polls}k");
            let held = theirs.lock(at.clone()).acquire().await.unwrap();
            let waiting = drop_at(polls, Moment::Woken, call(ours.clone(), at.clone()));
            // A queue may wake nobody for long: the caller gives up then.
            let is_over = clock.timeout(TTL / 100, waiting).await;
            assert_ne!(is_over, Some(true), "{at} was entered twice");
            let _ = held.release().await.unwrap();
            assert_is_free(&theirs, &at, &at).await;
            // The same process is not in its own way either.
            assert_is_free(&ours, &at, &at).await;
        }
    }
}
