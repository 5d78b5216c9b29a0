//! The lease of a test ends at every point, and what it leaves is judged.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use leasehold::GuardedCell;
use leasehold::run::{Applied, EffectError};
use leasehold::testing::{explore_lapses, explore_lapses_async};

fn add(stock: &AtomicI64, count: i64) {
    stock.fetch_add(count, Ordering::Relaxed);
}

#[test]
fn a_run_with_the_right_hooks_passes_at_every_point() {
    let runs = AtomicU64::new(0);
    let explored = explore_lapses(|hold| {
        runs.fetch_add(1, Ordering::Relaxed);
        let stock = Mutex::new(12);
        let executor = hold.executor();
        let ran = executor.guarded(|tx| {
            *stock.lock().unwrap() -= 5;
            tx.undo(|| *stock.lock().unwrap() += 5);
            tx.check()?;
            *stock.lock().unwrap() -= 1;
            tx.undo(|| *stock.lock().unwrap() += 1);
            tx.check()?;
            Ok(())
        });
        (ran, *stock.lock().unwrap())
    });
    let explored = explored.unwrap();
    // The begin, two checks, the commit.
    assert_eq!((explored.points, explored.unclear), (4, 0));
    assert_eq!(runs.load(Ordering::Relaxed), 5, "and one that is whole");
}

#[test]
fn a_missing_hook_is_found_and_its_point_is_named() {
    let missed = explore_lapses(|hold| {
        let stock = AtomicI64::new(12);
        let executor = hold.executor();
        let ran = executor.guarded(|tx| {
            stock.fetch_sub(5, Ordering::Relaxed);
            tx.undo(|| add(&stock, 5));
            tx.check()?;
            stock.fetch_sub(1, Ordering::Relaxed);
            tx.check()?;
            Ok(())
        });
        (ran, stock.load(Ordering::Relaxed))
    });
    assert_eq!(
        missed.unwrap_err().to_string(),
        "when the lease ended at look 3 of 4, check 2, after check 1: the run is rolled back, and the state is 11 instead of 12; \
         undo in a hook what the work changes"
    );
}

#[test]
fn a_hook_that_is_missing_after_the_last_check_is_found_at_the_commit() {
    let missed = explore_lapses(|hold| {
        let stock = AtomicI64::new(12);
        let executor = hold.executor();
        let ran = executor.guarded(|tx| {
            tx.check()?;
            stock.fetch_sub(5, Ordering::Relaxed);
            Ok(())
        });
        (ran, stock.load(Ordering::Relaxed))
    });
    let missed = missed.unwrap_err().to_string();
    let point = "look 3 of 3, the end of the run, after check 1";
    assert!(missed.contains(point), "{missed}");
}

#[test]
fn a_hook_that_undoes_too_much_is_found() {
    let missed = explore_lapses(|hold| {
        let stock = AtomicI64::new(12);
        let executor = hold.executor();
        let ran = executor.guarded(|tx| {
            // Noted before the change that it undoes: the change may not happen.
            tx.undo(|| add(&stock, 5));
            tx.check()?;
            stock.fetch_sub(5, Ordering::Relaxed);
            Ok(())
        });
        (ran, stock.load(Ordering::Relaxed))
    });
    let missed = missed.unwrap_err().to_string();
    assert!(missed.contains("check 1"), "{missed}");
    assert!(missed.contains("17 instead of 12"), "{missed}");
}

#[test]
fn a_cell_needs_no_hook_and_a_late_commit_counts_as_applied() {
    let explored = explore_lapses(|hold| {
        let (cell, table) = (GuardedCell::new(12), AtomicI64::new(0));
        let executor = hold.executor();
        let ran = executor.guarded(|tx| {
            *tx.write(&cell) -= 5;
            let _ = tx.commit_with(|_| {
                table.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            Ok(())
        });
        let state = (*cell.read(), table.load(Ordering::Relaxed));
        (ran, state)
    });
    let explored = explored.unwrap();
    // The begin, before the commit call, after it.
    assert_eq!((explored.points, explored.unclear), (3, 0));
}

#[test]
fn a_step_that_cannot_be_compensated_any_more_is_unclear() {
    let explored = explore_lapses(|hold| {
        let executor = hold.executor();
        let ran = executor.guarded(|tx| {
            tx.step("debit 7", || Ok::<_, EffectError>(()), |_| ())?;
            tx.check()?;
            Ok(())
        });
        (ran, ())
    });
    let explored = explored.unwrap();
    // The begin, before the step is reported and after it; the check, and the commit.
    assert_eq!((explored.points, explored.unclear), (5, 2));
}

#[test]
fn a_run_that_fails_on_purpose_is_judged_too() {
    let failing = |with_hook: bool| {
        explore_lapses(|hold| {
            let stock = AtomicI64::new(12);
            let executor = hold.executor();
            let ran = executor.guarded(|tx| {
                stock.fetch_sub(5, Ordering::Relaxed);
                if with_hook {
                    tx.undo(|| add(&stock, 5));
                }
                Err::<(), _>("sold out".into())
            });
            (ran, stock.load(Ordering::Relaxed))
        })
    };
    assert_eq!(failing(true).unwrap().points, 1);
    let missed = failing(false).unwrap_err().to_string();
    assert!(missed.contains("under a live lease"), "{missed}");
}

#[test]
fn a_test_that_runs_nothing_or_not_the_same_is_refused() {
    let nothing = explore_lapses(|hold| (hold.executor().guarded(|_| Ok(())), ()));
    assert_eq!(nothing.unwrap().points, 2);
    let other = leasehold::clock::ManualClock::new();
    let key = "a".parse().unwrap();
    let token = leasehold::FencingToken::new(1).unwrap();
    let settings = leasehold::Settings::default();
    let theirs = leasehold::testing::TestHold::new(
        other,
        &settings,
        key,
        token,
        std::time::Duration::from_secs(10),
    );
    let nothing = explore_lapses(|_| (theirs.executor().guarded(|_| Ok(())), ()));
    let nothing = nothing.unwrap_err().to_string();
    assert!(nothing.contains("hold.executor()"), "{nothing}");
    let mut runs = 0;
    let shorter = explore_lapses(|hold| {
        runs += 1;
        let looks = if runs == 1 { 3 } else { 0 };
        let ran = hold.executor().guarded(|tx| {
            for _ in 0..looks {
                tx.check()?;
            }
            Ok(())
        });
        (ran, ())
    });
    let shorter = shorter.unwrap_err().to_string();
    assert!(shorter.contains("the same in each run"), "{shorter}");
}

#[tokio::test]
async fn an_awaited_run_is_explored_in_the_middle_of_its_steps() {
    let explored = explore_lapses_async(async |hold| {
        let (stock, account) = (Arc::new(AtomicI64::new(12)), Arc::new(AtomicI64::new(0)));
        let executor = hold.executor();
        let ran = executor.guarded_async(async |tx| {
            stock.fetch_sub(5, Ordering::Relaxed);
            let back = Arc::clone(&stock);
            tx.undo(move || add(&back, 5));
            let back = Arc::clone(&account);
            let debit = async {
                tokio::task::yield_now().await;
                account.fetch_sub(7, Ordering::Relaxed);
                Ok::<_, EffectError>(())
            };
            let undo = move |_| async move {
                back.fetch_add(7, Ordering::Relaxed);
            };
            tx.step("debit 7", debit, undo).await?;
            let _ = tx.commit_with(async |_| Ok(Applied::plain()));
            Ok(())
        });
        let ran = ran.await;
        // What is left of the step is a debt, and the local hook ran: the account is not part of
        // the state.
        (ran, stock.load(Ordering::Relaxed))
    });
    let explored = explored.await.unwrap();
    assert!(explored.points > 6, "{explored:?}");
    assert!(
        (2..explored.points).contains(&explored.unclear),
        "{explored:?}"
    );
}

#[tokio::test]
async fn a_missing_hook_of_an_awaited_run_is_found() {
    let missed = explore_lapses_async(async |hold| {
        let stock = AtomicI64::new(12);
        let executor = hold.executor();
        let ran = executor.guarded_async(async |tx| {
            stock.fetch_sub(5, Ordering::Relaxed);
            tokio::task::yield_now().await;
            tx.check()?;
            Ok(())
        });
        let ran = ran.await;
        (ran, stock.load(Ordering::Relaxed))
    });
    let missed = missed.await.unwrap_err().to_string();
    assert!(missed.contains("look 2 of 3, check 1"), "{missed}");
}
