//! A run that only computes allocates nothing, and what an acquire and a release move around is
//! small.

#[path = "support/executor.rs"]
mod executor_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use executor_support::Stage;
use leasehold::clock::Clock;
use leasehold::handler::Event;
use leasehold::store::MemoryStore;
use leasehold::testing::TestHold;
use leasehold::{LockManager, Settings};

thread_local! {
    // Per thread, so that the harness does not count.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

#[allow(unsafe_code, reason = "a global allocator cannot be written without")]
// SAFETY: every call is passed on as it came; the count is a plain thread-local that does not
// allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LIVE_BYTES.set(LIVE_BYTES.get() + layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE_BYTES.set(LIVE_BYTES.get() - layout.size() as i64);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn a_run_that_notes_nothing_allocates_nothing() {
    let clock = Clock::system().unwrap();
    let key = "accounts/7".parse().unwrap();
    let settings = Settings::default();
    let token = executor_support::token(5);
    let hold = TestHold::new(clock, &settings, key, token, executor_support::TTL);
    let executor = hold.executor();
    let run = || {
        let outcome = executor.guarded(|tx| {
            tx.check()?;
            Ok(tx.token())
        });
        outcome.unwrap().into_value();
    };
    run();
    assert_eq!(allocations(|| (0..1_000).for_each(|_| run())), 0);
}

#[test]
fn a_run_that_nobody_watches_allocates_nothing_under_a_manager_either() {
    let run_under = |locks: &LockManager| {
        let guard = locks.block_on(locks.lock("accounts/7").acquire()).unwrap();
        let executor = guard.executor();
        let run = || {
            let outcome = executor.guarded(|tx| Ok(tx.check()?));
            outcome.unwrap().into_value();
        };
        run();
        allocations(|| (0..1_000).for_each(|_| run()))
    };
    let store = || MemoryStore::new().unwrap();
    let unwatched = LockManager::new(store()).unwrap();
    assert_eq!(run_under(&unwatched), 0);
    // What an observer gets comes from the run's own thread: one that allocates is seen here.
    let watched = LockManager::builder(store())
        .observer(|event: &Event<'_>| drop(format!("{event:?}")))
        .build()
        .unwrap();
    assert!(run_under(&watched) > 0);
}

#[test]
fn a_run_that_is_not_begun_allocates_nothing() {
    let stage = Stage::new();
    stage.lapse();
    let run = || assert!(stage.executor.guarded(|_| Ok(())).is_err());
    run();
    assert_eq!(allocations(run), 0);
}

/// A service takes an executor and a cancellation token for each of its jobs, under locks that it
/// holds for long.
#[tokio::test]
async fn the_cancellation_tokens_of_a_joint_lease_are_not_kept_until_the_hold_ends() {
    let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
    let guard = locks.lock_all(["a", "b"]).acquire().await.unwrap();
    let job = || drop(guard.executor().lease().cancellation_token());
    job();
    let before = LIVE_BYTES.get();
    (0..1_000).for_each(|_| job());
    assert!(LIVE_BYTES.get() - before < 1_000, "bytes are kept");
    let kept = guard.executor().lease().cancellation_token();
    let _ = guard.release().await;
    assert!(kept.is_cancelled());
}

/// A future that another async function gets by value is in that function's future twice, and is
/// copied there.
#[tokio::test]
async fn the_futures_of_an_acquire_and_a_release_are_small() {
    let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
    let lock = locks.lock("accounts/7");
    let acquire = size_of_val(&lock.acquire());
    let guard = lock.acquire().await.unwrap();
    let release = size_of_val(&guard.release());
    println!("acquire: {acquire} bytes, release: {release} bytes");
    assert!(acquire < 5_000 && release < 3_500);
}

#[test]
fn the_counter_counts() {
    let stage = Stage::new();
    let run = || {
        let outcome = stage.executor.guarded(|tx| {
            tx.undo(|| ());
            Ok(())
        });
        outcome.unwrap().into_value();
    };
    assert!(allocations(run) > 0);
}
