//! Four workers move money between accounts under one lock. Then the same with every heartbeat
//! blocked: runs that the lease does not cover are not started or are rolled back, and the sum of
//! the accounts does not change.
//!
//! `cargo run --release --example quickstart`

use std::error::Error;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::store::MemoryStore;
use leasehold::testing::{Faulty, Operation};
use leasehold::{Cause, GuardedCell, LockManager, RunError, Settings};

type Accounts = Vec<i64>;

const WORKERS: usize = 4;
const TRANSFERS: usize = 500;

fn main() -> Result<(), Box<dyn Error>> {
    // A simulated network in front of the store. The second part blocks the heartbeats in it.
    let store = Faulty::new(MemoryStore::new()?, Clock::system()?, 1);
    let network = store.clone();
    let settings = Settings {
        ttl: Duration::from_millis(400),
        ..Settings::default()
    };
    let locks = LockManager::builder(store).settings(settings).build()?;
    let accounts = GuardedCell::new(vec![1_000; 8]);

    println!("1. Heartbeats arrive: {WORKERS} workers, {TRANSFERS} transfers each, one lock.\n");
    with_heartbeats(&locks, &accounts)?;

    println!("\n2. Heartbeats are blocked: the same workers, one hold, and a lease that ends.\n");
    network.block(Operation::Renew);
    without_heartbeats(&locks, &accounts)?;
    Ok(())
}

/// Each worker takes the lock for each transfer.
fn with_heartbeats(
    locks: &LockManager,
    accounts: &GuardedCell<Accounts>,
) -> Result<(), Box<dyn Error>> {
    let lock = locks.lock("bank/accounts");
    let before = sum(accounts);
    let work = |worker: usize| -> Result<usize, Box<dyn Error + Send + Sync>> {
        for n in 0..TRANSFERS {
            let guard = locks.block_on(lock.acquire())?;
            let _done = guard.guarded(|tx| {
                transfer(&mut tx.write(accounts), worker + n);
                Ok(())
            })?;
            let _released = locks.block_on(guard.release());
        }
        Ok(TRANSFERS)
    };
    let counts = thread::scope(|threads| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| threads.spawn(move || work(worker)))
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker"))
            .collect::<Result<Vec<_>, _>>()
    })
    .map_err(|error| error.to_string())?;
    for (worker, count) in counts.iter().enumerate() {
        println!("   worker {worker}: {count} transfers committed");
    }
    report_sum(before, accounts)
}

/// All workers share one hold. They continue until the lease refuses them; nobody notifies them of
/// its end.
fn without_heartbeats(
    locks: &LockManager,
    accounts: &GuardedCell<Accounts>,
) -> Result<(), Box<dyn Error>> {
    let guard = locks.block_on(locks.lock("bank/accounts").acquire())?;
    println!(
        "   lock held, {:?} left of the lease, and no heartbeat will arrive",
        round(guard.remaining())
    );
    let before = sum(accounts);
    let log = Mutex::new(Vec::new());
    thread::scope(|threads| {
        for worker in 0..WORKERS {
            let (executor, log) = (guard.executor(), &log);
            threads.spawn(move || {
                let say = |line: String| log.lock().expect("the log").push((worker, line));
                let mut committed = 0;
                let mut conflicts = 0;
                loop {
                    // Short runs while there is time; the last one is still working when the lease
                    // ends.
                    let is_last = executor.lease().remaining() < Duration::from_millis(150);
                    let run = executor.guarded(|tx| {
                        transfer(&mut tx.write(accounts), worker + committed);
                        while is_last && tx.check().is_ok() {
                            thread::yield_now();
                        }
                        Ok(())
                    });
                    match run {
                        Ok(_) => committed += 1,
                        Err(RunError::RolledBack { cause: Cause::Conflict, .. }) => conflicts += 1,
                        Err(RunError::RolledBack { cause, .. }) => {
                            say(format!("RolledBack  its staged changes were dropped: {cause}"));
                        }
                        Err(RunError::NotStarted { why }) => {
                            say(format!("NotStarted  the work was not called: {why}"));
                            break;
                        }
                        Err(error) => say(format!("unexpected: {error}")),
                    }
                }
                say(format!(
                    "in all      {committed} committed, {conflicts} rolled back because another worker committed first"
                ));
            });
        }
    });
    let mut log = log.into_inner()?;
    log.sort_by_key(|(worker, _)| *worker);
    for (worker, line) in log {
        println!("   worker {worker}  {line}");
    }
    // At once if every run had ended with the lease; otherwise the TTL ends the hold.
    println!("   release   {}", locks.block_on(guard.release())?);
    report_sum(before, accounts)
}

fn transfer(accounts: &mut Accounts, n: usize) {
    let (from, to) = (n % accounts.len(), (n * 7 + 1) % accounts.len());
    let amount = 1 + (n % 13) as i64;
    accounts[from] -= amount;
    accounts[to] += amount;
}

fn sum(accounts: &GuardedCell<Accounts>) -> i64 {
    accounts.read().iter().sum()
}

fn report_sum(before: i64, accounts: &GuardedCell<Accounts>) -> Result<(), Box<dyn Error>> {
    let after = sum(accounts);
    println!(
        "   sum before {before}, after {after}: {:?}",
        accounts.read()
    );
    if before == after {
        Ok(())
    } else {
        Err("the sum has changed".into())
    }
}

fn round(span: Duration) -> Duration {
    Duration::from_millis(span.as_millis() as u64)
}
