//! A leader that is asked to leave passes its office on, in order.

use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::ErrorKind;
use leasehold::election::{Election, Leadership};
use leasehold::store::LockInfo;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::support::{World, poll_once, secs, while_time_passes};

/// Leads for ever under a name, whenever it can.
fn leads<'a>(election: &'a Election, name: &'a str) -> impl Future<Output = ()> + Unpin + 'a {
    Box::pin(async move {
        let never = async |_: &Leadership| std::future::pending::<()>().await;
        election.while_leader(name, never).await.unwrap();
    })
}

async fn leader(world: &World) -> Option<String> {
    let leader = world.ours.election("e").leader().await.unwrap();
    leader.map(|leader| leader.name.unwrap().as_str().to_owned())
}

/// Lets candidates go on until `name` leads.
async fn until_it_leads(
    world: &World,
    name: &str,
    mut candidates: impl Future<Output = ()> + Unpin,
) {
    let leads = async {
        loop {
            assert!(poll_once(&mut candidates).await.is_pending());
            if leader(world).await.as_deref() == Some(name) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    while_time_passes(world, secs(5), leads).await;
}

async fn pass(world: &World, span: Duration, mut candidates: impl Future<Output = ()> + Unpin) {
    for _ in 0..span.as_millis() / 100 {
        assert!(poll_once(&mut candidates).await.is_pending());
        world.pass(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_leader_yields_to_a_candidate_that_is_preferred_and_not_back() {
    let world = World::new();
    let (ours, theirs) = (
        world.ours.election("e"),
        world.theirs.election("e").prefer(2),
    );
    let mut plain = leads(&ours, "host-a");
    until_it_leads(&world, "host-a", &mut plain).await;
    let mut both = Box::pin(async {
        tokio::join!(plain, leads(&theirs, "host-b"));
    });
    until_it_leads(&world, "host-b", &mut both).await;
    pass(&world, secs(20), &mut both).await;
    assert_eq!(
        leader(&world).await.as_deref(),
        Some("host-b"),
        "and it stays"
    );
}

#[tokio::test]
async fn candidates_that_are_preferred_alike_do_not_take_the_office_from_each_other() {
    let world = World::new();
    let (ours, theirs) = (
        world.ours.election("e").prefer(2),
        world.theirs.election("e").prefer(2),
    );
    let mut first = leads(&ours, "host-a");
    until_it_leads(&world, "host-a", &mut first).await;
    let mut both = Box::pin(async {
        tokio::join!(first, leads(&theirs, "host-b"));
    });
    for _ in 0..20 {
        pass(&world, secs(1), &mut both).await;
        assert_eq!(leader(&world).await.as_deref(), Some("host-a"));
    }
}

#[tokio::test]
async fn a_leader_that_is_asked_to_step_down_is_followed_by_who_waits() {
    let world = World::new();
    let (ours, theirs) = (world.ours.election("e"), world.theirs.election("e"));
    let mut first = leads(&ours, "host-a");
    until_it_leads(&world, "host-a", &mut first).await;
    let mut both = Box::pin(async {
        tokio::join!(first, leads(&theirs, "host-b"));
    });
    pass(&world, secs(1), &mut both).await;
    let operator = world.theirs.election("e");
    let mut asked = Box::pin(operator.step_down());
    let stepped_down = async {
        loop {
            assert!(poll_once(&mut both).await.is_pending());
            if let Poll::Ready(done) = poll_once(&mut asked).await {
                return done;
            }
            tokio::task::yield_now().await;
        }
    };
    assert!(
        while_time_passes(&world, secs(5), stepped_down)
            .await
            .unwrap()
    );
    pass(&world, secs(20), &mut both).await;
    assert_eq!(leader(&world).await.as_deref(), Some("host-b"));
}

#[tokio::test]
async fn a_leader_that_nobody_follows_does_not_lead_again_at_once() {
    // With the manager's TTL, and with a longer one of its own.
    for ttl in [secs(10), secs(30)] {
        stays_away_for(ttl).await;
    }
}

async fn stays_away_for(ttl: Duration) {
    let world = World::new();
    let election = world.ours.election("e").ttl(ttl);
    let mut alone = leads(&election, "host-a");
    until_it_leads(&world, "host-a", &mut alone).await;
    let operator = world.theirs.election("e");
    let stepped_down = async {
        tokio::select! {
            () = &mut alone => unreachable!("it leads for ever"),
            done = operator.step_down() => done,
        }
    };
    assert!(
        while_time_passes(&world, secs(5), stepped_down)
            .await
            .unwrap()
    );
    pass(&world, ttl - secs(2), &mut alone).await;
    assert_eq!(leader(&world).await, None);
    until_it_leads(&world, "host-a", &mut alone).await;
}

#[tokio::test]
async fn one_that_was_elected_by_a_campaign_is_asked_and_may_decline() {
    let world = World::new();
    let leadership = world.ours.election("e").campaign("host-a").await.unwrap();
    let operator = world.theirs.election("e");
    let mut settled = Box::pin(operator.step_down());
    let mut is_asked = false;
    let declined = async {
        tokio::select! {
            biased;
            declined = &mut settled => declined,
            () = async { leadership.asked_to_leave().await; is_asked = true; std::future::pending().await } => unreachable!(),
        }
    };
    let declined = while_time_passes(&world, secs(60), declined).await;
    assert_eq!(declined.unwrap_err().kind(), ErrorKind::Contended);
    assert!(is_asked);
    assert!(leadership.lease().is_live());
    assert!(leadership.resign().await.is_ok());
    assert!(!operator.step_down().await.unwrap(), "nobody leads");
}

#[tokio::test]
async fn a_guard_learns_that_somebody_waits_in_either_process() {
    for of_ours in [true, false] {
        let world = World::new();
        let held = world.ours.lock("a").acquire().await.unwrap();
        let mut wanted = Box::pin(held.wanted());
        assert!(poll_once(&mut wanted).await.is_pending());
        world.pass(secs(3)).await;
        assert!(poll_once(&mut wanted).await.is_pending(), "nobody waits");
        let locks = if of_ours { &world.ours } else { &world.theirs };
        let lock = locks.lock("a");
        let mut waits = Box::pin(lock.acquire());
        assert!(poll_once(&mut waits).await.is_pending());
        let noticed = async {
            tokio::select! {
                biased;
                noticed = wanted => noticed,
                _ = &mut waits => unreachable!("it is held"),
            }
        };
        while_time_passes(&world, secs(2), noticed).await.unwrap();
    }
}

#[tokio::test]
async fn nobody_wants_a_lock_once_whoever_waited_for_it_has_left() {
    let world = World::new();
    let held = world.ours.lock("a").acquire().await.unwrap();
    let lock = world.ours.lock("a");
    let mut gives_up = Box::pin(lock.acquire_within(secs(30)));
    assert!(poll_once(&mut gives_up).await.is_pending());
    drop(gives_up);
    let mut wanted = Box::pin(held.wanted());
    assert!(poll_once(&mut wanted).await.is_pending(), "nobody waits");
}

#[tokio::test]
async fn a_leader_that_drains_resigns_when_the_run_of_another_task_has_ended() {
    let world = World::new();
    let election = world.ours.election("e");
    let shutdown = CancellationToken::new();
    let (end, ends) = oneshot::channel::<()>();
    let (begun, begins) = oneshot::channel::<()>();
    let led = tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            let once = Mutex::new(Some((begun, ends)));
            let work = async move |leadership: &Leadership| {
                let executor = leadership.executor();
                let (begun, ends) = once.lock().unwrap().take().unwrap();
                tokio::spawn(async move {
                    let run = executor.guarded_async(async |_| {
                        begun.send(()).unwrap();
                        ends.await.unwrap();
                        Ok(())
                    });
                    run.await.map(drop)
                });
                std::future::pending::<()>().await
            };
            let led = election.while_leader("host-a", work).drain(secs(3_600));
            led.until(shutdown).await
        }
    });
    begins.await.unwrap();
    shutdown.cancel();
    world.pass(secs(5)).await;
    assert_eq!(leader(&world).await.as_deref(), Some("host-a"));
    end.send(()).unwrap();
    let ended = while_time_passes(&world, secs(60), led).await.unwrap();
    assert_eq!(ended.unwrap(), None);
    assert_eq!(leader(&world).await, None);
}

#[tokio::test]
async fn a_candidate_without_a_name_is_refused_whatever_it_is_preferred() {
    let world = World::new();
    for preference in [0, 3] {
        let election = world.ours.election("e").prefer(preference);
        let error = election.campaign("").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

/// The leader, and so many candidates. Then one that is preferred, and an operator.
async fn is_asked_behind(candidates: usize) -> bool {
    let world = World::new();
    let leadership = world.ours.election("e").campaign("host-a").await.unwrap();
    let (election, better) = (
        world.theirs.election("e"),
        world.theirs.election("e").prefer(3),
    );
    let waiting: Vec<_> = (0..candidates)
        .map(|_| Box::pin(election.campaign("host-b")))
        .collect();
    let mut waiting = Box::pin(join_all(waiting));
    assert!(poll_once(&mut waiting).await.is_pending());
    let mut better = Box::pin(better.campaign("host-c"));
    assert!(poll_once(&mut better).await.is_pending());
    let mut asked = Box::pin(leadership.asked_to_leave());
    poll_once(&mut asked).await.is_ready()
}

#[tokio::test]
async fn a_leader_sees_as_many_that_wait_as_a_store_names() {
    assert!(is_asked_behind(LockInfo::MAX_WAITERS - 1).await);
    assert!(!is_asked_behind(LockInfo::MAX_WAITERS).await);
}
