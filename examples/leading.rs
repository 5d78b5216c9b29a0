//! Three candidates for one office: who leads, steps down, gives way to a better one, and stops in
//! order.
//!
//! `cargo run --example leading` keeps all in memory. With
//! `--features redis -- redis://127.0.0.1:6379/0` it takes any store that has a queue.

use std::error::Error;
use std::time::Duration;

use leasehold::LockManager;
use leasehold::clock::Clock;
use leasehold::election::Leadership;
use leasehold::fence::FenceGate;
use leasehold::store::MemoryStore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

type Failure = Box<dyn Error + Send + Sync>;

/// What only the leader does. Called once for each of its terms.
async fn schedule(leadership: &Leadership, plans: &FenceGate) {
    let term = leadership.term();
    while leadership.lease().is_live() {
        let plans = plans.clone();
        let planned = leadership.guarded_async(async move |tx| {
            // Changes nothing unless this term is live, and the newest.
            tx.commit_with(move |permit| async move {
                plans.apply(&permit, || println!("term {term}: planned"))
            });
            Ok(())
        });
        if let Err(error) = planned.await {
            eprintln!("{error}");
        }
        pause(500).await;
    }
}

struct Office {
    locks: LockManager,
    /// In front of a service of your own.
    plans: FenceGate,
}

struct Candidate {
    stop: CancellationToken,
    leading: JoinHandle<Result<Option<()>, leasehold::Error>>,
}

impl Candidate {
    fn start(office: &Office, name: &'static str, prefer: u8) -> Self {
        let plans = office.plans.clone();
        let election = office.locks.election("scheduler");
        let election = election.prefer(prefer).fence(plans.clone());
        // A program cancels it when it gets SIGTERM.
        let stop = CancellationToken::new();
        let until = stop.clone();
        let leading = tokio::spawn(async move {
            let work = async move |leadership: &Leadership| {
                schedule(leadership, &plans).await;
                // The term was lost: campaign again.
                std::future::pending::<()>().await
            };
            election
                .while_leader(name, work)
                .drain(Duration::from_secs(5))
                .until(until)
                .await
        });
        Self { stop, leading }
    }

    async fn stop(self) -> Result<(), Failure> {
        self.stop.cancel();
        self.leading.await??;
        Ok(())
    }
}

impl Office {
    /// Until this candidate leads.
    async fn led_by(&self, name: &str) -> Result<(), Failure> {
        let election = self.locks.election("scheduler");
        loop {
            let leader = election.leader().await?;
            let leader = leader.and_then(|leader| leader.name);
            if leader.is_some_and(|leader| leader.as_str() == name) {
                println!("{name} leads");
                return Ok(());
            }
            pause(20).await;
        }
    }
}

async fn pause(millis: u64) {
    if let Ok(clock) = Clock::system() {
        clock.sleep(Duration::from_millis(millis)).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let locks = match std::env::args().nth(1) {
        Some(url) => LockManager::connect(&url).await?,
        None => LockManager::new(MemoryStore::new()?)?,
    };
    let plans = FenceGate::new();
    let office = Office { locks, plans };
    let first = Candidate::start(&office, "host-a", 0);
    office.led_by("host-a").await?;
    // The better machine waits, and the office moves to it.
    let better = Candidate::start(&office, "host-c", 3);
    office.led_by("host-c").await?;
    // An operator moves it on, before that machine is serviced.
    let election = office.locks.election("scheduler");
    let has_left = election.step_down().await?;
    println!("stepped down: {has_left}");
    office.led_by("host-a").await?;
    better.stop().await?;
    // Whoever stops resigns, and the next one leads at once.
    let second = Candidate::start(&office, "host-b", 0);
    first.stop().await?;
    office.led_by("host-b").await?;
    second.stop().await?;
    println!("nobody leads: {}", election.leader().await?.is_none());
    office.locks.shutdown().await;
    Ok(())
}
