//! Twelve shards over as many processes as you start: each joins, the shards move, and each leaves
//! in order.
//!
//! With `--features redis -- redis://127.0.0.1:6379/0` it is one member, on any store that has a
//! queue, until it gets SIGTERM or Ctrl-C. Without a URL three members share the memory of one
//! process.

use std::error::Error;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::shards::{Shard, Shards};
use leasehold::store::MemoryStore;
use leasehold::{GuardedCell, LockManager};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const SHARDS: usize = 12;

type Failure = Box<dyn Error + Send + Sync>;

/// Called once for each shard that a member owns.
async fn work(shard: Shard) -> Result<(), Failure> {
    // The shard is ours already: load what the former owner left.
    let done = GuardedCell::new(0);
    let clock = Clock::system()?;
    while shard.until_leaving(next_batch(&clock)).await.is_some() {
        shard.guarded(|tx| {
            *tx.write(&done) += 1;
            Ok(())
        })?;
    }
    // Another member is to have it: save what is left.
    // Its next owner begins when this returns.
    Ok(())
}

async fn next_batch(clock: &Clock) {
    clock.sleep(Duration::from_millis(20)).await;
}

struct Member {
    shards: Shards,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), leasehold::Error>>,
}

impl Member {
    fn join(locks: &LockManager) -> Self {
        let shards = locks.shards("ingest", SHARDS as u32);
        let stop = CancellationToken::new();
        let serving = tokio::spawn(shards.serve(work).until(stop.clone()));
        Self {
            shards,
            stop,
            serving,
        }
    }

    async fn leave(self) -> Result<(), Failure> {
        self.stop.cancel();
        Ok(self.serving.await??)
    }
}

/// This process is one member, until somebody stops it.
async fn alone(url: &str) -> Result<(), Failure> {
    let member = Member::join(&LockManager::connect(url).await?);
    let mut own = member.shards.watch();
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            changed = own.changed() => changed?,
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
        }
        println!("own: {:?}", *own.borrow_and_update());
    }
    member.leave().await
}

/// Three members of one process join and leave.
async fn together() -> Result<(), Failure> {
    let memory = MemoryStore::new()?;
    let mut members = Vec::new();
    for _ in 0..3 {
        let locks = LockManager::new(memory.clone())?;
        members.push(Member::join(&locks));
        balanced(&members).await?;
    }
    while let Some(member) = members.pop() {
        member.leave().await?;
        balanced(&members).await?;
    }
    Ok(())
}

/// Until each member has its share.
async fn balanced(members: &[Member]) -> Result<(), Failure> {
    for (number, member) in members.iter().enumerate() {
        let mut own = member.shards.watch();
        let share = SHARDS / members.len();
        let own = own.wait_for(|own| own.len() == share).await?;
        println!("member {number} of {}: {:?}", members.len(), *own);
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    match std::env::args().nth(1) {
        Some(url) => alone(&url).await?,
        None => together().await?,
    }
    println!("it owns nothing");
    Ok(())
}
