//! Twelve shards over three members: each joins, the shards move, and each leaves in order.
//!
//! `cargo run --example shards` keeps all in memory. With
//! `--features redis -- redis://127.0.0.1:6379/0` it takes any store that has a queue; start it on several machines, and
//! they share the shards.

use std::error::Error;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::shards::{Shard, Shards};
use leasehold::store::MemoryStore;
use leasehold::{GuardedCell, LockManager};
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
        // A program cancels it when it gets SIGTERM.
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
    let memory = MemoryStore::new()?;
    let url = std::env::args().nth(1);
    let mut members = Vec::new();
    for _ in 0..3 {
        let locks = match &url {
            Some(url) => LockManager::connect(url).await?,
            None => LockManager::new(memory.clone())?,
        };
        members.push(Member::join(&locks));
        balanced(&members).await?;
    }
    while let Some(member) = members.pop() {
        member.leave().await?;
        balanced(&members).await?;
    }
    println!("nobody owns anything");
    Ok(())
}
