//! [`ZooKeeperStore`]: locks in Apache ZooKeeper (feature `zookeeper`).
//!
//! # The lock
//!
//! A key is a node under the chroot, and each claim an ephemeral sequential node below it, as Apache Curator's
//! `InterProcessMutex` and `InterProcessReadWriteLock` lay them out: `_c_<guid>-lock-0000000007`, `_c_<guid>-__READ__0000000007`,
//! `_c_<guid>-__WRIT__0000000007`. First come, first served; a reader waits for the nearest writer before it, whoever else for
//! the one just before it, and watches only that one. Every child that ends in a sequence number contends, whoever made it, and
//! wants to be alone unless its name says that it reads. So Java services (Curator) and Python services (kazoo's `Lock`, with
//! `extra_lock_patterns=["-lock-"]`) take turns with ours on the same path. The [simple mode](ZooKeeperMode::Simple) is one ephemeral
//! node, unfair, without readers.
//!
//! Curator's two recipes do not see each other's nodes. Ours see both; but a key that Java takes through one of them has to be
//! taken through the same one here: `lock` for `InterProcessMutex`, `read_write` for `InterProcessReadWriteLock`.
//!
//! An acquire that finds itself not first answers `Busy` and *keeps its place*: ask again with the same claim to look
//! again, [withdraw](Store::withdraw) to leave the queue. The fencing token is the `czxid` of the claim's node: it grows
//! over the whole ensemble, and never goes back. Readers that hold together have different tokens, and may be granted in another
//! order than that of their tokens; a writer's is larger than those of all readers before it.
//!
//! A write hold that [becomes a read hold](Store::downgrade) keeps its node, its token and its place; the node's data say that
//! it reads now. Our readers behind it enter; Curator's, who go by names alone, wait for its end.
//!
//! # Taking a lock away
//!
//! [`revoke`](Store::revoke) deletes the nodes of whoever holds, and in the same write puts a *bar* in their place: a node with
//! the holder's own number, which everybody who waited for the holder waits for, other libraries too. It stands for the longest
//! lease of those who held: their nodes say how long that is; a client of another library is believed to have a session like
//! ours. Each client that meets the bar counts that time in full, by its own clock, and the first who is through deletes it. So
//! does who made it, for as long as its process lives: [`close`](Store::close) waits for it, a manager's shutdown only for its
//! `request_timeout`. With [`Revoke::Now`] the bar is deleted at once.
//!
//! # The lease
//!
//! One session serves all locks of a store. Its negotiated time-out is the TTL of every grant, whatever the claim asks
//! for. A lease is counted from proof only (I1, I3):
//!
//! - A ping or a read proves nothing: a server that has lost its leader answers both. A heartbeat is a *write* through the
//!   quorum: one request that writes the session's own node and checks that each held node exists.
//! - The newest proven write does not renew from its own sending, because the leader may not have heard of the session yet.
//!   It renews from an earlier one, at least a tick old. `proof.rs` tells why; `tick_time` is the operator's word for how
//!   long the servers' tick is.
//! - The session is proven every sixth of its time-out, by itself; a renewal counts as such a heartbeat.
//! - When the session is over, so is every grant of it, and a new one is opened by itself. Nothing is carried over: a node
//!   is ours only if its `ephemeralOwner` is the current session.
//!
//! A grant that nobody renews for a TTL is deleted by the store, although its session lives on: a hold whose end is in
//! doubt ends that way, as it does on every other store.
//!
//! # Drivers
//!
//! Two client libraries stand behind one small trait; `driver=zookeeper-async` in the URL chooses the second, which needs the
//! feature of that name.
//!
//! | | `zookeeper-client` (default) | `zookeeper-async` |
//! |---|---|---|
//! | behaviour suite, queue, faults, the three-server test of the lease | passed | passed |
//! | a connection breaks for less than the session | holds stay | every hold is lost: it may open another session silently |
//! | negotiated time-out | known and checked | the operator's word; at most 20 ticks |
//! | thousands of holds | one request for 500 of them | no: one request for each, one after the other |
//! | nodes of old keys | containers, which the server deletes | stay |
//! | readers and writers, downgrade | yes | yes |
//! | [taking a lock away](Store::revoke) | yes | refused: it has no `multi`, and would let somebody in between |
//! | data under a [fence](crate::fence::ZkFence) | one `multi` | refused: it has none |
//!
//! # Not promised
//!
//! Whether another client of the same path keeps *its* deadline is not ours to say. Without a fence at the resource no lock
//! gives more than its lease.

mod acquire;
mod bars;
#[cfg(feature = "zookeeper-async")]
mod boxed;
mod client;
mod downgrade;
mod driver;
mod fenced;
mod keeper;
mod names;
mod options;
mod order;
mod place;
mod proof;
mod queue;
mod records;
mod renewal;
mod revoke;
mod said;
mod session;
mod simple;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

pub(crate) use driver::{Change, Fault, Refused};
pub use options::{Credentials, DriverKind, ZooKeeperMode, ZooKeeperOptions};

use super::{
    Acquired, Capability, Claim, Fencing, Grant, Hint, LockInfo, Released, Renewed, Revoke,
    Revoked, Store,
};
use crate::clock::Clock;
use crate::model::error::Error;
use crate::model::key::Key;
use bars::Bars;
use keeper::{Keeper, Shared, State};
use parking_lot::Mutex;
use place::Places;
use session::HEARTBEATS_PER_TIMEOUT;

/// Between two looks whether the keeper has deleted a bar whose time is over.
const BAR_PAUSE: Duration = Duration::from_millis(10);

/// Locks in Apache ZooKeeper, over one session (feature `zookeeper`).
///
/// Cloning is cheap; all clones share the session. It ends when it is closed or the last clone is dropped.
#[derive(Clone, Debug)]
pub struct ZooKeeperStore {
    shared: Arc<Shared>,
    /// By the time-out that the first session was granted: what a store claims does not change.
    heartbeat: Duration,
    keeper: Arc<Mutex<Option<Keeper>>>,
}

impl ZooKeeperStore {
    /// Opens a session with the ensemble of a [URL](ZooKeeperOptions::parse), counted by the machine's clocks.
    ///
    /// # Errors
    ///
    /// `Invalid` for a URL that breaks a rule, or a session time-out that the server shortened below four ticks; `Denied`
    /// if access rights forbid it; `Unavailable` if no server answers within the session time-out.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call ends the session that it began.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::open(ZooKeeperOptions::parse(url)?, Clock::system()?).await
    }

    /// Opens a session. Proofs are [stamped](crate::store::GrantProof::sent_at) by `clock`, which has to be the clock of the
    /// store's user.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn open(options: ZooKeeperOptions, clock: impl Into<Clock>) -> Result<Self, Error> {
        options.validate()?;
        let shared = Arc::new(Shared {
            options,
            clock: clock.into(),
            places: Places::default(),
            bars: Bars::default(),
            state: watch::Sender::new(State::Opening(None)),
        });
        let mut state = shared.state.subscribe();
        let keeper = Keeper::start(Arc::clone(&shared))?;
        let ttl = loop {
            let seen = state.borrow_and_update().clone();
            match seen {
                State::Open(session) => break session.ttl,
                State::Opening(Some(error)) => return Err(error),
                State::Opening(None) => {}
                State::Closed => return Err(closed()),
            }
            // The sender lives in `shared`, so that this ends only with a change.
            let _ = state.changed().await;
        };
        Ok(Self {
            shared,
            heartbeat: ttl / HEARTBEATS_PER_TIMEOUT,
            keeper: Arc::new(Mutex::new(Some(keeper))),
        })
    }

    /// Who holds a key and who waits for it, whatever client they use: the holder first, then in the order in which they
    /// asked. The token of one that waits is the token that its grant will have.
    ///
    /// # Errors
    ///
    /// `Invalid` for a key that does not suit the tree; `Unavailable` or `InDoubt` if the ensemble does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn queue(&self, key: &Key) -> Result<Vec<LockInfo>, Error> {
        let path = names::key_path(&self.shared.options.chroot, key)?;
        let session = self.shared.session().await?;
        records::queue(&session, &path, key).await
    }

    /// Completes when no bar of ours stands any more; at the latest one session time-out after the last should have gone.
    async fn bars_lifted(&self) {
        let (bars, clock) = (&self.shared.bars, &self.shared.clock);
        let Some(left) = bars.ours(&clock.stamp()) else {
            return;
        };
        let lifted = async {
            while let Some(left) = bars.ours(&clock.stamp()) {
                clock.sleep(left.max(BAR_PAUSE)).await;
            }
        };
        let limit = left + self.shared.options.session_timeout;
        if clock.timeout(limit, lifted).await.is_none() {
            tracing::warn!(
                "a bar stays behind in zookeeper; the next client that meets it ends it"
            );
        }
    }

    async fn remove(&self, place: &place::Place) -> Result<bool, Error> {
        let _turn = place.turn.lock().await;
        let session = self.shared.session().await?;
        acquire::remove(&self.shared, &session, place).await
    }
}

fn closed() -> Error {
    Error::closed("the zookeeper store was closed; connect again")
}

impl Store for ZooKeeperStore {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn capability(&self) -> Capability {
        Capability {
            fencing: Fencing::Monotonic,
            wakes: true,
            ttl_per_lock: false,
            queues: self.shared.options.mode == ZooKeeperMode::Queue,
            read_write: self.shared.options.mode == ZooKeeperMode::Queue,
            revokes: self.shared.options.driver == DriverKind::Client,
            heartbeat: Some(self.heartbeat),
            tells_holder: true,
            ..Capability::least()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        acquire::acquire(&self.shared, claim).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let gone = || grants.iter().map(|_| Renewed::Gone).collect();
        let state = self.shared.state.borrow().clone();
        // No session, no holds: whatever was granted was granted by one that is over.
        let State::Open(session) = state else {
            return gone();
        };
        match session.driver.connected().await {
            Ok(()) => renewal::renew(&self.shared, &session, grants).await,
            Err(_) => gone(),
        }
    }

    async fn release(&self, grant: &Grant) -> Released {
        let Some(place) = self.shared.places.of(&grant.claim) else {
            return Released::AlreadyGone;
        };
        match self.remove(&place).await {
            Ok(true) => Released::Released,
            Ok(false) => Released::AlreadyGone,
            Err(error) => Released::Unknown(error),
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        let now = self.shared.clock.stamp();
        let ttl = self.shared.options.session_timeout;
        match self.shared.places.withdraw(claim, &now, ttl) {
            Some(place) => self.remove(&place).await.map(drop),
            None => Ok(()),
        }
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        acquire::subscribe(&self.shared, claim).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        downgrade::downgrade(&self.shared, grant).await
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        if !self.capability().revokes {
            return Err(Error::unsupported(format!(
                "the driver zookeeper-async takes no lock away, because it cannot bar the next holder in one write: \
                 key={key}; use the driver zookeeper-client"
            )));
        }
        revoke::revoke(&self.shared, key, how).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        let path = names::key_path(&self.shared.options.chroot, key)?;
        let session = self.shared.session().await?;
        records::inspect(&self.shared, &session, &path, key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let session = self.shared.session().await?;
        records::list(&self.shared, &session, prefix).await
    }

    /// Waits for the end of the bars that were made here, so that they do not stay behind.
    async fn close(&self) -> Result<(), Error> {
        self.bars_lifted().await;
        let mut state = self.shared.state.subscribe();
        drop(self.keeper.lock().take());
        while !matches!(*state.borrow_and_update(), State::Closed) {
            // As in `open`.
            let _ = state.changed().await;
        }
        Ok(())
    }
}
