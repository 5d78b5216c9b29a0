//! The future of a run is dropped at every one of its await points.

use std::pin::pin;
use std::task::Poll;

use crate::executor_support::{Gauge, Stage, Trace, pause, poll_once, poll_then_drop, token};
use leasehold::run::{DebtState, EffectError};
use leasehold::{Cause, Committed, GuardedCell, RunError};

/// A run that has one of everything, with an await point before and after each, and what it leaves
/// behind.
struct Scene {
    stage: Stage,
    cell: GuardedCell<i64>,
    gauge: Gauge,
    outside: Gauge,
    resource: Gauge,
    trace: Trace,
}

impl Scene {
    fn new() -> Self {
        Self {
            stage: Stage::new(),
            cell: GuardedCell::new(0),
            gauge: Gauge::default(),
            outside: Gauge::default(),
            resource: Gauge::default(),
            trace: Trace::default(),
        }
    }

    async fn run(&self, fails: bool) -> Result<Committed<()>, RunError<()>> {
        let Self {
            stage,
            cell,
            gauge,
            outside,
            resource,
            trace,
        } = self;
        stage
            .executor
            .guarded_async(async |tx| {
                pause().await;
                *tx.write(cell) = 1;
                gauge.set(1);
                let (undone, reported) = (gauge.clone(), trace.clone());
                tx.undo(move || {
                    reported.add("local undo");
                    undone.set(0);
                });
                pause().await;
                for amount in [10, 20] {
                    let (send, reported) = (outside.clone(), trace.clone());
                    let debit = async move {
                        reported.add(format!("sent {amount}"));
                        pause().await;
                        send.add(-amount);
                        reported.add(format!("done {amount}"));
                        Ok(())
                    };
                    let (send, reported) = (outside.clone(), trace.clone());
                    let credit = async move |_| {
                        pause().await;
                        send.add(amount);
                        reported.add(format!("compensated {amount}"));
                    };
                    tx.step(format!("debit {amount}"), debit, credit).await?;
                    pause().await;
                }
                if fails {
                    return Err("no funds".into());
                }
                let (resource, reported) = (resource.clone(), trace.clone());
                tx.commit_with(async move |_| {
                    reported.add("commit sent");
                    pause().await;
                    resource.set(1);
                    pause().await;
                    Ok(())
                });
                pause().await;
                Ok(())
            })
            .await
    }

    /// What must be true whenever the future was dropped.
    async fn judge_the_drop(&self, polls: usize) {
        let Self { stage, trace, .. } = self;
        let seen = || format!("polls={polls} trace={:?}", trace.all());
        assert!(stage.is_drained(), "{}", seen());
        assert_eq!(*self.cell.read(), 0, "{}", seen());
        assert_eq!(
            self.gauge.value(),
            0,
            "local undo is not awaited: {}",
            seen()
        );

        let commit_began = trace.contains("commit sent");
        let in_flight: i64 = [10, 20]
            .into_iter()
            .filter(|n| {
                trace.contains(&format!("sent {n}")) && !trace.contains(&format!("done {n}"))
            })
            .sum();
        assert_eq!(
            stage.hold.lease().is_in_doubt(),
            commit_began || in_flight > 0,
            "{}",
            seen()
        );

        stage.hold.run_compensations().await;
        let debts = stage.hold.debts();
        let states: Vec<_> = debts.iter().map(|d| (&*d.intent, &d.state)).collect();
        if commit_began {
            assert!(!trace.contains("compensated 10"), "{}", seen());
            assert!(
                matches!(
                    states[..],
                    [
                        ("the commit", DebtState::InDoubt),
                        ("debit 20", DebtState::Undecided),
                        ("debit 10", DebtState::Undecided),
                    ]
                ),
                "{states:?} {}",
                seen()
            );
        } else {
            assert_eq!(self.outside.value(), 0, "{}", seen());
            let expected = usize::from(in_flight > 0);
            assert_eq!(states.len(), expected, "{states:?} {}", seen());
            assert!(
                states
                    .iter()
                    .all(|(_, state)| matches!(state, DebtState::InDoubt)),
                "{states:?} {}",
                seen()
            );
        }
        assert!(
            trace.all().iter().filter(|w| *w == "local undo").count() <= 1,
            "{}",
            seen()
        );
    }
}

#[tokio::test]
async fn a_run_dropped_at_any_point_of_its_work_or_commit_leaves_nothing_unreported() {
    let mut points = Vec::new();
    for polls in 0.. {
        let scene = Scene::new();
        match poll_then_drop(polls, scene.run(false)) {
            None => {
                scene.judge_the_drop(polls).await;
                points.push(scene.trace.all());
            }
            Some(outcome) => {
                outcome.unwrap().into_value();
                let committed = (*scene.cell.read(), scene.gauge.value());
                assert_eq!(committed, (1, 1));
                assert_eq!((scene.outside.value(), scene.resource.value()), (-30, 1));
                break;
            }
        }
    }
    // Not begun, two pauses, two for each step, one before the commit and two in it.
    assert_eq!(points.len(), 10, "{points:?}");
}

#[tokio::test]
async fn a_run_dropped_at_any_point_of_its_undo_is_undone_by_the_hold() {
    let mut drops_in_undo = 0;
    for polls in 0.. {
        let scene = Scene::new();
        let Some(outcome) = poll_then_drop(polls, scene.run(true)) else {
            scene.judge_the_drop(polls).await;
            drops_in_undo += usize::from(scene.trace.contains("done 20"));
            continue;
        };
        assert!(matches!(outcome, Err(RunError::RolledBack { .. })));
        let undone: Vec<_> = scene.trace.all().split_off(4);
        assert_eq!(undone, ["compensated 20", "compensated 10", "local undo"]);
        break;
    }
    assert_eq!(drops_in_undo, 3, "after the step, and in each compensation");
}

#[tokio::test]
async fn detached_compensations_run_newest_first_and_only_while_the_lease_lives() {
    let scene = Scene::new();
    assert!(poll_then_drop(7, scene.run(true)).is_none());
    assert!(scene.trace.contains("done 20"));
    scene.stage.hold.run_compensations().await;
    let compensated: Vec<_> = scene.trace.all().split_off(5);
    assert_eq!(compensated, ["compensated 20", "compensated 10"]);

    let scene = Scene::new();
    assert!(poll_then_drop(7, scene.run(true)).is_none());
    scene.stage.lapse();
    scene.stage.hold.run_compensations().await;
    assert_eq!(
        scene.outside.value(),
        -30,
        "a late compensation could hit the next holder"
    );
    let debts = scene.stage.hold.debts();
    let states: Vec<_> = debts.iter().map(|d| (&*d.intent, &d.state)).collect();
    // The second one was under way when the lease ended: it may be half taken back.
    assert!(
        matches!(
            states[..],
            [
                ("debit 20", DebtState::Failed(_)),
                ("debit 10", DebtState::Owed)
            ]
        ),
        "{states:?}"
    );
}

#[tokio::test]
async fn a_commit_that_is_dropped_frees_its_cells() {
    let scene = Scene::new();
    assert!(poll_then_drop(9, scene.run(false)).is_none());
    assert!(scene.trace.contains("commit sent"));
    let again = scene.stage.executor.guarded(|tx| {
        *tx.write(&scene.cell) += 5;
        Ok(())
    });
    again.unwrap().into_value();
    assert_eq!(*scene.cell.read(), 5);
}

fn panics() {
    panic!("in a hook");
}

#[tokio::test]
async fn a_panicking_hook_does_not_stop_the_drop_of_a_run() {
    let scene = Scene::new();
    let (first, last) = (scene.gauge.clone(), scene.outside.clone());
    let run = scene.stage.executor.guarded_async(async |tx| {
        tx.undo(move || first.set(1));
        tx.undo(panics);
        tx.undo(move || last.set(1));
        std::future::pending::<Result<(), leasehold::Abort>>().await
    });
    assert!(poll_then_drop(1, run).is_none());
    assert_eq!((scene.gauge.value(), scene.outside.value()), (1, 1));

    // The same while the thread is already unwinding.
    let (stage, gauge) = (Stage::new(), Gauge::default());
    let (executor, first) = (stage.executor.clone(), gauge.clone());
    let thread = std::thread::spawn(move || {
        let mut run = Box::pin(executor.guarded_async(async |tx| {
            tx.undo(move || first.set(1));
            tx.undo(panics);
            std::future::pending::<Result<(), leasehold::Abort>>().await
        }));
        assert!(poll_once(run.as_mut()).is_pending());
        panic!("with a run on the stack");
    });
    assert!(thread.join().is_err());
    assert_eq!(gauge.value(), 1);
    assert!(stage.is_drained());
}

#[tokio::test]
async fn a_handed_off_compensation_that_is_dropped_leaves_its_hold_in_doubt() {
    let scene = Scene::new();
    assert!(poll_then_drop(7, scene.run(true)).is_none());
    assert!(!scene.stage.hold.lease().is_in_doubt());
    assert!(poll_then_drop(1, scene.stage.hold.run_compensations()).is_none());
    assert!(
        scene.stage.hold.lease().is_in_doubt(),
        "it may have been sent"
    );
    // The first went on where it was and ended; the second was under way.
    assert_eq!(scene.outside.value(), -10);
}

#[tokio::test]
async fn a_commit_in_doubt_hands_nothing_on() {
    let scene = Scene::new();
    assert!(poll_then_drop(8, scene.run(false)).is_none());
    assert!(scene.trace.contains("commit sent"));
    assert_eq!(scene.stage.hold.run_compensations().await, 0);
}

/// Pending at its first poll. A later poll sends.
fn sends_at_its_second_poll(sent: Gauge) -> impl Future<Output = ()> + Send {
    let mut is_first = true;
    std::future::poll_fn(move |_cx| {
        if std::mem::take(&mut is_first) {
            return Poll::Pending;
        }
        sent.add(1);
        Poll::Ready(())
    })
}

#[test]
fn a_step_is_not_polled_after_the_lease() {
    let (stage, sent) = (Stage::new(), Gauge::default());
    let sending = sends_at_its_second_poll(sent.clone());
    let mut run = pin!(stage.executor.guarded_async(async |tx| {
        let call = async {
            sending.await;
            Ok::<(), EffectError>(())
        };
        tx.step("debit", call, |_| async {}).await?;
        Ok(())
    }));
    assert!(poll_once(run.as_mut()).is_pending());
    stage.lapse();
    let Poll::Ready(Err(RunError::Incomplete { undo, .. })) = poll_once(run.as_mut()) else {
        panic!("the step is in doubt");
    };
    assert_eq!((undo.debts().len(), sent.value()), (1, 0));
}

#[test]
fn a_commit_is_not_polled_after_the_lease() {
    let (stage, sent) = (Stage::new(), Gauge::default());
    let sending = sends_at_its_second_poll(sent.clone());
    let mut run = pin!(stage.executor.guarded_async(async |tx| {
        tx.commit_with(async move |_permit| {
            sending.await;
            Ok::<(), EffectError>(())
        });
        Ok(())
    }));
    assert!(poll_once(run.as_mut()).is_pending());
    stage.lapse();
    let ended = poll_once(run.as_mut());
    assert!(
        matches!(ended, Poll::Ready(Err(RunError::InDoubt { .. }))),
        "{ended:?}"
    );
    assert_eq!(sent.value(), 0);
}

#[test]
fn a_step_that_a_fence_refused_fences_its_run_out() {
    let (stage, undone) = (Stage::new(), Gauge::default());
    let seen = Some(token(9));
    for gives_up in [true, false] {
        let outcome = stage.executor.guarded(|tx| {
            tx.step("first", || Ok::<(), EffectError>(()), |_| undone.add(1))?;
            let refused: Result<(), _> =
                tx.step("second", || Err(EffectError::Fenced { seen }), |_| ());
            if gives_up {
                refused?;
            }
            Ok(())
        });
        // A newer holder exists, so the first step may not be undone without a fence, although our
        // lease looks live.
        let Err(RunError::Incomplete { cause, undo, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(
            matches!(cause, Cause::Fenced { seen: other } if other == seen),
            "{cause:?}"
        );
        assert_eq!((undo.debts().len(), undone.value()), (1, 0));
    }
}

#[test]
fn runs_in_turn_do_not_erase_each_others_changes() {
    let stage = Stage::new();
    let gauge = Gauge::default();
    let executor = stage.executor.in_turn();
    let add = |by: i64| {
        let (gauge, undo) = (gauge.clone(), gauge.clone());
        async move |tx: &leasehold::AsyncTx| {
            let before = gauge.value();
            tx.undo(move || undo.set(before));
            pause().await;
            gauge.add(by);
            if by < 0 {
                return Err("fails".into());
            }
            Ok(())
        }
    };
    let other = stage.executor.in_turn();
    let mut fails = pin!(executor.guarded_async(add(-1)));
    let mut works = pin!(other.guarded_async(add(5)));
    assert!(poll_once(fails.as_mut()).is_pending());
    // Not begun: it waits for the first run, undo included.
    assert!(poll_once(works.as_mut()).is_pending());
    assert!(poll_once(works.as_mut()).is_pending());
    assert!(matches!(poll_once(fails.as_mut()), Poll::Ready(Err(_))));
    assert!(poll_once(works.as_mut()).is_pending());
    assert!(matches!(poll_once(works.as_mut()), Poll::Ready(Ok(_))));
    assert_eq!(gauge.value(), 5);
}

#[test]
fn a_run_in_turn_that_is_dropped_is_undone_before_its_turn_ends() {
    let stage = Stage::new();
    let trace = Trace::default();
    let executor = stage.executor.in_turn();
    let (next, undone) = (stage.executor.in_turn(), trace.clone());
    let mut run = Box::pin(executor.guarded_async(async |tx| {
        tx.undo(move || {
            let began = undone.clone();
            let mut other = Box::pin(next.guarded_async(async |_| {
                began.add("the next one began");
                Ok(())
            }));
            let _ = poll_once(other.as_mut());
            undone.add("undone");
        });
        std::future::pending::<()>().await;
        Ok(())
    }));
    assert!(poll_once(run.as_mut()).is_pending());
    drop(run);
    assert_eq!(trace.all(), ["undone"]);
}

#[test]
fn blocking_runs_in_turn_wait_for_each_other() {
    let stage = Stage::new();
    let number = std::sync::Mutex::new(0);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (executor, number) = (stage.executor.in_turn(), &number);
            scope.spawn(move || {
                for round in 0..200 {
                    let fails = (worker + round) % 2 == 0;
                    let outcome = executor.guarded(|tx| {
                        tx.snapshot(number);
                        *number.lock().unwrap() += 1;
                        std::thread::yield_now();
                        if fails { Err("fails".into()) } else { Ok(()) }
                    });
                    assert_eq!(outcome.is_err(), fails);
                }
            });
        }
    });
    assert_eq!(*number.lock().unwrap(), 400);
}

#[test]
fn a_run_in_turn_inside_another_is_refused_and_one_after_the_lease_too() {
    let stage = Stage::new();
    let executor = stage.executor.in_turn();
    let inner = executor.guarded(|_| {
        let refused = executor.clone().guarded(|_| Ok(()));
        assert!(
            matches!(
                refused,
                Err(RunError::RolledBack {
                    cause: Cause::Refused(_),
                    ..
                })
            ),
            "{refused:?}"
        );
        // One that takes no turns does not wait.
        assert!(stage.executor.guarded(|_| Ok(())).is_ok());
        Ok(())
    });
    assert!(inner.is_ok());
    let mut stuck = pin!(executor.guarded_async(async |_| {
        std::future::pending::<()>().await;
        Ok(())
    }));
    assert!(poll_once(stuck.as_mut()).is_pending());
    let mut waiting = pin!(executor.guarded_async(async |_| Ok(())));
    assert!(poll_once(waiting.as_mut()).is_pending());
    stage.hold.revoke(leasehold::Ended::Gone);
    assert!(matches!(
        poll_once(waiting.as_mut()),
        Poll::Ready(Err(RunError::NotStarted { .. }))
    ));
}
