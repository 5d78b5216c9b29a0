//! What a user writes who has locks, and no shards: members that list each other each half second,
//! and try the locks of what falls to them. It moves nearly everything when one of them joins.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::{Error, LockGuard, LockManager};
use tokio_util::sync::CancellationToken;

use crate::{Ledger, NAME};

const PAUSE: Duration = Duration::from_millis(500);

pub(crate) async fn serve(
    locks: LockManager,
    shards: u32,
    number: usize,
    ledger: Ledger,
    stop: CancellationToken,
) -> Result<(), Error> {
    let me = format!("{NAME}/member/{number:05}");
    let member = locks.lock(me.clone()).acquire().await?;
    let mut held: BTreeMap<u32, LockGuard> = BTreeMap::new();
    while !stop.is_cancelled() {
        let members = locks.list(&format!("{NAME}/member/")).await?;
        let place = members.iter().position(|info| info.key.as_str() == me);
        for shard in 0..shards {
            let is_ours = Some(shard as usize % members.len().max(1)) == place;
            if !is_ours && let Some(guard) = held.remove(&shard) {
                ledger.ends(shard);
                drop(guard.release().await);
            } else if is_ours && !held.contains_key(&shard) {
                let lock = locks.lock(format!("{NAME}/part/{shard}"));
                if let Some(guard) = lock.try_acquire().await? {
                    ledger.begins(shard, number);
                    held.insert(shard, guard);
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stop.cancelled() => {}
        }
    }
    for (shard, guard) in held {
        ledger.ends(shard);
        drop(guard.release().await);
    }
    drop(member.release().await);
    Ok(())
}
