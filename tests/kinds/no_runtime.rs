//! Every kind of lock is driven by any executor, and `block_on` works where blocking is allowed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use futures_util::StreamExt;
use leasehold::clock::Clock;
use leasehold::fence::Fence;
use leasehold::reentrant::Scope;
use leasehold::run::{Effect, EffectError};
use leasehold::store::{MemoryStore, Released};
use leasehold::testing::{Faulty, Operation};
use leasehold::{Abort, Error, ErrorKind, FencingToken, Key, LockManager, RunError, Settings};

use crate::bare_thread::block_on;
use crate::no_threads;
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
        let work = async |leadership: &leasehold::election::Leadership| {
            terms += 1;
            // The second look of the observer waits for its poll.
            assert!(seen.next().await.unwrap().unwrap().is_some());
            leadership.term()
        };
        election.while_leader("host-a", work).await.unwrap();
        assert_eq!(terms, 1);
    });
}

/// What a caller of several slots waits for between two attempts needs timers.
#[test]
fn a_semaphore_whose_fence_fails_at_first_needs_no_runtime() {
    let locks = manager();
    let tries = Arc::new(AtomicUsize::new(0));
    let slots = locks
        .semaphore("s", 1)
        .fence(FailsTwice(Arc::clone(&tries)));
    let permit = block_on(slots.acquire()).unwrap();
    assert_eq!(permit.slot(), 0);
    assert_eq!(tries.load(Ordering::Relaxed), 3);
}

#[derive(Debug)]
struct FailsTwice(Arc<AtomicUsize>);

impl Fence for FailsTwice {
    async fn raise(&self, _key: &Key, _token: FencingToken) -> Result<(), Error> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err(Error::unavailable("not yet")),
            _ => Ok(()),
        }
    }
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

/// Four threads take turns. Not an addition: two holders at once would lose one.
#[test]
fn threads_without_a_runtime_take_turns() {
    let locks = manager();
    let counter = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..25 {
                    let guard = locks.block_on(locks.lock("a").acquire()).unwrap();
                    let seen = counter.load(Ordering::Relaxed);
                    std::thread::yield_now();
                    counter.store(seen + 1, Ordering::Relaxed);
                    let released = locks.block_on(guard.release());
                    assert!(matches!(released, Ok(Released::Released)));
                }
            });
        }
    });
    assert_eq!(counter.into_inner(), 100);
}

#[tokio::test]
async fn a_thread_that_may_block_may_call_block_on() {
    let locks = manager();
    let held = tokio::task::spawn_blocking(move || {
        let guard = locks.block_on(locks.lock("a").acquire())?;
        locks.block_on(guard.release())
    });
    assert!(matches!(held.await.unwrap(), Ok(Released::Released)));
}

/// What `block_on` panics with here.
fn refusal(locks: &LockManager) -> String {
    let call = AssertUnwindSafe(|| locks.block_on(async {}));
    let panicked = std::panic::catch_unwind(call).unwrap_err();
    panicked
        .downcast_ref::<&str>()
        .map_or_else(String::new, |text| (*text).to_owned())
}

#[test]
fn block_on_in_a_task_panics_and_says_what_to_do() {
    use tokio::runtime::Builder;
    use tokio::task::{LocalSet, block_in_place, unconstrained};

    let locks = manager();
    let refused = || assert!(refusal(&locks).contains("spawn_blocking"));
    let many = Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    for runtime in [&Builder::new_current_thread().build().unwrap(), &many] {
        runtime.block_on(async { refused() });
        runtime.block_on(unconstrained(async { refused() }));
        runtime.block_on(LocalSet::new().run_until(async { refused() }));
    }
    // This thread may block.
    let held =
        many.block_on(async { block_in_place(|| locks.block_on(locks.lock("a").acquire())) });
    locks.block_on(held.unwrap().release()).unwrap();
}

#[test]
fn block_on_does_not_wait_for_a_runtime_that_nobody_drives() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let locks = runtime.block_on(async {
        let builder = LockManager::builder(MemoryStore::new().unwrap());
        builder.on_current_runtime().build().unwrap()
    });
    assert!(refusal(&locks).contains("the block_on of that runtime"));
    let guard = runtime.block_on(locks.lock("a").acquire()).unwrap();
    runtime.block_on(guard.release()).unwrap();
}

/// The calls of a run are limited in time, and there is no runtime with timers.
#[test]
fn the_runs_of_a_guard_need_no_runtime_of_their_own() {
    let locks = manager();
    block_on(async {
        let guard = locks.lock("a").acquire().await.unwrap();
        let executor = guard.executor();
        let committed = executor.commit(async |_permit| {
            second_poll().await;
            Ok::<_, EffectError>(())
        });
        committed.await.unwrap().into_value();

        let compensated = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&compensated);
        let executor = guard.executor().in_turn();
        let rolled_back = executor.guarded_async(async |tx| -> Result<(), Abort> {
            let effect = async {
                second_poll().await;
                Ok::<_, EffectError>(())
            };
            tx.step("an effect", effect, move |_| async move {
                second_poll().await;
                seen.store(true, Ordering::SeqCst);
            })
            .await?;
            Err("a reason".into())
        });
        assert!(matches!(
            rolled_back.await,
            Err(RunError::RolledBack { .. })
        ));
        assert!(compensated.load(Ordering::SeqCst));
    });
}

#[tokio::test]
async fn a_manager_whose_thread_cannot_be_started_is_an_error() {
    if no_threads::begin() {
        let refused = LockManager::new(MemoryStore::new().unwrap()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        return;
    }
    let name = "no_runtime::a_manager_whose_thread_cannot_be_started_is_an_error";
    let output = no_threads::run(name);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{said}");
}

/// With the system's clock, because only tokio's timers need their runtime.
#[test]
fn a_call_of_a_bare_thread_keeps_its_timers_after_a_shutdown() {
    let network = Faulty::new(MemoryStore::new().unwrap(), Clock::system().unwrap(), 7);
    network.stall(Operation::Inspect);
    let mut settings = Settings::default();
    settings.request_timeout = ms(300);
    let builder = LockManager::builder(network).settings(settings);
    let locks = builder.build().unwrap();

    let mut looking = Box::pin(locks.inspect("a"));
    block_on(async {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(looking.as_mut().poll(&mut cx).is_pending());
        locks.shutdown().await;
    });
    let error = block_on(looking).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(
        block_on(locks.inspect("a")).unwrap_err().kind(),
        ErrorKind::Closed
    );
}

#[test]
fn callers_on_bare_threads_hear_of_a_shutdown_at_any_time() {
    for round in 0..100 {
        let (locks, holds) = (manager(), AtomicUsize::new(0));
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    let hold = async || locks.lock("a").acquire().await?.release().await;
                    let error = loop {
                        match locks.block_on(hold()) {
                            Ok(_) => holds.fetch_add(1, Ordering::SeqCst),
                            Err(error) => break error,
                        };
                    };
                    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                });
            }
            while holds.load(Ordering::SeqCst) < round {
                std::thread::yield_now();
            }
            locks.block_on(locks.shutdown());
        });
    }
}

/// A fenced compensation may take longer than a shutdown. It sleeps by tokio's timers, which need
/// their runtime.
#[test]
fn compensations_keep_their_timers_after_a_shutdown() {
    let mut settings = Settings::default();
    settings.ttl = ms(200);
    settings.max_ttl = ms(200);
    settings.request_timeout = ms(100);
    let builder = LockManager::builder(MemoryStore::new().unwrap()).settings(settings);
    let locks = builder.build().unwrap();
    let guard = block_on(locks.lock("a").acquire()).unwrap();
    let executor = guard.executor();
    let (undone, results) = std::sync::mpsc::channel();
    let mut run = Box::pin(
        executor.guarded_async(async move |tx| -> Result<(), Abort> {
            for n in [1, 2] {
                let (undone, clock) = (undone.clone(), Clock::system().unwrap());
                let done = async { Ok::<_, EffectError>(()) };
                let undo = async move |_| {
                    clock.sleep(ms(500)).await;
                    undone.send(n)
                };
                tx.step(Effect::new("debit").fenced(), done, undo).await?;
            }
            std::future::pending().await
        }),
    );
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(run.as_mut().poll(&mut cx).is_pending());
    drop(run);
    locks.block_on(locks.shutdown());
    assert_eq!(results.iter().collect::<Vec<_>>(), [2, 1]);
}

/// tokio's timers panic there, where a call has to wait.
#[test]
fn a_runtime_without_timers_is_as_none() {
    let locks = manager();
    let bare = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    let runtime = bare();
    let guard = runtime.block_on(locks.lock("a").acquire()).unwrap();
    let executor = guard.executor();
    let others = locks.clone();
    let waiter = std::thread::spawn(move || {
        let lock = others.lock("a");
        bare().block_on(async {
            assert!(lock.acquire_within(ms(20)).await.unwrap().is_none());
            lock.acquire().await.map(drop)
        })
    });
    runtime.block_on(async {
        let run = executor.guarded_async(async |tx| {
            let effect = async {
                second_poll().await;
                Ok::<_, EffectError>(())
            };
            tx.step("an effect", effect, async |_| ()).await?;
            // The release has to wait for this run.
            let mut release = Box::pin(guard.release_within(ms(20)));
            let refused = futures_util::poll!(&mut release);
            assert!(refused.is_pending());
            release.await.unwrap();
            Ok(())
        });
        assert!(run.await.is_err());
    });
    let _ = waiter.join().unwrap();
    let refused = runtime.block_on(async {
        let builder = LockManager::builder(MemoryStore::new().unwrap());
        builder.on_current_runtime().build()
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
}
