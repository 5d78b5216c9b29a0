//! Shards: `n` pieces of work, each owned by one of several processes at a time, and divided anew
//! when a process joins or leaves.
//!
//! Each process serves the shards that fall to it: its closure is called once for each of them. No
//! process leads, and nothing is configured: whoever [serves](Shards::serve) the same name takes
//! part. [How to own N shards](crate::docs::shards) has a whole program and the promises.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::shards::Shard;
//! use leasehold::{Error, LockManager, store::MemoryStore};
//! use tokio::task::yield_now;
//! use tokio_util::sync::CancellationToken;
//!
//! async fn work(shard: Shard) -> Result<(), Error> {
//!     // It is ours: load its state, and work on it.
//!     while shard.until_leaving(yield_now()).await.is_some() {}
//!     // Another process is to have it: save what is left.
//!     // Its next owner begins when this returns.
//!     Ok(())
//! }
//!
//! let locks = LockManager::new(MemoryStore::new()?)?;
//! let shards = locks.shards("ingest", 12);
//! let stop = CancellationToken::new();
//! let serving = tokio::spawn(shards.serve(work).until(stop.clone()));
//! shards.watch().wait_for(|own| own.len() == 12).await?;
//! stop.cancel();
//! serving.await??;
//! # Ok(())
//! # }
//! ```
//!
//! A shard is the exclusive lock `NAME/shard/INDEX` (five digits). Each process that takes part
//! holds `NAME/shard-members` for reading. All processes must use the same number of shards; one
//! that does not is refused.

mod assignment;
mod member;
mod pace;
mod plan;
mod serve;
mod serving;
mod shard;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

pub use self::member::{MAX_SHARDS, MAX_WEIGHT};
pub use self::serving::Serving;
pub use self::shard::Shard;

use self::member::Member;
use self::serve::Serve;
use self::shard::OwnShards;
use crate::fence::{AnyFence, Fence, erase};
use crate::manager::{LockManager, in_runtime};
use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::recipes::lock::Lock;
use crate::store::{FAIR_STORES, LockMode};

/// How long the work of a shard may take to end, unless [`drain_limit`](Shards::drain_limit) says
/// another time.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// A name whose work is divided into shards. Nothing is owned. Cloning is cheap.
#[derive(Clone, Debug)]
#[must_use = "nothing is owned until it is served"]
#[doc(alias("partitions", "sharding", "shard manager"))]
pub struct Shards {
    manager: LockManager,
    terms: Result<Terms, Error>,
    own: Arc<OwnShards>,
}

/// Who owns a shard, as the store reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ShardOwner {
    /// The label of its [manager](crate::LockManagerBuilder::label), if the store keeps it.
    pub label: Option<Label>,
    /// The token of its hold, if the store keeps it.
    pub token: Option<FencingToken>,
}

impl LockManager {
    /// The work of a name, divided into `count` shards, 1 to [`MAX_SHARDS`]. With another number,
    /// or a name that is not a key, every later call is an error.
    pub fn shards<K>(&self, name: K, count: u32) -> Shards
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let name = name.try_into().map_err(Into::into);
        Shards {
            manager: self.clone(),
            terms: name.and_then(|name| Terms::new(name, count)),
            own: Arc::default(),
        }
    }
}

impl Shards {
    /// Gives this process a share of the shards that is `weight` times that of a process with the
    /// weight 1, for a larger machine: 1 to [`MAX_WEIGHT`]. With another number, every later call
    /// is an error. Default 1.
    pub fn weight(self, weight: u32) -> Self {
        let in_range = |terms: Terms| {
            if weight == 0 || weight > MAX_WEIGHT {
                return Err(Error::invalid(format!(
                    "a weight is 1 to {MAX_WEIGHT}: weight={weight} key={}; use another number",
                    terms.name
                )));
            }
            Ok(Terms { weight, ..terms })
        };
        let terms = self.terms.and_then(in_range);
        Self { terms, ..self }
    }

    /// Ties a fence to each shard, as [`Lock::fence`]: it is raised to the owner's token under the
    /// shard's own key before the work begins, so no former owner of that shard can write after
    /// that.
    pub fn fence(self, fence: impl Fence) -> Self {
        let fence = Some(erase(fence));
        self.with(|terms| Terms { fence, ..terms })
    }

    /// Uses this TTL instead of the manager's: for how long the shards of a process that died have
    /// no owner. Members look at each other in each sixth of it.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|terms| Terms {
            ttl: Some(ttl),
            ..terms
        })
    }

    /// How long the work of a shard may take to end once it is [asked to](Shard::leaving). After
    /// that its future is dropped, and the shard is released; if a guarded run is still in
    /// progress, its TTL ends it ([`Released::Withheld`](crate::store::Released::Withheld)).
    /// Default 30 seconds.
    pub fn drain_limit(self, drain_limit: Duration) -> Self {
        self.with(|terms| Terms {
            drain_limit,
            ..terms
        })
    }

    fn with(self, change: impl FnOnce(Terms) -> Terms) -> Self {
        Self {
            terms: self.terms.map(change),
            ..self
        }
    }

    /// Takes part: owns the shards that fall to this process, and calls `work` with each of them,
    /// in a task of its own. The [`Serving`] is a future that has to be awaited;
    /// [`until`](Serving::until) stops it.
    ///
    /// A shard is owned before its work begins, and its [fence](Self::fence) is raised. It moves
    /// when the processes that take part have changed: the work is asked to
    /// [leave](Shard::leaving), and the shard is released when it has returned. What the work does
    /// with the shard belongs in [`guarded`](crate::LockGuard::guarded) runs or behind the fence,
    /// because a lease can be lost:
    ///
    /// | the work | then |
    /// |---|---|
    /// | returns after it was asked to leave | the next owner begins at once |
    /// | returns `Ok` before that | the shard has no owner for one TTL, and the work is called again |
    /// | returns an error or panics | a log line; the work is called again after a pause, which grows from 100 ms to one TTL |
    /// | is in progress when the lease is lost | its future is dropped as soon as the loss is known; the shard is asked for again |
    /// | is in progress when the [drain limit](Self::drain_limit) is over | its future is dropped, and the shard is released |
    ///
    /// The work is a function, or a closure that owns what it uses and clones it for each shard:
    /// `move |shard| { let db = db.clone(); async move { .. } }`. The compiler refuses an `async`
    /// closure that borrows what it captured, because a task may outlive the closure.
    ///
    /// Once it was polled, this member goes on in tasks, also while nobody polls the [`Serving`].
    /// They run in the caller's runtime. Where there is none they run on the manager's thread, and
    /// must not block.
    ///
    /// # Errors
    ///
    /// `Unsupported` at once if the [capability](LockManager::capability) of the store does not say
    /// `read_write`, or names no queue. `Contended` at once if `max_waiters` callers of this
    /// manager wait already: a member counts as one of them, however many shards it waits for.
    /// `Invalid` if other members have another number of shards. Otherwise as [`Lock::acquire`],
    /// where another attempt would fail too. While the store cannot be reached, or a fence cannot
    /// be raised, it tries again, without a limit. So it does for a shard whose key this process
    /// may not use, or which holds something else: it serves the others, and logs a warning.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the work of all shards is dropped, and they are released in the background.
    pub fn serve<W, F, E>(
        &self,
        work: W,
    ) -> Serving<impl Future<Output = Result<(), Error>> + Send + use<W, F, E>>
    where
        W: Fn(Shard) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let stop = CancellationToken::new();
        let (shards, stopped) = (self.clone(), stop.clone());
        let serving = async move {
            let terms = shards.terms?;
            let manager = shards.manager;
            terms.ensure_supported(&manager)?;
            let serve = Serve::new(&manager, terms, &shards.own, work, stopped)?;
            let serving = in_a_task(serve.run());
            in_runtime(manager.handle.context().runtime(), serving).await
        };
        Serving::new(serving, stop)
    }

    /// Who owns which shard now, by index; a shard without an owner is missing. For dashboards and
    /// to find an owner: it may have changed when this returns. It is one [list](LockManager::list)
    /// of the store.
    ///
    /// # Errors
    ///
    /// As [`LockManager::list`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn owners(&self) -> Result<BTreeMap<u32, ShardOwner>, Error> {
        let terms = self.terms.as_ref().map_err(Clone::clone)?;
        let prefix = format!("{}/shard/", terms.name);
        let infos = self.manager.list(&prefix).await?;
        let held = infos.into_iter().filter(|info| info.holders > 0);
        let owned = held.filter_map(|info| {
            let index = info.key.as_str().strip_prefix(&prefix)?.parse().ok()?;
            let is_ours = index < terms.count && info.key.as_str() == terms.key(index);
            let owner = ShardOwner {
                label: info.label,
                token: info.token,
            };
            is_ours.then_some((index, owner))
        });
        Ok(owned.collect())
    }

    /// The shards that this value, or a clone of it, owns now, and each change. A shard is shown
    /// from the call of its work until the work has ended. The notification may arrive late: code
    /// that acts as an owner uses [`guarded`](crate::LockGuard::guarded).
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<BTreeSet<u32>> {
        self.own.shown.subscribe()
    }
}

/// Runs in a task, so that a caller that polls nothing for a while keeps no shard from other
/// members. Dropped, it ends.
async fn in_a_task<F>(member: F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut task = JoinSet::new();
    task.spawn(member);
    let ended = task.join_next().await;
    match ended.map(|ended| ended.map_err(JoinError::try_into_panic)) {
        Some(Ok(ended)) => ended,
        Some(Err(Ok(payload))) => resume_unwind(payload),
        Some(Err(Err(_))) | None => Err(Error::closed(
            "the runtime in which a member served its shards has ended",
        )),
    }
}

/// How the work is divided and how the shards are held.
#[derive(Clone, Debug)]
struct Terms {
    name: Key,
    count: u32,
    weight: u32,
    fence: Option<AnyFence>,
    ttl: Option<Duration>,
    drain_limit: Duration,
}

impl Terms {
    fn new(name: Key, count: u32) -> Result<Self, Error> {
        if count == 0 || count > MAX_SHARDS {
            return Err(Error::invalid(format!(
                "there are 1 to {MAX_SHARDS} shards: shards={count} key={name}; use another number"
            )));
        }
        let terms = Self {
            name,
            count,
            weight: 1,
            fence: None,
            ttl: None,
            drain_limit: DRAIN_LIMIT,
        };
        // The name may be too long for them. All keys of shards have the same length.
        Key::parse(&terms.members_key())?;
        Key::parse(&terms.key(0))?;
        Ok(terms)
    }

    fn ensure_supported(&self, manager: &LockManager) -> Result<(), Error> {
        let capability = manager.capability();
        if capability.read_write && capability.is_fair() {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "shards need read and write locks and a queue, and this store does not have both: key={}; use one of these: {FAIR_STORES}",
            self.name
        )))
    }

    fn members_key(&self) -> String {
        format!("{}/shard-members", self.name)
    }

    fn key(&self, index: u32) -> String {
        format!("{}/shard/{index:05}", self.name)
    }

    fn ttl(&self, manager: &LockManager) -> Duration {
        self.ttl.unwrap_or(manager.settings().ttl)
    }

    fn lock_of(&self, manager: &LockManager, key: String) -> Lock {
        let lock = manager.lock(key).counted_once();
        match self.ttl {
            Some(ttl) => lock.ttl(ttl),
            None => lock,
        }
    }

    /// What a member holds.
    fn membership(&self, manager: &LockManager, member: &Member) -> Lock {
        let lock = self.lock_of(manager, self.members_key());
        lock.in_mode(LockMode::Read).labelled(member.label.clone())
    }

    /// What the owner of a shard holds.
    fn lock(&self, manager: &LockManager, index: u32) -> Lock {
        let lock = self.lock_of(manager, self.key(index)).fair();
        match &self.fence {
            Some(fence) => lock.behind(Arc::clone(fence)),
            None => lock,
        }
    }
}
