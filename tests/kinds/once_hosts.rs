//! One-time jobs on hosts whose clocks are apart, whose requests are slow or lost, and which are
//! killed.
//!
//! `LEASEHOLD_FIRE_TIMES=10000` sets the number of fire times; without it there are fewer, since
//! each takes milliseconds.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock};
use leasehold::fence::FenceGate;
use leasehold::once::{AfterDeath, JobOutcome, OneTimeJob};
use leasehold::store::MemoryStore;
use leasehold::testing::{Faults, Faulty, Operation};
use leasehold::{LockGuard, LockManager, Settings};

use crate::dice::Dice;
use crate::support::{ms, poll_once, secs};

const FIRE_TIMES: u32 = 200;
const HOSTS: usize = 3;
/// Between two fire times.
const INTERVAL: Duration = secs(60);
/// How far apart the clocks of the hosts are.
const APART: f64 = 5_000.0;
/// Shorter than that, so that a job is over before the last timer fires.
const JOB: f64 = 3_000.0;
const TTL: Duration = secs(3);
/// The longest step of time while a lease has to be renewed.
const STEP: Duration = ms(500);

/// A resource that keeps the names of what was done once, behind a fence.
#[derive(Clone, Default)]
struct Accounts {
    gate: FenceGate,
    effects: Arc<Mutex<Effects>>,
}

#[derive(Default)]
struct Effects {
    names: BTreeSet<u32>,
    /// How often a fire time was applied, and how often it would have been without its name.
    applied: u32,
    asked: u32,
}

impl Accounts {
    /// The effect of a fire time and its name, in one step.
    async fn pay(&self, guard: &LockGuard, number: u32) {
        let accounts = self.clone();
        let paid = guard.commit(async move |permit| {
            accounts.gate.apply(&permit, || {
                let mut effects = accounts.effects.lock().unwrap();
                effects.asked += 1;
                effects.applied += u32::from(effects.names.insert(number));
            })
        });
        // Refused if the lease is over.
        drop(paid.await);
    }

    /// What was applied since the last call.
    fn take(&self) -> (u32, u32) {
        let mut effects = self.effects.lock().unwrap();
        let (applied, asked) = (effects.applied, effects.asked);
        (effects.applied, effects.asked) = (0, 0);
        (applied, asked)
    }
}

/// A host, and the network between it and the store.
struct Host {
    network: Faulty<MemoryStore>,
    locks: LockManager,
}

struct Fleet {
    clock: ManualClock,
    hosts: Vec<Host>,
    /// On a network without faults, and never killed.
    survivor: LockManager,
    accounts: Accounts,
    dice: Dice,
}

fn fire_times() -> u32 {
    let asked = std::env::var("LEASEHOLD_FIRE_TIMES");
    asked.map_or(FIRE_TIMES, |asked| asked.parse().unwrap())
}

/// What came of one fire time.
#[derive(Default)]
struct Runs {
    begun: Cell<u32>,
    done: Cell<u32>,
    kills: u32,
}

/// One host's part in a fire time, in nanoseconds from it.
struct Part<'a> {
    host: &'a Host,
    starts: u64,
    is_killed: Option<u64>,
    run: Pin<Box<dyn Future<Output = ()> + 'a>>,
    has_ended: bool,
}

impl Fleet {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let mut settings = Settings::default();
        settings.ttl = TTL;
        let host = |number: usize| {
            let seed = seed ^ number as u64;
            let network = Faulty::new(store.clone(), clock.clone(), seed);
            let builder = LockManager::builder(network.clone()).clock(clock.clone());
            let builder = builder.settings(settings.clone()).in_simulation();
            let locks = builder.build().unwrap();
            Host { network, locks }
        };
        let survivor = LockManager::builder(store.clone()).clock(clock.clone());
        let survivor = survivor.settings(settings.clone()).in_simulation();
        Self {
            hosts: (0..HOSTS).map(host).collect(),
            survivor: survivor.build().unwrap(),
            accounts: Accounts::default(),
            dice: Dice::new(seed, 0),
            clock,
        }
    }

    async fn settled(&self) {
        for host in &self.hosts {
            host.locks.settled().await;
        }
    }

    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
        self.settled().await;
    }

    fn job(&self, locks: &LockManager, number: u32, after_death: AfterDeath) -> OneTimeJob {
        let fire_time = std::time::UNIX_EPOCH + number * INTERVAL;
        let job = locks.once("report", fire_time).after_death(after_death);
        let job = job.fence(self.accounts.gate.clone());
        job.keep(secs(3600)).wait(secs(30))
    }

    /// Every host runs the job at its time, and some are killed. When their leases are over, the
    /// survivor runs it.
    async fn fire(&mut self, number: u32, after_death: AfterDeath) -> Runs {
        let mut dice = self.dice.clone();
        let mut runs = Runs::default();
        let clock = Clock::from(self.clock.clone());
        for host in &self.hosts {
            let mut faults = Faults::default();
            (faults.delayed, faults.delay) = (0.3, ms(200));
            (faults.lost_before, faults.lost_after) = (0.005, 0.005);
            host.network.set(faults).unwrap();
        }
        let mut parts = Vec::new();
        for host in &self.hosts {
            let (starts, takes) = (dice.ms(0.0, APART), dice.ms(0.0, JOB));
            let is_killed = dice.falls(0.2).then(|| starts + dice.ms(0.0, 1.3 * JOB));
            let (job, clock) = (self.job(&host.locks, number, after_death), clock.clone());
            let (begun, done) = (&runs.begun, &runs.done);
            let accounts = &self.accounts;
            let run = async move {
                let takes = Duration::from_nanos(takes);
                let ran = job.run(async |guard: &LockGuard| {
                    begun.set(begun.get() + 1);
                    clock.sleep(takes / 2).await;
                    accounts.pay(guard, number).await;
                    clock.sleep(takes / 2).await;
                    done.set(done.get() + 1);
                    Ok::<_, Infallible>(())
                });
                // Some of these fail, as their requests are lost.
                drop(ran.await);
            };
            parts.push(Part {
                host,
                starts,
                is_killed,
                run: Box::pin(run),
                has_ended: false,
            });
        }
        let mut kills = 0;
        let mut now = 0;
        while parts.iter().any(|part| !part.has_ended) {
            for part in parts.iter_mut().filter(|part| !part.has_ended) {
                if part.is_killed.is_some_and(|at| at <= now) {
                    kills += 1;
                    for operation in Operation::ALL {
                        part.host.network.block(operation);
                    }
                    part.run = Box::pin(std::future::ready(()));
                    part.has_ended = true;
                } else if part.starts <= now {
                    part.has_ended = matches!(poll_once(&mut part.run).await, Poll::Ready(()));
                }
            }
            let times = parts.iter().filter(|part| !part.has_ended);
            let times = times.flat_map(|part| [Some(part.starts), part.is_killed]);
            let next = times.flatten().filter(|at| *at > now).min();
            let is_running = parts.iter().any(|p| !p.has_ended && p.starts <= now);
            let step = next.map_or(STEP, |next| Duration::from_nanos(next - now));
            let step = if is_running { step.min(STEP) } else { step };
            now += step.as_nanos() as u64;
            self.pass(step).await;
        }
        drop(parts);
        runs.kills = kills;
        self.dice = dice;
        if kills > 0 {
            // What a dead host holds ends by its TTL, and the host starts again.
            self.pass(2 * TTL).await;
            for host in &self.hosts {
                for operation in Operation::ALL {
                    host.network.unblock(operation);
                }
            }
        }
        self.last(number, after_death, &runs).await;
        runs
    }

    async fn last(&self, number: u32, after_death: AfterDeath, runs: &Runs) {
        let job = self.job(&self.survivor, number, after_death);
        let mut last = Box::pin(job.run(async |guard: &LockGuard| {
            runs.begun.set(runs.begun.get() + 1);
            self.accounts.pay(guard, number).await;
            runs.done.set(runs.done.get() + 1);
            Ok::<_, Infallible>(())
        }));
        let outcome = loop {
            if let Poll::Ready(outcome) = poll_once(&mut last).await {
                break outcome.unwrap();
            }
            self.pass(STEP).await;
            self.survivor.settled().await;
        };
        match outcome {
            JobOutcome::Ran(()) | JobOutcome::AlreadyDone => {}
            // It was recorded as begun, and its host never reported that it is done.
            JobOutcome::AlreadyBegun => assert_eq!(after_death, AfterDeath::Skip),
            _ => unreachable!("an outcome that has no name here"),
        }
    }
}

/// Which fire times were run twice, which were not run to their end, and how many effects were
/// refused because their name was there.
async fn fleet(seed: u64, after_death: AfterDeath) -> (u32, u32, u32) {
    let mut fleet = Fleet::new(seed);
    let (mut kills, mut repeated, mut unfinished, mut refused) = (0, 0, 0, 0);
    let fire_times = fire_times();
    for number in 0..fire_times {
        let runs = fleet.fire(number, after_death).await;
        let (begun, done) = (runs.begun.get(), runs.done.get());
        match after_death {
            AfterDeath::Skip => assert!(begun <= 1, "seed={seed} number={number}: begun={begun}"),
            _ => assert!(done >= 1, "seed={seed} number={number}: never done"),
        }
        let (applied, asked) = fleet.accounts.take();
        match after_death {
            AfterDeath::Skip => assert!(asked <= 1, "seed={seed} number={number}: asked={asked}"),
            _ => assert_eq!(applied, 1, "seed={seed} number={number}: asked={asked}"),
        }
        refused += asked - applied;
        kills += runs.kills;
        repeated += u32::from(begun > 1);
        unfinished += u32::from(done == 0);
        // The next fire time is the next, whatever the clocks of hosts say.
        fleet.pass(secs(1)).await;
    }
    assert!(kills > fire_times / 10, "kills={kills}");
    println!(
        "fire_times={fire_times} kills={kills} repeated={repeated} unfinished={unfinished} refused={refused}"
    );
    (repeated, unfinished, refused)
}

/// And its effect is applied exactly once, because its name goes with it.
#[tokio::test]
async fn each_fire_time_is_done_at_least_once() {
    let (repeated, unfinished, refused) = fleet(1, AfterDeath::Retry).await;
    // Hosts were killed in the middle of their jobs, some after the effect: it had to be refused.
    assert!(repeated > refused && refused > 0);
    assert_eq!(unfinished, 0);
}

#[tokio::test]
async fn each_fire_time_is_begun_at_most_once() {
    let (repeated, unfinished, _) = fleet(2, AfterDeath::Skip).await;
    assert_eq!(repeated, 0);
    assert!(unfinished > 0);
}
