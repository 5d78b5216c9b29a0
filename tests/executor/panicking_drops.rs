//! Values that panic as they are dropped: what a run captured, what a cell showed, what a panic
//! left.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::executor_support::{Gauge, Stage, Trace};
use futures_util::FutureExt;
use leasehold::run::UndoResult;
use leasehold::{Abort, GuardedCell, RunError};

/// Panics as it is dropped, unless a panic drops it.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

fn panics_with_a_bomb() {
    panic_any(Bomb);
}

/// A value of a cell that panics as it is dropped, once it is armed.
#[derive(Clone)]
struct Mine {
    number: u32,
    is_armed: Arc<AtomicBool>,
}

impl Mine {
    fn new() -> Self {
        Self {
            number: 1,
            is_armed: Arc::default(),
        }
    }

    fn arm(&self, armed: bool) {
        self.is_armed.store(armed, Ordering::SeqCst);
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        let is_armed = self.is_armed.load(Ordering::SeqCst) && !std::thread::panicking();
        assert!(!is_armed, "{} was dropped", self.number);
    }
}

fn rolled_back_with_one_panic(outcome: &RunError<()>) {
    let undo = outcome.undo().unwrap();
    let panicked = |undone: &&_| matches!(undone, UndoResult::Panicked(_));
    let mut results = undo.results().iter().map(|undone| &undone.result);
    assert!(
        results.clone().any(|result| panicked(&result)),
        "{outcome:?}"
    );
    assert!(
        results.any(|result| matches!(result, UndoResult::Done)),
        "{outcome:?}"
    );
}

#[test]
fn a_hook_whose_panic_panics_does_not_stop_the_next() {
    let (stage, trace) = (Stage::new(), Trace::default());
    let outcome = stage.executor.guarded(|tx| -> Result<(), _> {
        tx.undo(|| trace.add("oldest"));
        tx.undo(panics_with_a_bomb);
        Err(Abort::new("no funds"))
    });
    assert_eq!(trace.all(), ["oldest"]);
    rolled_back_with_one_panic(&outcome.unwrap_err());
}

#[tokio::test]
async fn an_awaited_run_is_undone_over_a_panic_that_panics() {
    let (stage, trace) = (Stage::new(), Trace::default());
    let reported = trace.clone();
    let run = stage.executor.guarded_async(async |tx| -> Result<(), _> {
        tx.undo(move || reported.add("oldest"));
        tx.undo(panics_with_a_bomb);
        tx.step("ask", async { Ok(()) }, |_| async { panics_with_a_bomb() })
            .await?;
        Err(Abort::new("no funds"))
    });
    let outcome = run.await;
    assert_eq!(trace.all(), ["oldest"]);
    rolled_back_with_one_panic(&outcome.unwrap_err());
}

#[test]
fn a_hook_after_the_commit_whose_panic_panics_does_not_stop_the_next() {
    let (stage, trace) = (Stage::new(), Trace::default());
    let outcome = stage.executor.guarded(|tx| {
        tx.on_committed(|_| panics_with_a_bomb());
        tx.on_committed(|_| trace.add("second"));
        Ok(())
    });
    outcome.unwrap();
    assert_eq!(trace.all(), ["second"]);
}

#[test]
fn a_run_that_has_committed_is_not_undone_for_what_its_undo_captured() {
    let (stage, trace) = (Stage::new(), Trace::default());
    let (gauge, bomb) = (Gauge::default(), Bomb);
    let outcome = stage.executor.guarded(|tx| {
        gauge.set(1);
        tx.undo(|| gauge.set(0));
        tx.undo(move || drop(bomb));
        tx.on_committed(|_| trace.add("committed"));
        Ok(())
    });
    outcome.unwrap();
    assert_eq!(
        (gauge.value(), trace.all()),
        (1, vec!["committed".to_owned()])
    );
}

#[test]
fn a_run_that_has_committed_is_not_undone_for_the_former_value_of_its_cell() {
    let (stage, gauge) = (Stage::new(), Gauge::default());
    let former = Mine::new();
    let is_armed = former.clone();
    let cell = GuardedCell::new(former);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        stage.executor.guarded(|tx| {
            gauge.set(1);
            tx.undo(|| gauge.set(0));
            tx.write(&cell).number = 2;
            is_armed.arm(true);
            Ok(())
        })
    }));
    is_armed.arm(false);
    assert_eq!((cell.read().number, gauge.value()), (2, 1));
    outcome.unwrap().unwrap();
}

#[tokio::test]
async fn a_commit_that_was_applied_is_not_undone_for_the_former_value_of_its_cell() {
    let (stage, outside) = (Stage::new(), Gauge::default());
    let former = Mine::new();
    let is_armed = former.clone();
    let cell = GuardedCell::new(former);
    let run = stage.executor.guarded_async(async |tx| {
        let (send, back, arming) = (outside.clone(), outside.clone(), is_armed.clone());
        let sent = async move {
            send.set(1);
            Ok(())
        };
        tx.step("send", sent, move |_| async move { back.set(0) })
            .await?;
        tx.write(&cell).number = 2;
        tx.commit_with(move |_| async move {
            arming.arm(true);
            std::mem::forget(arming);
            Ok(())
        });
        Ok(())
    });
    let outcome = AssertUnwindSafe(run).catch_unwind().await;
    is_armed.arm(false);
    // What a drop left to the manager has had its turn.
    tokio::task::yield_now().await;
    assert_eq!((cell.read().number, outside.value()), (2, 1));
    outcome.unwrap().unwrap();
}
