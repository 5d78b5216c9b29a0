//! The shortest and the longest spans, at the calls that take one: an effect, or an error. Never a
//! panic.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold::clock::{Clock, ClockKind, ManualClock};
use leasehold::handler::{AcquireRequest, AcquireResponse, Handler, Next};
use leasehold::store::quorum::Quorum;
use leasehold::store::{Acquired, Claim, Label, LockMode, MemoryStore, OwnerToken, Revoke, Store};
use leasehold::testing::{Faults, Faulty, TestHold};
use leasehold::{Error, ErrorKind, FencingToken, Key, LockManager, Settings};

use crate::support::{World, poll_once};

/// It would be granted, found too short and withdrawn, until the wait is over.
#[tokio::test]
async fn a_lock_that_could_never_be_held_is_refused_at_once() {
    let world = World::new();
    let lock = || world.ours.lock("a");
    let most = world.ours.settings().max_ttl;
    for refused in [
        lock().ttl(Duration::from_millis(50)),
        lock().ttl(most + Duration::from_millis(1)),
        lock().lock_delay(most),
        lock().max_hold(Duration::from_secs(1)),
    ] {
        let error = refused.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let _guard = lock().ttl(Duration::from_secs(1)).acquire().await.unwrap();
}

const EXTREMES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_nanos(u64::MAX),
    Duration::from_millis(u64::MAX),
    Duration::from_secs(i64::MAX as u64),
    Duration::MAX,
];

type Case = fn(Duration) -> BoxFuture<'static, ()>;

/// Runs a case with every span, and names those that panic.
async fn none_panics(cases: &[(&str, Case)]) {
    let mut panicked = Vec::new();
    for (name, case) in cases {
        for span in EXTREMES {
            if AssertUnwindSafe(case(span)).catch_unwind().await.is_err() {
                panicked.push(format!("{name} with {span:?}"));
            }
        }
    }
    assert_eq!(panicked, Vec::<String>::new());
}

/// Lets a call go on for a while, and drops it: some of them wait for as long as they were told to.
async fn briefly<T>(world: &World, call: impl Future<Output = T>) -> Option<T> {
    let mut call = Box::pin(call);
    for _ in 0..8 {
        if let std::task::Poll::Ready(done) = poll_once(&mut call).await {
            return Some(done);
        }
        world.settled().await;
    }
    None
}

fn set(settings: &mut Settings, field: usize, span: Duration) -> bool {
    let fields = [
        &mut settings.ttl,
        &mut settings.max_ttl,
        &mut settings.margin,
        &mut settings.wait,
        &mut settings.retry_delay,
        &mut settings.retry_jitter,
        &mut settings.max_poll_interval,
        &mut settings.request_timeout,
        &mut settings.lock_delay,
        &mut settings.commit_budget,
        &mut settings.min_usable,
        &mut settings.handoff_time,
    ];
    let Some(field) = fields.into_iter().nth(field) else {
        settings.max_hold = Some(span);
        return false;
    };
    *field = span;
    true
}

#[tokio::test]
async fn settings_of_any_length_are_refused_or_work() {
    const CASES: &[(&str, Case)] = &[("a setting", |span| {
        Box::pin(async move {
            for field in 0.. {
                let mut settings = Settings::default();
                let is_field = set(&mut settings, field, span);
                let _ = settings.usable_ttl(span);
                match settings.validate() {
                    Ok(()) => {
                        let world = World::with(settings);
                        let held = briefly(&world, world.ours.lock("a").acquire()).await;
                        drop(briefly(&world, world.ours.lock("a").acquire()).await);
                        drop(held);
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
                }
                if !is_field {
                    break;
                }
            }
        })
    })];
    none_panics(CASES).await;
}

#[tokio::test]
async fn locks_of_any_kind_take_any_span() {
    const CASES: &[(&str, Case)] = &[
        ("a lock's own times", |span| {
            Box::pin(async move {
                let world = World::new();
                let lock = || world.ours.lock("a");
                let locks = [
                    lock().ttl(span),
                    lock().lock_delay(span),
                    lock().max_hold(span),
                    lock().hold_at_least(span),
                    lock().ttl(span).lock_delay(span).max_hold(span),
                ];
                for lock in locks {
                    if let Some(Ok(guard)) = briefly(&world, lock.acquire()).await {
                        briefly(&world, guard.release()).await;
                    }
                }
            })
        }),
        ("the times of other kinds", |span| {
            Box::pin(async move {
                let world = World::new();
                let locks = &world.ours;
                drop(briefly(&world, locks.read_write("b").ttl(span).read()).await);
                drop(briefly(&world, locks.read_write("b").ttl(span).write()).await);
                let election = locks.election("c").ttl(span);
                drop(briefly(&world, election.campaign("me")).await);
                let all = locks.lock_all(["d", "e"]).ttl(span);
                drop(briefly(&world, all.acquire()).await);
                let scope = leasehold::reentrant::Scope::new();
                let again = locks.reentrant("f").ttl(span);
                drop(briefly(&world, again.acquire(&scope)).await);
                let again = locks.reentrant("f").max_hold(span);
                drop(briefly(&world, again.acquire(&scope)).await);
            })
        }),
        ("a wait", |span| {
            Box::pin(async move {
                let world = World::new();
                let theirs = world.theirs.lock("held").acquire().await.unwrap();
                for key in ["free", "held"] {
                    let locks = &world.ours;
                    drop(briefly(&world, locks.lock(key).acquire_within(span)).await);
                    drop(briefly(&world, locks.read_write(key).read_within(span)).await);
                    drop(briefly(&world, locks.read_write(key).write_within(span)).await);
                    drop(briefly(&world, locks.lock_all([key]).acquire_within(span)).await);
                    drop(briefly(&world, locks.semaphore(key, 2).acquire_within(span)).await);
                    let election = locks.election(key);
                    drop(briefly(&world, election.campaign_within("me", span)).await);
                    let scope = leasehold::reentrant::Scope::new();
                    let again = locks.reentrant(key);
                    drop(briefly(&world, again.acquire_within(&scope, span)).await);
                    let fair = locks.lock(key).fair();
                    drop(briefly(&world, fair.acquire_within(span)).await);
                }
                drop(theirs);
            })
        }),
        ("the end of a hold", |span| {
            Box::pin(async move {
                let world = World::new();
                let guard = world.ours.lock("a").acquire().await.unwrap();
                let _ = guard.lease().ensure(span);
                briefly(&world, guard.release_within(span)).await;
            })
        }),
    ];
    none_panics(CASES).await;
}

fn claim(ttl: Duration, place_ttl: Duration, mode: LockMode) -> Claim {
    let (key, label) = (Key::parse("k").unwrap(), Label::parse("me").unwrap());
    let mut claim = Claim::new(key, OwnerToken::generate().unwrap(), label, ttl);
    (claim.place_ttl, claim.mode) = (place_ttl, mode);
    claim
}

/// Every request to a store, with claims of this length.
async fn requests(store: &impl Store, clock: &ManualClock, span: Duration) {
    let second = Duration::from_secs(1);
    for (ttl, place_ttl) in [(span, second), (second, span), (span, span)] {
        for mode in [LockMode::Exclusive, LockMode::Read, LockMode::Write] {
            let (ours, theirs) = (claim(ttl, place_ttl, mode), claim(ttl, place_ttl, mode));
            let acquired = store.acquire(&ours).await;
            let waits = store.acquire(&theirs).await;
            drop(store.subscribe(&theirs).await);
            drop((store.inspect(&ours.key).await, store.list("").await));
            clock.advance(Duration::from_millis(1));
            if let Ok(Acquired::Granted(grant)) = acquired {
                let _ = store.renew(std::slice::from_ref(&grant)).await;
                if mode == LockMode::Write {
                    drop(store.downgrade(&grant).await);
                }
                let _ = store.rest(&grant, span).await;
                let _ = store.release(&grant).await;
            }
            if let Ok(Acquired::Granted(grant)) = waits {
                let _ = store.release(&grant).await;
            }
            drop((store.withdraw(&ours).await, store.withdraw(&theirs).await));
            drop(store.revoke(&ours.key, Revoke::AfterTtl).await);
            drop(store.revoke(&ours.key, Revoke::Now).await);
            drop((store.inspect(&ours.key).await, store.list("").await));
        }
    }
}

#[tokio::test]
async fn stores_take_claims_of_any_length() {
    const CASES: &[(&str, Case)] = &[
        ("the memory store", |span| {
            Box::pin(async move {
                let clock = ManualClock::new();
                requests(&MemoryStore::with_clock(clock.clone()), &clock, span).await;
            })
        }),
        ("wrappers", |span| {
            Box::pin(async move {
                let clock = ManualClock::new();
                let memory = || MemoryStore::with_clock(clock.clone());
                let faulty = Faulty::new(memory(), clock.clone(), 7);
                let mut faults = Faults::default();
                (faults.delayed, faults.delay) = (0.0, span);
                faulty.set(faults).unwrap();
                requests(&faulty, &clock, span).await;
            })
        }),
        ("a delay", |span| {
            Box::pin(async move {
                let world = World::new();
                let faulty = Faulty::new(world.store.clone(), world.clock.clone(), 7);
                for _ in 0..20 {
                    let mut faults = Faults::default();
                    (faults.delayed, faults.delay) = (1.0, span);
                    faulty.set(faults).unwrap();
                    let ours = claim(span, span, LockMode::Exclusive);
                    drop(briefly(&world, faulty.acquire(&ours)).await);
                }
            })
        }),
        ("a quorum", |span| {
            Box::pin(async move {
                let clock = ManualClock::new();
                let members = [(); 3].map(|()| MemoryStore::with_clock(clock.clone()));
                let quorum = Quorum::with_clock(members, clock.clone()).unwrap();
                requests(&quorum, &clock, span).await;
            })
        }),
        #[cfg(target_os = "linux")]
        ("files", |span| {
            Box::pin(async move {
                use leasehold::store::{FileOptions, FileStore};
                let name = format!("leasehold-extremes-{}", std::process::id());
                let path = std::env::temp_dir().join(name);
                let clock = ManualClock::new();
                let mut options = FileOptions::new(&path);
                options.request_timeout = span;
                let store = FileStore::open_with_clock(&options, clock.clone().into()).unwrap();
                requests(&store, &clock, span).await;
                drop(store);
                let _ = std::fs::remove_dir_all(path);
            })
        }),
        ("a quarantine", |span| {
            Box::pin(async move {
                let world = World::new();
                world.store.restart(span);
                requests(&world.store, &world.clock, Duration::from_secs(1)).await;
                world.store.restart(span);
                drop(briefly(&world, world.ours.lock("a").try_acquire()).await);
                drop(briefly(&world, world.ours.lock("a").acquire()).await);
                let fair = world.ours.lock("a").fair();
                let mut waiting = Box::pin(fair.acquire());
                for _ in 0..100 {
                    if poll_once(&mut waiting).await.is_ready() {
                        break;
                    }
                    world.settled().await;
                    world.clock.advance(Duration::from_secs(1));
                }
            })
        }),
        ("a quarantine of a quorum", |span| {
            Box::pin(async move {
                let world = World::new();
                let members = [(); 3].map(|()| MemoryStore::with_clock(world.clock.clone()));
                for member in &members {
                    member.restart(span);
                }
                let quorum = Quorum::with_clock(members, world.clock.clone()).unwrap();
                let locks = LockManager::builder(quorum).clock(world.clock.clone());
                let locks = locks.build().unwrap();
                drop(briefly(&world, locks.lock("a").acquire()).await);
            })
        }),
    ];
    none_panics(CASES).await;
}

/// Leaves so much of the wait, and may refuse with this as the time after which to come again.
#[derive(Debug)]
struct Shortens(Duration, bool);

impl Handler for Shortens {
    async fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> Result<AcquireResponse, Error> {
        request.shorten(self.0);
        if self.1 {
            return Err(Error::not_ready("later", self.0));
        }
        next.run(request).await
    }
}

#[tokio::test]
async fn clocks_handlers_and_leases_take_any_span() {
    const CASES: &[(&str, Case)] = &[
        ("a clock", |span| {
            Box::pin(async move {
                let manual = ManualClock::new();
                let clock = Clock::from(manual.clone());
                let _ = clock.stamp().plus(span).plus(span).since(&clock.stamp());
                let _ = clock.sleep(span).now_or_never();
                let _ = clock.timeout(span, async {}).await;
                let _ = clock.until(clock.stamp().plus(span), async {}).await;
                let _ = clock
                    .timeout(span, std::future::pending::<()>())
                    .now_or_never();
                manual.advance(span);
                manual.advance(span);
                manual.advance_only(ClockKind::Raw, span);
                let system = Clock::system().unwrap();
                let _ = system.sleep(span).now_or_never();
                let _ = system.timeout(span, async {}).await;
            })
        }),
        ("a handler", |span| {
            Box::pin(async move {
                for refuses in [false, true] {
                    let world = World::built(Settings::default(), |builder| {
                        builder.handler(Shortens(span, refuses))
                    });
                    let theirs = world.theirs.lock("held").acquire().await.unwrap();
                    for key in ["free", "held"] {
                        let lock = world.ours.lock(key);
                        match briefly(&world, lock.acquire()).await {
                            Some(Err(error)) => drop(error.to_string()),
                            other => drop(other),
                        }
                    }
                    drop(theirs);
                }
            })
        }),
        ("a hold of a test", |span| {
            Box::pin(async move {
                let clock = ManualClock::new();
                let key = Key::parse("k").unwrap();
                let token = FencingToken::new(1).unwrap();
                let settings = Settings::default();
                let hold = TestHold::new(clock.clone(), &settings, key, token, span);
                let _ = hold.renew(span);
                let _ = hold.lease().ensure(span);
                let _ = hold.executor().guarded(|tx| {
                    let _ = tx.check();
                    Ok(tx.remaining())
                });
            })
        }),
        #[cfg(feature = "metrics")]
        ("metrics", |span| {
            Box::pin(async move {
                let metrics = leasehold::handler::Metrics::new().near_miss(span);
                let world = World::built(Settings::default(), |builder| builder.observer(metrics));
                let guard = world.ours.lock("a").acquire().await.unwrap();
                guard.executor().guarded(|_tx| Ok(())).unwrap();
                guard.release().await.unwrap();
            })
        }),
        #[cfg(feature = "flow-control")]
        ("a rate", |span| {
            Box::pin(async move {
                use leasehold::handler::{FlowControl, Rate};
                for count in [0, 1, 2, u32::MAX] {
                    let Ok(rate) = Rate::per(count, span) else {
                        continue;
                    };
                    let _ = rate.burst(u32::MAX);
                    let flow = FlowControl::new().in_total(rate).waits();
                    let world = World::built(Settings::default(), |builder| builder.handler(flow));
                    drop(briefly(&world, world.ours.lock("a").acquire()).await);
                    drop(briefly(&world, world.ours.lock("a").acquire()).await);
                }
            })
        }),
    ];
    none_panics(CASES).await;
}

#[tokio::test]
async fn options_of_stores_are_refused_or_taken_whatever_their_length() {
    const CASES: &[(&str, Case)] = &[
        #[cfg(feature = "redis")]
        ("redis", |span| {
            Box::pin(async move {
                use leasehold::redis::RedisOptions;
                let (nanos, millis) = (span.as_nanos(), span.as_millis());
                for option in [
                    format!("max_ttl={nanos}ns"),
                    format!("replica_wait={nanos}ns"),
                    format!("timeout_millis={millis}"),
                ] {
                    let _ = RedisOptions::parse(&format!("redis://localhost?{option}"));
                }
            })
        }),
        #[cfg(feature = "postgres")]
        ("postgres", |span| {
            Box::pin(async move {
                use leasehold::postgres::PostgresOptions;
                let (nanos, millis) = (span.as_nanos(), span.as_millis());
                for option in [
                    format!("max_ttl={nanos}ns"),
                    format!("timeout_millis={millis}"),
                ] {
                    let _ = PostgresOptions::parse(&format!("postgres://localhost/db?{option}"));
                }
            })
        }),
        #[cfg(feature = "zookeeper")]
        ("zookeeper", |span| {
            Box::pin(async move {
                use leasehold::zookeeper::{ZooKeeperOptions, ZooKeeperStore};
                let options = || ZooKeeperOptions::parse("zookeeper://localhost").unwrap();
                let (mut session, mut tick) = (options(), options());
                (session.session_timeout, tick.tick_time) = (span, span);
                for options in [session, tick] {
                    let opened = ZooKeeperStore::open(options, ManualClock::new()).await;
                    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Invalid);
                }
            })
        }),
    ];
    none_panics(CASES).await;
}
