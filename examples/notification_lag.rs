//! Client A holds a lock and its machine is busy, so the notification of a lost lock reaches A's
//! workers late. Client B gets the lock. Three kinds of worker, side by side:
//!
//! (a) one that stops when it is notified that the lock is lost;
//! (b) the same, with each write as the commit of a guarded run;
//! (c) the same, and the resource checks fencing tokens.
//!
//! In every round one commit of (b) and (c) stalls between its last check of the lease and its
//! write until B has entered: the window that no library can close alone.
//!
//! `cargo run --release --example notification_lag`

#[path = "support/register.rs"]
mod register;

use std::error::Error;
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::run::{Applied, EffectError};
use leasehold::store::MemoryStore;
use leasehold::testing::{Faulty, Operation};
use leasehold::{FencingToken, Lease, LockManager, RunError, Settings};
use register::Register;

const ROUNDS: usize = 8;
const WORKERS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ByEvent,
    GuardedCell,
    Fenced,
}

/// The results of all rounds of one kind.
#[derive(Default)]
struct Count {
    writes: AtomicU64,
    over_b: AtomicU64,
    /// Of the writes over B, those that their run reported.
    reported: AtomicU64,
    not_started: AtomicU64,
    rolled_back: AtomicU64,
    committed_late: AtomicU64,
    fenced: AtomicU64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let busy = Busy::begin()?;
    println!(
        "{ROUNDS} rounds of each kind; every thread that could deliver the notification is busy\n"
    );
    println!("                         writes   over B   reported   unreported");
    let kinds = [
        (Kind::ByEvent, "(a) notified by an event"),
        (Kind::GuardedCell, "(b) guarded"),
        (Kind::Fenced, "(c) guarded and fenced"),
    ];
    let mut ends = Vec::new();
    let mut unreported = Vec::new();
    for (kind, name) in kinds {
        let count = Count::default();
        for round in 0..ROUNDS {
            play(kind, round, &count, &busy)?;
        }
        let [writes, over, reported] =
            [&count.writes, &count.over_b, &count.reported].map(|n| n.load(Ordering::Relaxed));
        println!(
            "{name:<24} {writes:>6}   {over:>6}   {reported:>8}   {:>10}",
            over - reported
        );
        unreported.push(over - reported);
        ends.push((name, count));
    }
    println!("\n                      not started   rolled back   committed late   fenced");
    for (name, count) in &ends[1..] {
        let [started, rolled, late, fenced] = [
            &count.not_started,
            &count.rolled_back,
            &count.committed_late,
            &count.fenced,
        ]
        .map(|n| n.load(Ordering::Relaxed));
        println!("{name:<24} {started:>8} {rolled:>13} {late:>16} {fenced:>8}");
    }
    let over_the_fence = ends[2].1.over_b.load(Ordering::Relaxed);
    println!(
        "\n(a) overwrites B until the notification arrives. (b) stops at the deadline; a write in the commit window is\n\
         reported as CommittedLate. (c) writes nothing late: the resource refuses the older token."
    );
    if unreported[1] == 0 && over_the_fence == 0 {
        Ok(())
    } else {
        Err("a guarantee was broken".into())
    }
}

/// One round: A holds the lock and writes; its heartbeats stop; B takes over.
fn play(kind: Kind, round: usize, count: &Count, busy: &Busy) -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new()?;
    let network = Faulty::new(store.clone(), Clock::system()?, round as u64);
    let steer = network.clone();
    let mut settings = Settings::default();
    settings.ttl = Duration::from_millis(250);
    let a_locks = LockManager::builder(network)
        .settings(settings.clone())
        .build()?;
    let b_locks = LockManager::builder(store).settings(settings).build()?;

    let register = Arc::new(Register::default());
    let a = a_locks.block_on(a_locks.lock("r").acquire())?;
    register.enter(a.token());
    register.raise(a.token());
    let news = busy.deliver(a.lease());
    steer.block(Operation::Renew);

    let stalled = AtomicBool::new(false);
    thread::scope(|threads| -> Result<(), Box<dyn Error>> {
        for _ in 0..WORKERS {
            let executor = a.executor();
            let (register, news, stalled) = (&register, &news, &stalled);
            threads.spawn(move || match kind {
                Kind::ByEvent => by_event(register, executor.lease().token(), news, count),
                _ => guarded(kind, &executor, register, stalled, count),
            });
        }
        let b = b_locks.block_on(b_locks.lock("r").acquire())?;
        register.enter(b.token());
        register.raise(b.token());
        // B's work takes a while; A's workers may end meanwhile.
        work_for(Duration::from_millis(100), &Clock::system()?);
        Ok(())
    })?;
    let tally = register.tally();
    count.writes.fetch_add(tally.writes, Ordering::Relaxed);
    count
        .over_b
        .fetch_add(tally.over_the_next_holder, Ordering::Relaxed);
    Ok(())
}

fn by_event(register: &Register, token: FencingToken, news: &AtomicBool, count: &Count) {
    while !news.load(Ordering::Relaxed) {
        register.write(token);
        some_work();
    }
    count.not_started.fetch_add(1, Ordering::Relaxed);
}

fn guarded(
    kind: Kind,
    executor: &leasehold::Executor,
    register: &Arc<Register>,
    stalled: &AtomicBool,
    count: &Count,
) {
    loop {
        some_work();
        // The first run with little of the lease left stalls in its commit, once a round.
        let stalls = executor.lease().remaining() < Duration::from_millis(40)
            && !stalled.swap(true, Ordering::Relaxed);
        let went_over = Arc::new(AtomicBool::new(false));
        let outcome = executor.guarded(|tx| {
            let (register, went_over) = (Arc::clone(register), Arc::clone(&went_over));
            tx.commit_with(move |permit| {
                while stalls && !register.is_entered_after(permit.single()?.token) {
                    thread::yield_now();
                }
                if kind == Kind::GuardedCell {
                    went_over.store(register.write(permit.single()?.token), Ordering::Relaxed);
                    return Ok(Applied::plain());
                }
                match register.write_fenced(permit.single()?.token) {
                    Ok(is_over) => {
                        went_over.store(is_over, Ordering::Relaxed);
                        Ok(Applied::fenced())
                    }
                    Err(seen) => Err(EffectError::Fenced { seen: Some(seen) }),
                }
            });
            Ok(())
        });
        let counter = match outcome {
            Ok(_) => continue,
            Err(RunError::NotStarted { .. }) => &count.not_started,
            Err(RunError::RolledBack { .. }) => &count.rolled_back,
            Err(RunError::Fenced { .. }) => &count.fenced,
            Err(RunError::CommittedLate { .. }) => {
                let is_over = u64::from(went_over.load(Ordering::Relaxed));
                count.reported.fetch_add(is_over, Ordering::Relaxed);
                &count.committed_late
            }
            Err(other) => panic!("unexpected: {other}"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if !executor.lease().is_live() {
            return;
        }
    }
}

/// The application's own runtime, which delivers the notification: each of its threads has work
/// queued.
struct Busy {
    runtime: tokio::runtime::Runtime,
}

impl Busy {
    fn begin() -> Result<Self, Box<dyn Error>> {
        let cores = thread::available_parallelism()?.get();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores)
            .build()?;
        for _ in 0..cores * 4 {
            let clock = Clock::system()?;
            runtime.spawn(async move {
                loop {
                    work_for(Duration::from_millis(30), &clock);
                    tokio::task::yield_now().await;
                }
            });
        }
        Ok(Self { runtime })
    }

    /// The usual way to notice a lost lock: a task waits for it and notifies the workers.
    fn deliver(&self, lease: &Lease) -> Arc<AtomicBool> {
        let is_lost = Arc::new(AtomicBool::new(false));
        let (lease, flag) = (lease.clone(), Arc::clone(&is_lost));
        self.runtime.spawn(async move {
            lease.lost().await;
            flag.store(true, Ordering::Relaxed);
        });
        is_lost
    }
}

fn some_work() {
    for n in 0..20_000_u64 {
        black_box(n);
        spin_loop();
    }
}

fn work_for(span: Duration, clock: &Clock) {
    let begin = clock.stamp();
    while clock.stamp().since(&begin) < span {
        spin_loop();
    }
}
