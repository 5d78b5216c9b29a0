//! [`ZkFence`]: data in a ZooKeeper ensemble that can be changed only under the newest token.

mod batch;
#[cfg(all(test, feature = "testing"))]
mod known;
mod names;
mod once;
#[cfg(all(test, feature = "testing"))]
mod once_races;
mod raise;
mod record;
#[cfg(all(test, feature = "testing"))]
mod tree;
mod write;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Stamp;
use crate::fence::Resolve;
use crate::fence::in_run::{patience, resolve_within};
use crate::model::commit::{Applied, CommitPermit, EffectError, HeldKey};
use crate::model::doubt::Doubt;
use crate::model::error::Error;
use crate::model::fence_call::FenceCall;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::zookeeper::store::ZooKeeperStore;
pub use batch::ZkBatch;
use raise::Raised;
use record::Record;

/// For how long a name is kept, unless the fence says otherwise.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a fence is read again when another client wrote it in between.
const TRIES: usize = 8;
/// How long the fence is read for a batch that is too late: within the second for which callers
/// wait for an answer.
const LATE_LOOK: Duration = Duration::from_millis(900);
/// The pause between two reads while a new session opens.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Data in the ensemble that grants the locks, changed only under the newest token of a key
/// (feature `zookeeper`).
///
/// Raising the fence writes the token to a permanent node beside the lock, `<chroot>/<key>/~fence`.
/// A batch is one request that checks the version of that node and that the hold's own node exists,
/// and makes all of its changes, or none. So an old holder is refused, also where the lock's path
/// is used again ([simple mode](crate::zookeeper::ZooKeeperMode::Simple)).
///
/// ```no_run
/// # async fn example(locks: leasehold::LockManager, store: leasehold::zookeeper::ZooKeeperStore)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::zookeeper::{ZkBatch, ZkFence};
///
/// let fence = ZkFence::new(&store);
/// let lock = locks.lock("accounts/7").fence(fence.clone());
/// let guard = lock.acquire().await?;
/// let executor = guard.executor();
/// let done = executor.guarded_async(async |tx| {
///     let fence = fence.clone();
///     let batch = ZkBatch::new().set("/balances/7", "90");
///     tx.commit_with(move |permit| fence.apply(permit, batch));
///     Ok(())
/// });
/// let _ = done.await?;
/// # Ok(())
/// # }
/// ```
///
/// A batch is sent once. The same request makes a node with the run's name, a child of the fence's
/// node. A commit that is not answered is resolved by that name within the run if there is time,
/// and later by [`Resolve`]. The nodes are deleted after a day, unless
/// [`keep_names`](Self::keep_names) sets another time, by whoever next uses the fence of their key:
/// each commit costs the ensemble one small node for so long.
///
/// The driver `zookeeper-async` cannot send a batch, and refuses. Changes *without* the fence are
/// not protected. Cloning is cheap.
#[derive(Clone)]
pub struct ZkFence {
    store: ZooKeeperStore,
    /// What this fence has raised, by key.
    raised: Arc<Mutex<HashMap<Key, Raised>>>,
    /// When old names are deleted from here again, by key.
    next_sweeps: Arc<Mutex<HashMap<Key, Stamp>>>,
    kept: Duration,
}

impl ZkFence {
    /// Makes a fence that uses the session of a store.
    #[must_use]
    pub fn new(store: &ZooKeeperStore) -> Self {
        Self {
            store: store.clone(),
            raised: Arc::default(),
            next_sweeps: Arc::default(),
            kept: KEPT,
        }
    }

    /// Sets for how long the names of commits are kept: so long can a commit be resolved. Default
    /// one day. Of several clients the shortest time counts. A run that began before is refused.
    #[must_use]
    pub fn keep_names(mut self, kept: Duration) -> Self {
        self.kept = kept;
        self
    }

    /// Makes a fence with its own session, in the ensemble of a
    /// [URL](crate::zookeeper::ZooKeeperOptions::parse), for locks whose store is made from that
    /// URL by [`LockManager::connect`](crate::LockManager::connect).
    ///
    /// It knows the holds of other sessions by their tokens only. Older holders are refused as soon
    /// as the fence is raised, so tie it to the lock ([`Lock::fence`](crate::Lock::fence)).
    ///
    /// # Errors
    ///
    /// As [`ZooKeeperStore::connect`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call closes the session that it opened.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Ok(Self::new(&ZooKeeperStore::connect(url).await?))
    }

    /// Reads a node of the ensemble as the leader has it, so a new holder sees what the holder
    /// before it has written; `None` if the node does not exist.
    ///
    /// # Errors
    ///
    /// `Unavailable` or `InDoubt` if the ensemble does not answer; `Denied` if access rights forbid
    /// it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn read(&self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        let node = self.store.read_now(path).await?;
        Ok(node.map(|node| node.data))
    }

    /// Applies a batch as the commit of a guarded run:
    /// `tx.commit_with(move |permit| fence.apply(permit, batch))`.
    ///
    /// If the permit's time is already over (the process was stopped), the batch is not sent,
    /// because the session may have ended too, and a batch on its old connection gets no answer.
    /// The fence is read instead.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write). [`EffectError::Fenced`] or
    /// [`NotApplied`](EffectError::NotApplied) if the permit's time was over. A batch that was not
    /// answered is resolved, and is [`Unknown`](EffectError::Unknown) if that was not answered
    /// either.
    ///
    /// # Cancel safety
    ///
    /// A dropped commit is in doubt: [resolve](Resolve) it.
    pub fn apply(
        &self,
        permit: CommitPermit,
        batch: ZkBatch,
    ) -> impl Future<Output = Result<Applied, EffectError>> + Send + use<> {
        let fence = self.clone();
        FenceCall::new(async move { permit.used_to_send(fence.commit(&permit, &batch)).await })
    }

    async fn commit(&self, permit: &CommitPermit, batch: &ZkBatch) -> Result<Applied, EffectError> {
        let clock = self.store.clock();
        let left = permit.not_after.since(&clock.stamp());
        if left.is_zero() {
            return Err(self.too_late(permit.locks()).await);
        }
        let (locks, txn_id) = (permit.locks(), permit.txn_id);
        self.sweep_if_due(locks, left).await;
        let written = self.write_under(locks, Some(permit), batch);
        let error = match clock.timeout(patience(left), written).await {
            Some(Err(EffectError::Unknown(error))) => error,
            Some(answer) => return answer,
            None => "zookeeper did not answer the commit in time".into(),
        };
        let doubt = Doubt::new(locks.to_vec(), txn_id);
        let ask = |_| self.resolve(&doubt);
        resolve_within(clock, permit.not_after, error, ask).await
    }

    /// Why a batch was not sent: there is a newer holder, or the lease is over.
    async fn too_late(&self, locks: &[HeldKey]) -> EffectError {
        let newer = async {
            for HeldKey { key, token } in locks {
                let seen = self.seen(key).await;
                if seen > *token {
                    return Some(seen);
                }
            }
            None
        };
        match self.store.clock().timeout(LATE_LOOK, newer).await.flatten() {
            Some(seen) => EffectError::Fenced { seen: Some(seen) },
            None => EffectError::not_applied(Error::unavailable(format!(
                "the lease was over, so the batch was not sent: keys={}; acquire the lock again",
                keys(locks)
            ))),
        }
    }

    /// The token that a key's fence was raised to, once the ensemble answers.
    async fn seen(&self, key: &Key) -> FencingToken {
        loop {
            let node = match self.store.fence_path(key) {
                Ok(path) => self.store.read_now(&path).await,
                Err(error) => Err(error),
            };
            if let Ok(Some(node)) = node
                && let Ok(record) = Record::parse(key, &node.data)
            {
                return record.token;
            }
            self.store.clock().sleep(LOOK_AGAIN).await;
        }
    }

    /// Applies a batch under a token. Raises the fence to it first if that was not done from here.
    ///
    /// # Errors
    ///
    /// [`EffectError::Fenced`] if a newer holder was there or the hold's node is gone;
    /// [`NotApplied`](EffectError::NotApplied) if the ensemble refused a change, and with it the
    /// whole batch, or it was never sent; else [`Unknown`](EffectError::Unknown).
    ///
    /// # Cancel safety
    ///
    /// A dropped write is in doubt.
    pub async fn write(
        &self,
        key: &Key,
        token: FencingToken,
        batch: &ZkBatch,
    ) -> Result<Applied, EffectError> {
        let lock = HeldKey {
            key: key.clone(),
            token,
        };
        self.write_under(&[lock], None, batch).await
    }
}

fn disturbed(keys: &str) -> Error {
    Error::unavailable(format!(
        "other clients keep writing the fence's node: keys={keys}; check who writes it"
    ))
}

/// The keys of a run's locks, for a message.
fn keys(locks: &[HeldKey]) -> String {
    let keys: Vec<&str> = locks.iter().map(|lock| lock.key.as_str()).collect();
    keys.join(" ")
}

impl fmt::Debug for ZkFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkFence")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
