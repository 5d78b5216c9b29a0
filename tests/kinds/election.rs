//! One leads, and the next when it is gone.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use leasehold::fence::{Fence, FenceGate};
use leasehold::{Ended, Error, FencingToken, GuardedCell, Key, RunError};

use crate::support::{World, poll_and_drop, poll_once, secs, while_time_passes};
use crate::yielding::leaves_nothing_whenever_dropped;

#[tokio::test]
async fn one_leads_and_the_next_after_it_resigned() {
    let world = World::new();
    let (ours, theirs) = (world.ours.election("e"), world.theirs.election("e"));
    let first = ours.campaign("host-a").await.unwrap();
    let mut waiting = Box::pin(theirs.campaign("host-b"));
    assert!(poll_once(&mut waiting).await.is_pending());
    let leader = theirs.leader().await.unwrap().unwrap();
    assert_eq!(leader.name.unwrap().as_str(), "host-a");
    assert_eq!(leader.term, Some(first.term()));
    let term = first.term();
    let _ = first.resign().await;
    let next = while_time_passes(&world, secs(3), waiting).await.unwrap();
    assert!(next.term() > term);
    let leader = ours.leader().await.unwrap().unwrap();
    assert_eq!(leader.name.unwrap().as_str(), "host-b");
}

#[tokio::test]
async fn candidates_of_one_process_have_terms_of_their_own() {
    let world = World::new();
    let election = world.ours.election("e");
    let first = election.campaign("one").await.unwrap();
    let mut waiting = Box::pin(election.campaign("two"));
    assert!(poll_once(&mut waiting).await.is_pending());
    let term = first.term();
    let _ = first.resign().await;
    let next = while_time_passes(&world, secs(3), waiting).await.unwrap();
    assert!(next.term() > term);
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!(leader.name.unwrap().as_str(), "two");
}

#[tokio::test]
async fn a_leader_that_lapsed_does_nothing_more_and_hears_that_it_lost() {
    let world = World::new();
    let cell = GuardedCell::new(0);
    let old = world.ours.election("e").campaign("host-a").await.unwrap();
    let _ = old
        .guarded(|tx| {
            *tx.write(&cell) = 1;
            Ok(())
        })
        .unwrap();
    world.clock.advance(secs(11));
    let next = world.theirs.election("e").campaign("host-b").await.unwrap();
    let _ = next
        .guarded(|tx| {
            *tx.write(&cell) = 2;
            Ok(())
        })
        .unwrap();
    let late = old.guarded(|tx| {
        *tx.write(&cell) = 3;
        Ok(())
    });
    assert!(matches!(late, Err(RunError::NotStarted { .. })), "{late:?}");
    assert_eq!(*cell.read(), 2);
    assert_eq!(old.lost().await, Ended::Lapsed);
    assert!(old.remaining().is_zero());
}

#[tokio::test]
async fn a_campaign_that_is_not_won_gives_nothing_that_could_be_lost() {
    let world = World::new();
    let _leader = world.ours.election("e").campaign("host-a").await.unwrap();
    let theirs = world.theirs.election("e");
    let campaign = theirs.campaign_within("host-b", secs(1));
    let outcome = while_time_passes(&world, secs(3), campaign).await;
    assert!(outcome.unwrap().is_none());
    assert!(theirs.campaign("two\nlines").await.is_err());
}

#[tokio::test]
async fn an_observer_sees_each_leader_and_each_vacancy_once() {
    let world = World::new();
    let election = world.ours.election("e");
    let mut leaders = Box::pin(world.theirs.election("e").observe());
    assert_eq!(leaders.next().await.unwrap().unwrap(), None);
    for name in ["host-a", "host-b"] {
        let leadership = election.campaign(name).await.unwrap();
        let seen = while_time_passes(&world, secs(3), leaders.next()).await;
        let seen = seen.unwrap().unwrap().unwrap();
        assert_eq!(seen.name.unwrap().as_str(), name);
        assert_eq!(seen.term, Some(leadership.term()));
        // While nothing changes nothing is reported.
        let mut quiet = Box::pin(leaders.next());
        for _ in 0..30 {
            assert!(poll_once(&mut quiet).await.is_pending());
            world.pass(secs(1) / 10).await;
        }
        drop(quiet);
        let _ = leadership.resign().await;
        let seen = while_time_passes(&world, secs(3), leaders.next()).await;
        assert_eq!(seen.unwrap().unwrap(), None);
    }
    world.theirs.shutdown().await;
    assert!(
        while_time_passes_alone(&world, leaders.next())
            .await
            .is_none()
    );
}

/// As `while_time_passes`, when one of the managers is gone.
async fn while_time_passes_alone<F: Future>(world: &World, future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    for _ in 0..30 {
        if let std::task::Poll::Ready(output) = poll_once(future.as_mut()).await {
            return output;
        }
        world.clock.advance(secs(1));
    }
    panic!("nothing came of it");
}

#[tokio::test]
async fn who_lost_the_leadership_campaigns_again_until_its_work_is_done() {
    let world = World::new();
    let election = world.ours.election("e");
    let terms = Cell::new(0);
    let mut last = None;
    let leading = election.while_leader("host-a", async |leadership| {
        assert!(leadership.lease().is_live());
        terms.set(terms.get() + 1);
        if terms.get() < 3 {
            // The store loses the lock; the next heartbeat says so. This work never ends by itself.
            world.store.forget();
            std::future::pending::<()>().await;
        }
        leadership.term()
    });
    let term = while_time_passes(&world, secs(30), leading).await.unwrap();
    assert!(last.replace(term).is_none());
    assert_eq!(terms.get(), 3);
    assert!(world.is_free("e").await, "resigned when the work was done");
}

#[tokio::test]
async fn a_campaign_that_is_dropped_at_any_await_leaves_the_office_vacant() {
    leaves_nothing_whenever_dropped(2, async |locks, times| {
        poll_and_drop(times, locks.election("e").campaign("host-a"))
    })
    .await;
}

/// A fence that a newer holder has raised before the first raise arrives.
#[derive(Debug)]
struct Overtaken {
    gate: FenceGate,
    is_first: AtomicBool,
}

impl Fence for Overtaken {
    async fn raise(&self, key: &Key, token: FencingToken) -> Result<(), Error> {
        if self.is_first.swap(false, Ordering::SeqCst) {
            let newer = FencingToken::new(token.number() + 1)?;
            self.gate.raise(key, newer).await?;
        }
        self.gate.raise(key, token).await
    }
}

#[tokio::test]
async fn a_candidate_whose_fence_was_raised_late_campaigns_again() {
    let world = World::new();
    let fence = Overtaken {
        gate: FenceGate::new(),
        is_first: AtomicBool::new(true),
    };
    let election = world.ours.election("e").fence(fence);
    let leading = election.while_leader("host-a", async |leadership| leadership.term());
    let term = while_time_passes(&world, secs(3), Box::pin(leading)).await;
    assert!(term.is_ok(), "{term:?}");
}

#[tokio::test]
async fn the_own_term_is_shown_while_it_lasts_and_cleared_however_it_ends() {
    let world = World::new();
    let election = world.ours.election("e");
    let mut state = election.clone().state();
    let term = |state: &tokio::sync::watch::Receiver<Option<leasehold::Lease>>| {
        state.borrow().as_ref().map(leasehold::Lease::token)
    };
    assert_eq!(term(&state), None);
    let leadership = election.campaign("host-a").await.unwrap();
    assert_eq!(term(&state), Some(leadership.term()));
    let _ = leadership.resign().await;
    assert_eq!(term(&state), None, "resigned");

    drop(election.campaign("host-a").await.unwrap());
    assert_eq!(term(&state), None, "dropped");
    world.settled().await;

    let leadership = while_time_passes(&world, secs(3), Box::pin(election.campaign("host-a")));
    let leadership = leadership.await.unwrap();
    state.mark_unchanged();
    world.store.forget();
    let changed = while_time_passes(&world, secs(20), Box::pin(state.changed()));
    changed.await.unwrap();
    assert_eq!(term(&state), None, "lost, with its leadership still there");
    assert!(!leadership.lease().is_live());
    // The end of an old term does not clear the next one.
    let next = while_time_passes(&world, secs(20), Box::pin(election.campaign("host-a")));
    let next = next.await.unwrap();
    drop(leadership);
    assert_eq!(term(&state), Some(next.term()));
}

#[tokio::test]
async fn a_leader_that_is_asked_to_stop_resigns_before_it_returns() {
    let world = World::new();
    let election = world.ours.election("e");
    let stop = tokio_util::sync::CancellationToken::new();
    let work = async |_: &leasehold::election::Leadership| {
        stop.cancel();
        std::future::pending::<()>().await;
    };
    let ended = election.while_leader("host-a", work).until(stop.clone());
    assert!(ended.await.unwrap().is_none());
    assert!(world.is_free("e").await);

    let _theirs = world.theirs.election("e").campaign("host-b").await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let work = async |_: &leasehold::election::Leadership| ();
    let mut waiting = Box::pin(election.while_leader("host-a", work).until(stop.clone()));
    assert!(poll_once(&mut waiting).await.is_pending());
    stop.cancel();
    assert!(waiting.await.unwrap().is_none(), "a candidate stops too");
}

/// A leader that is stopped in the middle of a run, and waits after it; whether the run goes on
/// then. What the leader returned, and how often it committed.
async fn stopped_in_a_run(drain: Duration, goes_on: bool) -> (Option<()>, i32) {
    let world = World::new();
    let election = world.ours.election("e");
    let stop = tokio_util::sync::CancellationToken::new();
    let (committed, gate) = (GuardedCell::new(0), tokio::sync::Notify::new());
    let leading = {
        let (committed, gate, stop) = (&committed, &gate, stop.clone());
        let work = async move |leadership: &leasehold::election::Leadership| {
            let first = leadership.guarded_async(async |tx| {
                stop.cancel();
                gate.notified().await;
                *tx.write(committed) += 1;
                Ok(())
            });
            let _ = first.await;
            std::future::pending::<()>().await
        };
        election.while_leader("host-a", work).drain(drain)
    };
    let mut leading = Box::pin(leading.until(stop.clone()));
    let ended = match poll_once(&mut leading).await {
        std::task::Poll::Ready(ended) => ended,
        std::task::Poll::Pending => {
            assert!(!world.is_free("e").await, "it resigns after the run");
            if goes_on {
                gate.notify_one();
            }
            while_time_passes(&world, secs(4), leading).await
        }
    };
    assert!(world.is_free("e").await);
    (ended.unwrap(), *committed.read())
}

#[tokio::test]
async fn a_leader_with_a_drain_ends_its_run_before_it_resigns() {
    assert_eq!(stopped_in_a_run(secs(3), true).await, (None, 1));
}

#[tokio::test]
async fn a_run_that_outlasts_its_drain_is_rolled_back() {
    assert_eq!(stopped_in_a_run(secs(3), false).await, (None, 0));
}

#[tokio::test]
async fn without_a_drain_a_run_in_progress_is_rolled_back() {
    assert_eq!(stopped_in_a_run(Duration::ZERO, true).await, (None, 0));
}

/// So many that the manager's runtime ends before each of its tasks had a turn.
#[tokio::test]
async fn every_own_term_is_cleared_when_the_manager_shuts_down() {
    let world = World::new();
    let elections: Vec<_> = (0..300)
        .map(|office| world.ours.election(format!("office-{office}")))
        .collect();
    let mut leading = Vec::new();
    for election in &elections {
        leading.push(election.campaign("host-a").await.unwrap());
    }
    world.ours.shutdown().await;
    let clock = leasehold::clock::Clock::system().unwrap();
    for election in &elections {
        let mut state = election.state();
        let cleared = state.wait_for(Option::is_none);
        let cleared = clock.timeout(secs(60), cleared).await;
        assert!(cleared.is_some_and(|state| state.is_ok()));
    }
}
