//! The work of a blocking run may drive a runtime whose other tasks are polled on its thread: they
//! are outside of the run.

use futures_util::FutureExt;
use leasehold::reentrant::Scope;
use leasehold::store::MemoryStore;
use leasehold::{ErrorKind, LockManager, RunError};

use crate::own_runs::{Request, ask};
use crate::support::any_kind::Kind;
use crate::support::poll_once;

/// A runtime whose tasks are polled inside of a blocking run that drives it.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// Lets every task of a runtime make its request.
async fn requests_were_made() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn own_manager() -> LockManager {
    LockManager::new(MemoryStore::new().unwrap()).unwrap()
}

/// The work of a blocking run drives a runtime on which a task was spawned before.
#[test]
fn a_task_that_a_blocking_run_polls_by_chance_waits_for_the_lock_of_the_run() {
    use Kind::*;
    let mut requests = vec![
        Request::Read,
        Request::OneShot,
        Request::OneShotAwaited,
        Request::OneCommit,
    ];
    requests.extend([Plain, Fair, Write, Reentrant, Multi, Election].map(Request::Hold));
    for asked in requests {
        let (locks, runtime) = (own_manager(), runtime());
        let others = locks.clone();
        let task = runtime.spawn(async move { ask(&others, asked).await });
        let guard = locks.lock("a").acquire().now_or_never();
        let guard = guard.expect("the memory store answers at once").unwrap();
        let run = guard.executor().guarded(|_| {
            runtime.block_on(requests_were_made());
            Ok(())
        });
        run.unwrap().into_value();
        assert!(!task.is_finished(), "{asked:?} did not wait");
        let _ = runtime.block_on(guard.release());
        assert_eq!(runtime.block_on(task).unwrap(), Ok(()), "{asked:?}");
    }
}

#[test]
fn a_task_that_a_blocking_run_polls_by_chance_may_release_and_downgrade_its_hold() {
    let (locks, runtime) = (own_manager(), runtime());
    let guard = runtime.block_on(locks.lock("a").acquire()).unwrap();
    let writer = runtime.block_on(locks.read_write("b").write()).unwrap();
    let (of_guard, of_writer) = (guard.executor(), writer.executor());
    let released = runtime.spawn(async move { guard.release().await.is_ok() });
    let run = of_guard.guarded(|_| {
        runtime.block_on(requests_were_made());
        Ok(())
    });
    assert!(matches!(run, Err(RunError::RolledBack { .. })), "{run:?}");
    assert!(runtime.block_on(released).unwrap());
    let downgraded = runtime.spawn(async move { writer.downgrade().await.is_ok() });
    let run = of_writer.guarded(|_| {
        runtime.block_on(requests_were_made());
        Ok(())
    });
    assert!(matches!(run, Err(RunError::RolledBack { .. })), "{run:?}");
    assert!(runtime.block_on(downgraded).unwrap());
}

#[test]
fn a_task_that_a_blocking_run_polls_by_chance_waits_for_its_slot_and_for_its_turn() {
    let (locks, runtime) = (own_manager(), runtime());
    let slots = locks.semaphore("slots", 1);
    let permit = runtime.block_on(slots.acquire()).unwrap();
    let turns = permit.executor().in_turn();
    let others = turns.clone();
    let slot = runtime.spawn(async move { slots.acquire().await.map(drop).is_ok() });
    let turn = runtime.spawn(async move { others.guarded_async(async |_| Ok(())).await.is_ok() });
    let run = turns.guarded(|_| {
        runtime.block_on(requests_were_made());
        Ok(())
    });
    run.unwrap().into_value();
    assert!(!slot.is_finished() && !turn.is_finished());
    assert!(runtime.block_on(turn).unwrap());
    drop(permit);
    assert!(runtime.block_on(slot).unwrap());
}

#[test]
fn a_task_that_work_in_a_scope_polls_by_chance_is_outside_of_the_scope() {
    let runtime = runtime();
    let task = runtime.spawn(async { Scope::current().is_some() });
    let work = leasehold::reentrant::scope(async {
        runtime.block_on(requests_were_made());
        Scope::current().is_some()
    });
    assert_eq!(Box::pin(work).now_or_never(), Some(true));
    assert!(!runtime.block_on(task).unwrap());
}

#[test]
fn a_scope_goes_with_its_work_to_another_task() {
    let mut work = Box::pin(leasehold::reentrant::scope(async {
        let before = Scope::current().is_some();
        tokio::task::yield_now().await;
        before && Scope::current().is_some()
    }));
    let runtime = runtime();
    let first = runtime.block_on(async { poll_once(&mut work).await.is_pending() });
    assert!(first);
    assert!(runtime.block_on(runtime.spawn(work)).unwrap());
}

#[test]
fn what_a_blocking_run_awaits_itself_may_not_ask_for_its_lock() {
    let (locks, runtime) = (own_manager(), runtime());
    let lock = locks.lock("a");
    let ask_inside = move || {
        let guard = runtime.block_on(lock.acquire()).unwrap();
        let mut refused = None;
        let run = guard.executor().guarded(|_| {
            refused = runtime.block_on(lock.acquire()).err();
            Ok(())
        });
        run.unwrap().into_value();
        assert_eq!(refused.unwrap().kind(), ErrorKind::Invalid);
    };
    let workers = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    workers.block_on(async {
        tokio::task::spawn_blocking(ask_inside).await.unwrap();
    });
}
