//! One-time jobs: each fire time is done once.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::clock::{Clock, ManualClock};
use leasehold::handler::{AcquireRequest, AcquireResponse, Handler, Next};
use leasehold::once::{AfterDeath, JobError, JobOutcome, OneTimeJob};
use leasehold::store::{MemoryStore, Revoke};
use leasehold::testing::{Faults, Faulty, Operation};
use leasehold::{Ended, Error, ErrorKind, LockGuard, LockManager, LockManagerBuilder, Settings};

use crate::plain::plain;
use crate::support::{World, ms, poll_once, secs, while_time_passes};

const DAY: Duration = secs(24 * 60 * 60);

/// 2026-11-26T03:00:00Z.
fn three() -> SystemTime {
    UNIX_EPOCH + secs(1_795_662_000)
}

fn nightly(locks: &LockManager) -> OneTimeJob {
    locks.once("nightly", three())
}

type Run<T, E = Infallible> = Result<JobOutcome<T>, JobError<T, E>>;

/// Runs a job that is over at once.
async fn run(job: &OneTimeJob) -> Run<()> {
    job.run(async |_: &LockGuard| Ok(())).await
}

/// Lets its caller wait until the world's time has passed.
async fn sleep(world: &World, span: Duration) {
    Clock::from(world.clock.clone()).sleep(span).await;
}

/// Two hosts, of which the requests of the first can be lost.
struct Hosts {
    clock: ManualClock,
    network: Faulty<MemoryStore>,
    dying: LockManager,
    other: LockManager,
}

impl Hosts {
    fn new() -> Self {
        Self::built(|builder, _| builder)
    }

    fn built(
        set_up: impl FnOnce(LockManagerBuilder, &Faulty<MemoryStore>) -> LockManagerBuilder,
    ) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let network = Faulty::new(store.clone(), clock.clone(), 7);
        let dying = LockManager::builder(network.clone()).clock(clock.clone());
        let other = LockManager::builder(store).clock(clock.clone());
        Self {
            dying: set_up(dying, &network).build().unwrap(),
            other: other.build().unwrap(),
            network,
            clock,
        }
    }

    fn cut_off(&self) {
        for operation in [Operation::Renew, Operation::Release, Operation::Withdraw] {
            self.network.block(operation);
        }
    }

    async fn pass(&self, span: Duration) {
        for _ in 0..span.as_millis() / 100 {
            self.clock.advance(ms(100));
            self.dying.settled().await;
            self.other.settled().await;
        }
    }

    /// The first host begins the job, and is never heard of again.
    async fn one_dies_in(&self, job: &OneTimeJob) {
        let mut running = Box::pin(
            job.run(async |_: &LockGuard| std::future::pending::<Result<(), Infallible>>().await),
        );
        assert!(poll_once(&mut running).await.is_pending());
        self.cut_off();
        drop(running);
        self.pass(secs(15)).await;
    }
}

#[tokio::test]
async fn a_fire_time_is_done_once_and_the_next_one_has_a_key_of_its_own() {
    let world = World::new();
    let ours = nightly(&world.ours);
    assert_eq!(ours.key().unwrap().as_str(), "nightly/2026-11-26T03:00:00Z");
    let ran = ours.run(async |guard: &LockGuard| Ok::<_, Infallible>(guard.token()));
    assert!(matches!(ran.await.unwrap(), JobOutcome::Ran(_)));
    // A fraction of a second is no other fire time.
    let late = world.theirs.once("nightly", three() + ms(999));
    for again in [&ours, &nightly(&world.theirs), &late] {
        assert_eq!(run(again).await.unwrap(), JobOutcome::AlreadyDone);
    }
    for another in [
        world.theirs.once("nightly", three() + secs(1)),
        world.theirs.once("weekly", three()),
    ] {
        assert_eq!(run(&another).await.unwrap(), JobOutcome::Ran(()));
    }
}

#[tokio::test]
async fn a_job_stays_done_for_as_long_as_it_is_kept_from_its_end_on() {
    let world = World::new();
    let job = nightly(&world.ours).keep(secs(50));
    let slow = job.run(async |_: &LockGuard| {
        world.pass(secs(60)).await;
        Ok::<_, Infallible>(())
    });
    let _ = slow.await.unwrap();
    world.pass(secs(49)).await;
    assert_eq!(run(&job).await.unwrap(), JobOutcome::AlreadyDone);
    world.pass(secs(1)).await;
    assert_eq!(run(&job).await.unwrap(), JobOutcome::Ran(()));
}

#[tokio::test]
async fn a_job_is_kept_for_a_day_and_an_operator_may_have_it_run_again() {
    let world = World::new();
    let job = nightly(&world.ours);
    let _ = run(&job).await.unwrap();
    let key = job.key().unwrap();
    let info = world.theirs.inspect(key).await.unwrap().unwrap();
    assert_eq!((info.is_resting, info.remaining), (true, Some(DAY)));
    let _ = world.theirs.revoke(key, Revoke::Now).await.unwrap();
    assert_eq!(run(&job).await.unwrap(), JobOutcome::Ran(()));
}

#[tokio::test]
async fn a_failed_job_is_run_by_the_next_host_unless_its_failure_counts() {
    let world = World::new();
    let fails = async |_: &LockGuard| Err::<(), _>("no disk");
    let job = nightly(&world.ours);
    let failed = job.run(fails).await.unwrap_err();
    assert!(matches!(failed, JobError::Failed { why: "no disk" }));
    assert_eq!(failed.to_string(), "the job failed: no disk");
    let next = nightly(&world.theirs);
    assert_eq!(run(&next).await.unwrap(), JobOutcome::Ran(()));

    let job = world.ours.once("counts", three()).failure_counts();
    let failed = job.run(fails).await.unwrap_err();
    assert!(matches!(failed, JobError::Failed { why: "no disk" }));
    let next = world.theirs.once("counts", three());
    assert_eq!(run(&next).await.unwrap(), JobOutcome::AlreadyDone);
}

#[tokio::test]
async fn a_host_that_waits_stops_when_the_job_is_done() {
    let mut settings = Settings::default();
    settings.max_poll_interval = secs(5);
    let world = World::with(settings);
    // In another process, and in the same one.
    for (name, other) in [("theirs", &world.theirs), ("ours", &world.ours)] {
        let first = world.ours.once(name, three());
        let second = other.once(name, three());
        let ended = Cell::new(None);
        let job = first.run(async |_: &LockGuard| {
            sleep(&world, secs(20)).await;
            ended.set(Some(world.now()));
            Ok::<_, Infallible>(())
        });
        let waiting = async {
            let found = run(&second).await.unwrap();
            (found, world.now())
        };
        let both = async { tokio::join!(job, waiting) };
        let (ran, (found, stopped)) = while_time_passes(&world, secs(40), both).await;
        assert!(matches!(ran, Ok(JobOutcome::Ran(()))), "{name}");
        assert_eq!(found, JobOutcome::AlreadyDone, "{name}");
        let late = stopped.since(&ended.get().unwrap());
        assert!(late <= ms(300), "{name}: {late:?}");
    }
}

#[tokio::test]
async fn those_that_wait_in_one_process_ask_the_store_as_one() {
    let hosts = Hosts::new();
    let first = nightly(&hosts.other);
    let mut running = Box::pin(
        first.run(async |_: &LockGuard| std::future::pending::<Result<(), Infallible>>().await),
    );
    assert!(poll_once(&mut running).await.is_pending());
    let jobs: [_; 5] = std::array::from_fn(|_| nightly(&hosts.dying));
    let mut waiting = jobs.each_ref().map(|job| Box::pin(run(job)));
    let asked = || {
        let each = [Operation::Acquire, Operation::Inspect];
        each.map(|operation| hosts.network.counts(operation).asked)
    };
    for waiting in &mut waiting {
        assert!(poll_once(waiting).await.is_pending());
    }
    let [acquires, looks] = asked();
    for _ in 0..200 {
        hosts.clock.advance(ms(100));
        for locks in [&hosts.dying, &hosts.other] {
            locks.settled().await;
        }
        for waiting in &mut waiting {
            assert!(poll_once(waiting).await.is_pending());
        }
    }
    let now = asked();
    // One poll in each second.
    assert!(now[0] - acquires <= 21, "{now:?} {acquires}");
    assert!(now[1] - looks <= 21, "{now:?} {looks}");
}

#[tokio::test]
async fn a_host_that_waits_runs_the_job_that_failed() {
    let world = World::new();
    let (first, second) = (nightly(&world.ours), nightly(&world.theirs));
    let job = first.run(async |_: &LockGuard| {
        sleep(&world, secs(5)).await;
        Err::<(), _>("no disk")
    });
    let both = async { tokio::join!(job, run(&second)) };
    let (failed, ran) = while_time_passes(&world, secs(10), both).await;
    assert!(matches!(failed, Err(JobError::Failed { .. })));
    assert_eq!(ran.unwrap(), JobOutcome::Ran(()));
}

#[tokio::test]
async fn a_wait_ends_with_the_host_that_runs_the_job() {
    let world = World::new();
    let busy = nightly(&world.ours);
    let mut running = Box::pin(
        busy.run(async |_: &LockGuard| std::future::pending::<Result<(), Infallible>>().await),
    );
    assert!(poll_once(&mut running).await.is_pending());
    for wait in [Duration::ZERO, secs(3)] {
        let second = nightly(&world.theirs).wait(wait);
        let error = while_time_passes(&world, secs(5), run(&second)).await;
        let Err(JobError::NotRun { why }) = error else {
            panic!("{error:?}");
        };
        assert_eq!(why.kind(), ErrorKind::Contended);
        assert!(why.to_string().contains("held by "), "{why}");
    }
    // Dropped in the middle, it is not done.
    drop(running);
    world.settled().await;
    let second = nightly(&world.theirs);
    assert_eq!(run(&second).await.unwrap(), JobOutcome::Ran(()));
}

#[tokio::test]
async fn another_host_repeats_the_job_of_one_that_died_or_skips_it_as_asked() {
    let hosts = Hosts::new();
    hosts.one_dies_in(&nightly(&hosts.dying)).await;
    let other = nightly(&hosts.other);
    assert_eq!(run(&other).await.unwrap(), JobOutcome::Ran(()));

    let hosts = Hosts::new();
    let skips = |locks| nightly(locks).after_death(AfterDeath::Skip);
    hosts.one_dies_in(&skips(&hosts.dying)).await;
    for _ in 0..2 {
        let found = run(&skips(&hosts.other)).await.unwrap();
        assert_eq!(found, JobOutcome::AlreadyBegun);
    }
}

#[tokio::test]
async fn a_job_that_runs_at_most_once_is_done_or_begun() {
    let world = World::new();
    let skips = |locks: &LockManager, name| {
        let job = locks.once(name, three());
        job.after_death(AfterDeath::Skip)
    };
    assert_eq!(
        run(&skips(&world.ours, "a")).await.unwrap(),
        JobOutcome::Ran(())
    );
    assert_eq!(
        run(&skips(&world.theirs, "a")).await.unwrap(),
        JobOutcome::AlreadyDone
    );
    let failed = skips(&world.ours, "b")
        .run(async |_: &LockGuard| Err::<(), _>("no disk"))
        .await;
    assert!(matches!(failed, Err(JobError::Failed { .. })));
    assert_eq!(
        run(&skips(&world.theirs, "b")).await.unwrap(),
        JobOutcome::AlreadyBegun
    );
    // The lock was given back at once.
    let info = world.ours.inspect("b/2026-11-26T03:00:00Z").await.unwrap();
    assert!(info.is_none(), "{info:?}");
}

#[tokio::test]
async fn a_job_that_runs_at_most_once_runs_again_when_its_begin_is_revoked_too() {
    let world = World::new();
    let job = nightly(&world.ours).after_death(AfterDeath::Skip);
    let _ = run(&job).await.unwrap();
    let key = job.key().unwrap();
    let _ = world.theirs.revoke(key, Revoke::Now).await.unwrap();
    assert_eq!(run(&job).await.unwrap(), JobOutcome::AlreadyBegun);
    let begun = format!("{key}/begun");
    let _ = world.theirs.revoke(&begun, Revoke::Now).await.unwrap();
    assert_eq!(run(&job).await.unwrap(), JobOutcome::Ran(()));
}

/// The store does, or does not, execute the request that it does not answer.
#[tokio::test]
async fn a_job_that_runs_at_most_once_does_not_run_before_its_begin_is_confirmed() {
    let mut executed = Faults::default();
    executed.lost_after = 1.0;
    let mut lost = Faults::default();
    lost.lost_before = 1.0;
    for faults in [executed, lost] {
        let hosts = Hosts::built(|builder, network| {
            let network = network.clone();
            let faults = faults.clone();
            builder.handler(BeforeBegun { network, faults })
        });
        let skips = |locks| nightly(locks).after_death(AfterDeath::Skip);
        let mut has_run = false;
        let job = skips(&hosts.dying);
        let ran = job.run(async |_: &LockGuard| {
            has_run = true;
            Ok::<_, Infallible>(())
        });
        let Err(JobError::NotRun { why }) = ran.await else {
            panic!("it ran: {faults:?}");
        };
        assert_eq!(why.kind(), ErrorKind::InDoubt);
        assert!(!has_run);
        hosts.network.set(Faults::default()).unwrap();
        hosts.pass(secs(15)).await;
        let found = run(&skips(&hosts.other)).await.unwrap();
        assert_eq!(found, JobOutcome::AlreadyBegun, "{faults:?}");
    }
}

/// Sets the faults between the grant of the key of a begun job and its release.
struct BeforeBegun {
    network: Faulty<MemoryStore>,
    faults: Faults,
}

impl Handler for BeforeBegun {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        let is_begun = request.key().as_str().ends_with("/begun");
        let granted = next.run(request).await?;
        if is_begun {
            self.network.set(self.faults.clone())?;
        }
        Ok(granted)
    }
}

#[tokio::test]
async fn a_job_whose_lease_is_lost_in_the_middle_is_not_done_for_others() {
    let hosts = Hosts::new();
    let job = nightly(&hosts.dying);
    let ran = job.run(async |guard: &LockGuard| {
        hosts.cut_off();
        hosts.pass(secs(15)).await;
        assert!(!guard.lease().is_live());
        // Another host does it meanwhile.
        let other = nightly(&hosts.other);
        assert_eq!(run(&other).await.unwrap(), JobOutcome::Ran(()));
        Ok::<_, Infallible>(7)
    });
    let Err(JobError::NotRecorded { result, why }) = ran.await else {
        panic!("it is not known to be done");
    };
    assert_eq!(result, Ok(7));
    assert_eq!(why.kind(), ErrorKind::Lost(Ended::Lapsed));
}

#[tokio::test]
async fn a_job_whose_lock_was_taken_away_is_not_recorded() {
    let world = World::new();
    let job = nightly(&world.ours);
    let ran = job.run(async |guard: &LockGuard| {
        let _ = world.theirs.revoke(guard.key(), Revoke::Now).await.unwrap();
        Ok::<_, Infallible>(())
    });
    let Err(JobError::NotRecorded { why, .. }) = ran.await else {
        panic!("it is not known to be done");
    };
    assert_eq!(why.kind(), ErrorKind::Lost(Ended::Gone));
}

#[tokio::test]
async fn a_job_whose_manager_was_shut_down_is_not_recorded() {
    let world = World::new();
    let job = nightly(&world.ours);
    let ran = job.run(async |_: &LockGuard| {
        world.ours.shutdown().await;
        Err::<(), _>("no disk")
    });
    assert!(matches!(ran.await, Err(JobError::Failed { .. })));
    let job = nightly(&world.theirs);
    let ran = job.run(async |_: &LockGuard| {
        world.theirs.shutdown().await;
        Ok::<_, Infallible>(())
    });
    let Err(JobError::NotRecorded { why, .. }) = ran.await else {
        panic!("it is not known to be done");
    };
    assert_eq!(why.kind(), ErrorKind::Lost(Ended::Closed));
}

#[tokio::test]
async fn an_end_that_is_not_confirmed_is_recorded_in_the_background() {
    let hosts = Hosts::new();
    let job = nightly(&hosts.dying);
    let ran = job.run(async |_: &LockGuard| {
        hosts.network.block(Operation::Release);
        Ok::<_, Infallible>(7)
    });
    let Err(JobError::NotRecorded { result, why }) = ran.await else {
        panic!("it is not known to be done");
    };
    assert_eq!((result, why.kind()), (Ok(7), ErrorKind::InDoubt));
    hosts.network.unblock(Operation::Release);
    hosts.pass(secs(2)).await;
    let other = nightly(&hosts.other);
    assert_eq!(run(&other).await.unwrap(), JobOutcome::AlreadyDone);
}

#[tokio::test]
async fn a_store_that_fails_at_first_is_waited_for() {
    let hosts = Hosts::new();
    let mut lossy = Faults::default();
    lossy.lost_before = 1.0;
    hosts.network.set(lossy).unwrap();
    let job = nightly(&hosts.dying);
    let mut running = Box::pin(run(&job));
    assert!(poll_once(&mut running).await.is_pending());
    hosts.network.set(Faults::default()).unwrap();
    loop {
        hosts.clock.advance(ms(100));
        hosts.dying.settled().await;
        if let std::task::Poll::Ready(ran) = poll_once(&mut running).await {
            assert_eq!(ran.unwrap(), JobOutcome::Ran(()));
            break;
        }
    }
}

#[tokio::test]
async fn what_cannot_be_done_once_is_refused_before_the_job_runs() {
    let world = World::new();
    let plain = LockManager::new(plain(world.store.clone())).unwrap();
    let kind = async |job: &OneTimeJob| match run(job).await {
        Err(JobError::NotRun { why }) => why.kind(),
        ran => panic!("{ran:?}"),
    };
    for after_death in [AfterDeath::Retry, AfterDeath::Skip] {
        let job = nightly(&plain).after_death(after_death);
        assert_eq!(kind(&job).await, ErrorKind::Unsupported);
    }
    let long_name = "a".repeat(180);
    for job in [
        nightly(&world.ours).keep(Duration::ZERO),
        nightly(&world.ours).keep(31 * DAY),
        world.ours.once("nightly", UNIX_EPOCH - ms(1)),
        world.ours.once("no key", three()),
        world.ours.once(&long_name, three()),
    ] {
        assert_eq!(kind(&job).await, ErrorKind::Invalid);
    }
    assert!(world.ours.list("").await.unwrap().is_empty());
}
