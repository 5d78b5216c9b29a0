//! Observers see every event, decide nothing, and harm nobody.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{World, ms, no_handoff, poll_and_drop, poll_once, secs, while_time_passes};
use leasehold::clock::{Clock, ManualClock};
use leasehold::handler::{AcquireOutcome, Event, RunEvent};
use leasehold::run::EffectError;
use leasehold::store::{MemoryStore, Released};
use leasehold::testing::{Faulty, Operation};
use leasehold::{Ended, LockManager};
use parking_lot::Mutex;

/// Events in words, in the order in which they were reported.
type Reported = Arc<Mutex<Vec<String>>>;

fn word(event: &Event<'_>) -> String {
    match event {
        Event::Wait { key, callers, .. } => format!("wait {key} {callers}"),
        Event::Acquire {
            key, outcome, wait, ..
        } => match outcome {
            AcquireOutcome::Held { lease, .. } => {
                format!("acquire {key} held {} {wait:?}", lease.token())
            }
            AcquireOutcome::Busy => format!("acquire {key} busy {wait:?}"),
            AcquireOutcome::Failed(error) => format!("acquire {key} {:?}", error.kind()),
            AcquireOutcome::Abandoned => format!("acquire {key} abandoned"),
            other => format!("{other:?}"),
        },
        Event::Renew {
            holds,
            extended,
            gone,
            unknown,
            ..
        } => format!("renew {holds}: {extended} {gone} {unknown}"),
        Event::Run { event, .. } => format!("{event:?}"),
        Event::Intent { intent, .. } => format!("intent {}", intent.intent),
        Event::Debt { debt, .. } => format!("debt {}", debt.intent),
        Event::Lost { key, reason, .. } => format!("lost {key} {reason:?}"),
        Event::Release {
            key,
            reason,
            released,
            held_for,
            ..
        } => format!("release {key} {reason:?} {released:?} {held_for:?}"),
        other => format!("{other:?}"),
    }
}

fn watched() -> (World, Reported) {
    let reported = Reported::default();
    let notes = Arc::clone(&reported);
    let world = World::built(no_handoff(), |b| {
        b.observer(move |event: &Event<'_>| notes.lock().push(word(event)))
    });
    (world, reported)
}

/// What was reported since the last time.
fn taken(reported: &Reported) -> Vec<String> {
    std::mem::take(&mut *reported.lock())
}

#[tokio::test]
async fn a_hold_is_seen_from_its_acquire_over_its_renewals_to_its_release() {
    let (world, reported) = watched();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let token = guard.token();
    world.pass(secs(10)).await;
    let seen = taken(&reported);
    assert_eq!(seen[0], format!("acquire a held {token} 0ns"));
    assert!(seen.len() > 3, "{seen:?}");
    assert!(seen[1..].iter().all(|event| event == "renew 1: 1 0 0"));
    let _ = guard.release().await;
    assert_eq!(taken(&reported), ["release a Released Released 10s"]);
}

#[tokio::test]
async fn waiting_callers_are_counted_as_they_come_and_go() {
    let (world, reported) = watched();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    taken(&reported);
    let lock = world.ours.lock("a");
    let mut first = Box::pin(lock.acquire());
    assert!(poll_once(first.as_mut()).await.is_pending());
    {
        let mut second = Box::pin(lock.acquire());
        assert!(poll_once(second.as_mut()).await.is_pending());
    }
    assert_eq!(
        taken(&reported),
        ["wait a 1", "wait a 2", "wait a 1", "acquire a abandoned"]
    );
    world.clock.advance(ms(1_500));
    let _ = guard.release().await;
    let second = first.await.unwrap();
    let seen = taken(&reported);
    assert!(seen.contains(&"wait a 0".to_owned()), "{seen:?}");
    let held = format!("acquire a held {} 1.5s", second.token());
    assert!(seen.contains(&held), "{seen:?}");
}

#[tokio::test]
async fn a_caller_that_waits_for_another_process_is_counted_and_reported_as_busy_at_the_end() {
    let (world, reported) = watched();
    let _theirs = world.theirs.lock("a").acquire().await.unwrap();
    let lock = world.ours.lock("a");
    let answer = while_time_passes(&world, secs(60), lock.acquire_within(secs(2))).await;
    assert!(answer.unwrap().is_none());
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(
        taken(&reported),
        [
            "wait a 1",
            "wait a 0",
            "acquire a busy 2s",
            "acquire a busy 0ns"
        ]
    );
}

#[tokio::test]
async fn every_run_that_entered_has_one_end() {
    let (world, reported) = watched();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    taken(&reported);
    let slack = guard.remaining();

    executor.guarded(|tx| Ok(tx.check()?)).unwrap().into_value();
    let committed = format!("{:?}", RunEvent::Committed { slack });
    let checked = "Checked { is_live: true }";
    assert_eq!(taken(&reported), ["Entered", checked, &committed]);

    let failed = executor.guarded(|tx| {
        tx.undo(|| ());
        tx.undo(|| Err::<(), _>("it is stuck"));
        Err::<(), _>("it failed".into())
    });
    assert!(failed.is_err());
    assert_eq!(
        taken(&reported),
        [
            "Entered",
            "Undone { done: 1, not_done: 1 }",
            "Incomplete { debts: 0 }"
        ]
    );

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        executor.guarded(|tx| -> Result<(), leasehold::Abort> {
            tx.undo(|| ());
            panic!("a planted panic")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(
        taken(&reported),
        ["Entered", "Undone { done: 1, not_done: 0 }", "Panicked"]
    );

    let is_done = poll_and_drop(
        1,
        executor.guarded_async(async |tx| {
            tx.undo(|| ());
            std::future::pending::<()>().await;
            Ok(())
        }),
    );
    assert!(!is_done);
    assert_eq!(
        taken(&reported),
        ["Entered", "Undone { done: 1, not_done: 0 }", "Dropped"]
    );

    let in_doubt = executor.guarded(|tx| {
        tx.commit_with(|_| Err::<(), _>(EffectError::unknown("no answer")));
        Ok(())
    });
    assert!(in_doubt.is_err());
    assert_eq!(taken(&reported), ["Entered", "debt the commit", "InDoubt"]);

    world.clock.advance(secs(60));
    assert!(executor.guarded(|_| Ok(())).is_err());
    // The manager has found the loss as well by now, or will.
    let of_run = |event: &String| !event.starts_with("lost") && !event.starts_with("release");
    let seen: Vec<_> = taken(&reported).into_iter().filter(of_run).collect();
    assert_eq!(seen, ["NotStarted"]);
}

#[tokio::test]
async fn the_events_of_overlapping_runs_carry_the_number_of_their_run() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let world = World::built(no_handoff(), |b| {
        b.observer(move |event: &Event<'_>| {
            if let Event::Run { run, event, .. } = event {
                notes.lock().push((*run, event.is_end()));
            }
        })
    });
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let outer = executor.guarded(|tx| {
        executor.guarded(|tx| Ok(tx.check()?)).unwrap();
        tx.undo(|| ());
        Err::<(), _>("it failed".into())
    });
    assert!(outer.is_err());
    let seen = seen.lock();
    let (outer, inner) = (seen[0].0, seen[1].0);
    assert_ne!(outer, inner);
    let expected = [
        (outer, false),
        (inner, false),
        (inner, false),
        (inner, true),
        (outer, false),
        (outer, true),
    ];
    assert_eq!(*seen, expected);
}

#[tokio::test]
async fn an_awaited_run_is_seen_like_any_other_and_its_late_commit_too() {
    let (world, reported) = watched();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    taken(&reported);
    let done = executor
        .guarded_async(async |tx| {
            tokio::task::yield_now().await;
            Ok(tx.check()?)
        })
        .await;
    let slack = done.unwrap().slack;
    let committed = format!("{:?}", RunEvent::Committed { slack });
    assert_eq!(
        taken(&reported),
        ["Entered", "Checked { is_live: true }", &committed]
    );
    let clock = world.clock.clone();
    let late = executor.guarded(|tx| {
        tx.commit_with(move |_| {
            clock.advance(secs(60));
            Ok(())
        });
        Ok(())
    });
    assert!(late.is_err());
    let seen = taken(&reported);
    assert!(seen.contains(&"Entered".to_owned()));
    assert!(
        seen.iter().any(|event| event.starts_with("CommittedLate")),
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_debt_and_a_loss_are_reported_once() {
    let (world, reported) = watched();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    taken(&reported);
    let owed = guard
        .executor()
        .guarded_async(async |tx| {
            tx.step(
                "debit 7",
                async { Err::<(), _>(EffectError::unknown("no answer")) },
                |_| async {},
            )
            .await?;
            Ok(())
        })
        .await;
    assert_eq!(owed.unwrap_err().debts().len(), 1);
    let seen = taken(&reported);
    let debts: Vec<_> = seen.iter().filter(|e| e.starts_with("debt")).collect();
    assert_eq!(debts, ["debt debit 7"]);
    let intents: Vec<_> = seen.iter().filter(|e| e.starts_with("intent")).collect();
    assert_eq!(intents, ["intent debit 7"]);
    assert!(seen.contains(&"Incomplete { debts: 1 }".to_owned()));

    world.store.forget();
    world.pass(secs(4)).await;
    drop(guard);
    world.settled().await;
    let seen = taken(&reported);
    let lost: Vec<_> = seen.iter().filter(|e| e.starts_with("lost")).collect();
    assert_eq!(lost, ["lost a Gone"]);
    let ends: Vec<_> = seen.iter().filter(|e| e.starts_with("release")).collect();
    assert_eq!(ends.len(), 1, "{seen:?}");
    assert!(ends[0].starts_with("release a Gone"), "{seen:?}");
}

/// A program that ends drops its tasks after the shutdown. Nobody compensates any more then.
#[tokio::test]
async fn a_debt_of_a_run_that_is_dropped_after_the_shutdown_is_reported_once() {
    let (world, reported) = watched();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let mut run = Box::pin(executor.guarded_async(async |tx| {
        let sent = async { Ok::<_, EffectError>(()) };
        tx.step("debit 7", sent, |_| async {}).await?;
        std::future::pending::<()>().await;
        Ok(())
    }));
    assert!(poll_once(&mut run).await.is_pending());
    while_time_passes(&world, secs(60), world.ours.shutdown()).await;
    let intents = taken(&reported);
    assert!(intents.contains(&"intent debit 7".to_owned()));
    drop(run);
    // By a thread of the manager's, if there is still one.
    let mut debts = Vec::new();
    let reports = async {
        while debts.is_empty() {
            tokio::task::yield_now().await;
            debts.extend(taken(&reported));
            debts.retain(|event| event.starts_with("debt"));
        }
    };
    let system = Clock::system().unwrap();
    system.timeout(secs(60), reports).await;
    assert_eq!(debts, ["debt debit 7"]);
}

#[tokio::test]
async fn a_renewal_that_was_not_answered_is_reported_with_its_round_trip() {
    let clock = ManualClock::new();
    let inner = MemoryStore::with_clock(clock.clone());
    let store = Faulty::new(inner, clock.clone(), 7);
    let trips = Arc::<Mutex<Vec<(usize, usize, std::time::Duration)>>>::default();
    let notes = Arc::clone(&trips);
    let locks = LockManager::builder(store.clone())
        .clock(clock.clone())
        .observer(move |event: &Event<'_>| {
            if let Event::Renew {
                extended,
                unknown,
                round_trip,
                ..
            } = event
            {
                notes.lock().push((*extended, *unknown, *round_trip));
            }
        })
        .build()
        .unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    store.stall(Operation::Renew);
    let limit = locks.settings().request_timeout;
    for _ in 0..60 {
        clock.advance(ms(100));
        locks.settled().await;
    }
    let first = trips.lock()[0];
    assert_eq!((first.0, first.1), (0, 1));
    assert!(first.2 >= limit, "{first:?}");
    drop(guard);
}

#[tokio::test]
async fn a_panicking_observer_harms_nobody_and_keeps_nobody_from_seeing() {
    let seen = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&seen);
    let world = World::built(no_handoff(), |b| {
        b.observer(|_: &Event<'_>| panic!("a planted panic"))
            .observer(move |_: &Event<'_>| {
                count.fetch_add(1, Ordering::SeqCst);
            })
    });
    let guard = world.ours.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    executor.guarded(|tx| Ok(tx.check()?)).unwrap().into_value();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        executor.guarded(|_| -> Result<(), leasehold::Abort> { panic!("a planted panic") })
    }));
    assert!(panicked.is_err(), "and not an abort by a second panic");
    world.pass(secs(60)).await;
    assert!(guard.lease().is_live());
    assert!(matches!(guard.release().await, Ok(Released::Released)));
    assert!(seen.load(Ordering::SeqCst) > 10);
}

#[tokio::test]
async fn a_shutdown_is_a_road_and_no_loss() {
    let (world, reported) = watched();
    let guard = world.ours.lock("a").acquire().await.unwrap();
    world.ours.shutdown().await;
    assert_eq!(guard.lease().lost_reason(), Some(Ended::Closed));
    let seen = taken(&reported);
    assert!(seen.contains(&format!("release a {:?} Released 0ns", Ended::Closed)));
    assert!(!seen.iter().any(|event| event.starts_with("lost")));
}
