//! Cells: who may write them, and what readers see.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::executor_support::{Gauge, Stage, pause, poll_once, token};
use leasehold::clock::ManualClock;
use leasehold::run::{Applied, CommitProof, EffectError, read_together};
use leasehold::{Cause, ErrorKind, GuardedCell, RunError};

#[test]
fn readers_see_committed_values_only_and_never_wait() {
    let (stage, cell) = (Stage::new(), GuardedCell::new(vec![1]));
    let kept = cell.read();
    let outcome = stage.executor.guarded(|tx| {
        let mut staged = tx.write(&cell);
        staged.push(2);
        // On this very thread: a reader that waited for the run would hang here.
        assert_eq!(*cell.read(), [1]);
        drop(staged);
        tx.commit_with(|_| {
            assert_eq!(*cell.read(), [1], "during the commit call too");
            assert_eq!(read_together((&cell, &cell)).0.len(), 1);
            Ok(())
        });
        Ok(())
    });
    outcome.unwrap().into_value();
    assert_eq!(*cell.read(), [1, 2]);
    assert_eq!(*kept, [1], "a value that is read stays as it is");
}

#[test]
fn a_run_goes_on_with_its_own_copy() {
    let (stage, cell) = (Stage::new(), GuardedCell::new(1));
    let outcome = stage.executor.guarded(|tx| {
        *tx.write(&cell) += 1;
        *tx.write(&cell.clone()) += 1;
        Ok(*tx.write(&cell))
    });
    assert_eq!(outcome.unwrap().value, 3);
    assert_eq!(*cell.read(), 3);
}

#[test]
fn a_run_that_does_not_commit_changes_no_cell() {
    let (stage, cell) = (Stage::new(), GuardedCell::new(1));
    let failed = stage.executor.guarded(|tx| -> Result<(), _> {
        *tx.write(&cell) = 2;
        Err("no".into())
    });
    assert_eq!(failed.unwrap_err().was_applied(), Some(false));
    let refused = stage.executor.guarded(|tx| {
        *tx.write(&cell) = 2;
        tx.commit_with(|_| Err::<(), _>(EffectError::not_applied("no")));
        Ok(())
    });
    assert_eq!(refused.unwrap_err().was_applied(), Some(false));
    let in_doubt = stage.executor.guarded(|tx| {
        *tx.write(&cell) = 2;
        tx.commit_with(|_| Err::<(), _>(EffectError::unknown("?")));
        Ok(())
    });
    assert_eq!(in_doubt.unwrap_err().was_applied(), None);
    assert_eq!(*cell.read(), 1);
    // And none of them stands in the way of the next.
    let next = stage.executor.guarded(|tx| {
        *tx.write(&cell) = 3;
        Ok(())
    });
    next.unwrap().into_value();
    assert_eq!(*cell.read(), 3);
}

#[test]
fn a_cell_belongs_to_the_key_that_first_writes_it() {
    let clock = ManualClock::new();
    let (own, other) = (
        Stage::with(clock.clone(), "accounts/7", 5),
        Stage::with(clock, "accounts/8", 9),
    );
    let (cell, gauge) = (GuardedCell::new(1), Gauge::default());
    let first = own.executor.guarded(|tx| {
        *tx.write(&cell) = 2;
        Ok(())
    });
    first.unwrap().into_value();
    assert_eq!(cell.key().unwrap().as_str(), "accounts/7");
    let outcome = other.executor.guarded(|tx| {
        gauge.set(1);
        tx.undo(|| gauge.set(0));
        *tx.write(&cell) = 3;
        Ok(())
    });
    let Err(RunError::RolledBack {
        cause: Cause::Refused(error),
        ..
    }) = outcome
    else {
        panic!("not refused");
    };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error
            .to_string()
            .contains("cell_key=accounts/7 key=accounts/8"),
        "{error}"
    );
    assert_eq!((*cell.read(), gauge.value()), (2, 0));
}

#[test]
fn an_older_token_is_refused() {
    let clock = ManualClock::new();
    let old = Stage::with(clock.clone(), "accounts/7", 5);
    let new = Stage::with(clock, "accounts/7", 6);
    let cell = GuardedCell::new(0);
    let newer = new.executor.guarded(|tx| {
        *tx.write(&cell) = 6;
        Ok(())
    });
    newer.unwrap().into_value();
    let outcome = old.executor.guarded(|tx| {
        *tx.write(&cell) = 5;
        Ok(())
    });
    assert!(matches!(outcome, Err(RunError::Fenced { seen: Some(seen), .. }) if seen == token(6)));
    assert_eq!(*cell.read(), 6);
}

#[test]
fn a_publishing_that_stalled_after_its_check_is_refused_by_the_cell() {
    let clock = ManualClock::new();
    let old = Stage::with(clock.clone(), "accounts/7", 5);
    let new = Stage::with(clock, "accounts/7", 6);
    let cell = GuardedCell::new(0);
    let outcome = old.executor.guarded(|tx| {
        *tx.write(&cell) = 5;
        // The newer holder has only begun to write when the older one comes to its commit.
        let newer = new.executor.guarded(|newer| -> Result<(), _> {
            *newer.write(&cell) = 6;
            Err("no".into())
        });
        assert!(newer.is_err());
        Ok(())
    });
    assert!(matches!(outcome, Err(RunError::Fenced { .. })));
    assert_eq!(*cell.read(), 0);
}

#[test]
fn the_first_of_two_runs_to_commit_wins_and_the_other_conflicts() {
    let (stage, cell, gauge) = (Stage::new(), GuardedCell::new(0), Gauge::default());
    let outer = stage.executor.guarded(|tx| {
        *tx.write(&cell) += 1;
        tx.undo(|| gauge.add(1));
        // A nested run is a run of its own: it commits first, and stays committed.
        let inner = stage.executor.guarded(|tx| {
            *tx.write(&cell) += 10;
            Ok(())
        })?;
        assert_eq!(inner.proof, CommitProof::Local);
        Ok(())
    });
    assert!(matches!(
        outer,
        Err(RunError::RolledBack {
            cause: Cause::Conflict,
            ..
        })
    ));
    assert_eq!((*cell.read(), gauge.value()), (10, 1));
}

#[test]
fn a_cell_in_an_open_commit_call_conflicts_with_its_own_holder() {
    let (stage, cell) = (Stage::new(), GuardedCell::new(0));
    let outcome = stage.executor.guarded(|tx| {
        *tx.write(&cell) = 1;
        tx.commit_with(|_| {
            let other = stage.executor.guarded(|tx| {
                *tx.write(&cell) = 2;
                Ok(())
            });
            assert!(matches!(
                other,
                Err(RunError::RolledBack {
                    cause: Cause::Conflict,
                    ..
                })
            ));
            Ok(())
        });
        Ok(())
    });
    outcome.unwrap().into_value();
    assert_eq!(*cell.read(), 1);
}

#[test]
fn a_newer_holder_takes_the_cells_of_a_commit_call_that_lasts() {
    let clock = ManualClock::new();
    let old = Stage::with(clock.clone(), "accounts/7", 5);
    let (cell, second) = (GuardedCell::new(0), GuardedCell::new(0));
    let outcome = old.executor.guarded(|tx| {
        *tx.write(&cell) = 5;
        *tx.write(&second) = 5;
        tx.commit_with(|_| {
            old.lapse();
            let new = Stage::with(clock.clone(), "accounts/7", 6);
            let newer = new.executor.guarded(|tx| {
                *tx.write(&cell) = 6;
                Ok(())
            });
            newer.unwrap().into_value();
            Ok(())
        });
        Ok(())
    });
    assert!(matches!(
        outcome,
        Err(RunError::CommittedLate {
            published: false,
            ..
        })
    ));
    assert_eq!((*cell.read(), *second.read()), (6, 0), "all or none");
}

#[test]
fn where_tokens_prove_nothing_a_publishing_rests_on_the_lease() {
    let (stage, cell) = (Stage::without_fencing(), GuardedCell::new(0));
    let outcome = stage.executor.guarded(|tx| {
        *tx.write(&cell) = 1;
        Ok(())
    });
    assert_eq!(outcome.unwrap().proof, CommitProof::WithinLease);
}

#[test]
fn where_tokens_prove_nothing_a_fence_that_accepts_them_proves_nothing_either() {
    for is_late in [false, true] {
        let stage = Stage::without_fencing();
        let outcome = stage.executor.guarded(|tx| {
            tx.commit_with(|_| {
                if is_late {
                    stage.lapse();
                }
                Ok(Applied::fenced())
            });
            Ok(())
        });
        match outcome {
            Ok(done) => assert_eq!((done.proof, is_late), (CommitProof::WithinLease, false)),
            Err(RunError::CommittedLate { .. }) => assert!(is_late),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_cell_written_twice_at_once_is_refused_and_does_not_hang() {
    let (stage, cell) = (Stage::new(), GuardedCell::new(0));
    let outcome = stage.executor.guarded(|tx| {
        let mut first = tx.write(&cell);
        let mut second = tx.write(&cell);
        *first = 1;
        *second = 2;
        Ok(())
    });
    let Err(RunError::RolledBack {
        cause: Cause::Refused(error),
        ..
    }) = outcome
    else {
        panic!("not refused");
    };
    assert!(error.to_string().contains("twice at once"), "{error}");
    assert_eq!(*cell.read(), 0);
}

#[test]
fn a_forgotten_copy_is_refused() {
    let (stage, cell) = (Stage::new(), GuardedCell::new(0));
    let outcome = stage.executor.guarded(|tx| {
        std::mem::forget(tx.write(&cell));
        Ok(())
    });
    assert!(matches!(
        outcome,
        Err(RunError::RolledBack {
            cause: Cause::Refused(_),
            ..
        })
    ));
}

#[test]
fn a_copy_is_made_at_the_first_change_only() {
    struct Counted {
        copies: Gauge,
        value: u32,
    }
    impl Clone for Counted {
        fn clone(&self) -> Self {
            self.copies.add(1);
            Self {
                copies: self.copies.clone(),
                value: self.value,
            }
        }
    }
    let (stage, copies) = (Stage::new(), Gauge::default());
    let cell = GuardedCell::new(Counted {
        copies: copies.clone(),
        value: 0,
    });
    let outcome = stage.executor.guarded(|tx| {
        assert_eq!(tx.write(&cell).value, 0);
        assert_eq!(copies.value(), 0);
        tx.write(&cell).value += 1;
        tx.write(&cell).value += 1;
        Ok(())
    });
    outcome.unwrap().into_value();
    assert_eq!((copies.value(), cell.read().value), (1, 2));
}

#[test]
fn cells_of_one_run_appear_together() {
    const ROUNDS: u64 = 2_000;
    let stage = Stage::new();
    let cells = [
        GuardedCell::new(0_u64),
        GuardedCell::new(0_u64),
        GuardedCell::new(0_u64),
    ];
    let (start, is_over) = (Barrier::new(3), AtomicBool::new(false));
    std::thread::scope(|threads| {
        let reader = || {
            start.wait();
            let mut looks = 0_u64;
            while !is_over.load(Ordering::SeqCst) || looks == 0 {
                let (a, b) = read_together((&cells[2], &cells[0]));
                assert_eq!(a, b);
                let all = read_together(&cells[..]);
                assert!(all.iter().all(|value| *value == all[0]), "{all:?}");
                looks += 1;
            }
        };
        threads.spawn(reader);
        threads.spawn(reader);
        start.wait();
        for round in 1..=ROUNDS {
            let outcome = stage.executor.guarded(|tx| {
                for cell in &cells {
                    *tx.write(cell) = round;
                }
                Ok(())
            });
            outcome.unwrap().into_value();
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert_eq!(*cells[1].read(), ROUNDS);
}

#[test]
fn who_saw_one_cell_of_a_run_finds_the_others_no_older() {
    let stage = Stage::new();
    let cells: Vec<_> = (0..200).map(|_| GuardedCell::new(0_u64)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for is_reversed in [false, true] {
            let (cells, done) = (&cells, &done);
            threads.spawn(move || {
                let mut order: Vec<_> = cells.iter().collect();
                if is_reversed {
                    order.reverse();
                }
                while !done.load(Ordering::Relaxed) {
                    let seen: Vec<_> = order.iter().map(|cell| *cell.read()).collect();
                    assert!(
                        seen.is_sorted(),
                        "an older value after a newer one: {seen:?}"
                    );
                }
            });
        }
        for _ in 0..2_000 {
            let outcome = stage.executor.guarded(|tx| {
                cells.iter().for_each(|cell| *tx.write(cell) += 1);
                Ok(())
            });
            outcome.unwrap().into_value();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn workers_that_run_again_on_conflict_lose_nothing() {
    const EACH: u64 = 500;
    let (stage, cell) = (Stage::new(), GuardedCell::new(0_u64));
    std::thread::scope(|threads| {
        for _ in 0..4 {
            let executor = stage.executor.clone();
            let cell = &cell;
            threads.spawn(move || {
                let mut done = 0;
                while done < EACH {
                    match executor.guarded(|tx| {
                        *tx.write(cell) += 1;
                        Ok(())
                    }) {
                        Ok(_) => done += 1,
                        Err(RunError::RolledBack {
                            cause: Cause::Conflict,
                            ..
                        }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert_eq!(*cell.read(), 4 * EACH);
}

#[tokio::test]
async fn awaited_runs_on_one_cell_conflict_and_do_not_wait() {
    let (stage, cell) = (Stage::new(), GuardedCell::new(0));
    let slow = stage.executor.guarded_async(async |tx| {
        let mut staged = tx.write(&cell);
        *staged = 1;
        pause().await;
        drop(staged);
        Ok(())
    });
    let mut slow = std::pin::pin!(slow);
    assert!(poll_once(slow.as_mut()).is_pending());
    let quick = stage.executor.guarded_async(async |tx| {
        *tx.write(&cell) = 2;
        Ok(())
    });
    quick.await.unwrap().into_value();
    assert!(matches!(
        slow.await,
        Err(RunError::RolledBack {
            cause: Cause::Conflict,
            ..
        })
    ));
    assert_eq!(*cell.read(), 2);
}
