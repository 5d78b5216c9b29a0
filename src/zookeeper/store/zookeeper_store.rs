//! [`ZooKeeperStore`]: the store seam over one client of an ensemble.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::client::ZooKeeperClient;
use super::options::{DriverKind, ZooKeeperMode, ZooKeeperOptions};
use super::queue::claim_state::{ClaimState, NodeState, closed};
use super::queue::names;
use super::session::HEARTBEATS_PER_TIMEOUT;
use super::session_state::SessionState;
use super::session_thread::{self, SessionThread};
use super::{acquire, downgrade, lock_info, renewal, revoke};
use crate::clock::Clock;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::store::{
    Acquired, Capability, Claim, Fencing, Grant, Hint, LockInfo, Queue, Released, Renewed, Revoke,
    Revoked, Store,
};

/// Locks in Apache ZooKeeper, over one session (feature `zookeeper`).
///
/// Cloning is cheap; all clones share the session. It ends when it is closed or the last clone is
/// dropped. A hold that was not released keeps the others out for its session's time-out, also
/// after that.
#[derive(Clone, Debug)]
pub struct ZooKeeperStore {
    pub(super) client: Arc<ZooKeeperClient>,
    /// From the time-out of the first session: a store's capability does not change.
    heartbeat: Duration,
    pub(super) thread: Arc<Mutex<Option<SessionThread>>>,
}

impl ZooKeeperStore {
    /// Opens a session with the ensemble of a [URL](ZooKeeperOptions::parse), counted by the
    /// machine's clocks.
    ///
    /// # Errors
    ///
    /// `Invalid` for a URL that breaks a rule, or a session time-out that the server shortened
    /// below four ticks; `Denied` if access rights forbid it; `Unavailable` if no server answers
    /// within the session time-out.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call closes the session that it opened.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::open(ZooKeeperOptions::parse(url)?, Clock::system()?).await
    }

    /// Opens a session. Proofs are [stamped](crate::store::GrantProof::sent_at) by `clock`, which
    /// has to be the clock of the store's user.
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
        let runtime = session_thread::runtime()?;
        let handle = runtime.handle().clone();
        let client = Arc::new(ZooKeeperClient::new(options, clock.into(), handle));
        let thread = SessionThread::start(runtime, Arc::clone(&client))?;
        let opened = async |state| match state {
            SessionState::Open(session) => Some(Ok(session.ttl)),
            SessionState::Opening(error) => error.map(Err),
            SessionState::Closed => Some(Err(closed())),
        };
        let ttl = client.state.wait_for(opened).await?;
        Ok(Self {
            client,
            heartbeat: ttl / HEARTBEATS_PER_TIMEOUT,
            thread: Arc::new(Mutex::new(Some(thread))),
        })
    }

    /// A store over a model of an ensemble, on the runtime of the caller, without a thread of its
    /// own. It does not wait for its first session, whose time-out must be the one that `options`
    /// ask for.
    ///
    /// # Errors
    ///
    /// `Invalid` if an option is out of range.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn simulated(
        options: ZooKeeperOptions,
        clock: impl Into<Clock>,
        servers: Arc<dyn super::simulation::Servers>,
    ) -> Result<Self, Error> {
        options.validate()?;
        let heartbeat = options.session_timeout / HEARTBEATS_PER_TIMEOUT;
        let runtime = tokio::runtime::Handle::current();
        let mut client = ZooKeeperClient::new(options, clock.into(), runtime);
        client.servers = Some(servers);
        let client = Arc::new(client);
        let thread = SessionThread::simulated(Arc::clone(&client));
        Ok(Self {
            client,
            heartbeat,
            thread: Arc::new(Mutex::new(Some(thread))),
        })
    }

    async fn remove(&self, state: &ClaimState) -> Result<bool, Error> {
        let _turn = state.turn.lock().await;
        if state.node() == NodeState::Absent {
            self.client.claims.forget(state);
            return Ok(false);
        }
        let session = self.client.session().await?;
        acquire::remove(&self.client, &session, state).await
    }
}

impl Store for ZooKeeperStore {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn capability(&self) -> Capability {
        let has_queue = self.client.options.mode == ZooKeeperMode::Queue;
        Capability {
            fencing: Fencing::Monotonic,
            wakes: true,
            ttl_per_lock: false,
            queue: if has_queue {
                Queue::Places
            } else {
                Queue::None
            },
            read_write: has_queue,
            shares: has_queue,
            revokes: self.client.options.driver == DriverKind::Client,
            heartbeat: Some(self.heartbeat),
            reports_holder: true,
            ..Capability::least()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        acquire::acquire(&self.client, claim).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let gone = || grants.iter().map(|_| Renewed::Gone).collect();
        let state = self.client.state.get();
        // Without a session there are no holds: every grant ended with the session that gave it.
        let SessionState::Open(session) = state else {
            return gone();
        };
        match session.driver.connected().await {
            Ok(()) => renewal::renew(&self.client, &session, grants).await,
            Err(_) => gone(),
        }
    }

    async fn release(&self, grant: &Grant) -> Released {
        let Some(state) = self.client.claims.of(&grant.claim) else {
            return Released::AlreadyGone;
        };
        match self.remove(&state).await {
            Ok(true) => Released::Released,
            Ok(false) => Released::AlreadyGone,
            Err(error) => Released::Unknown(error),
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        let now = self.client.clock.stamp();
        let ttl = self.client.options.session_timeout;
        match self.client.claims.withdraw(claim, &now, ttl) {
            Some(state) => self.remove(&state).await.map(drop),
            None => Ok(()),
        }
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        acquire::subscribe(&self.client, claim).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        downgrade::downgrade(&self.client, grant).await
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        if !self.capability().revokes {
            return Err(Error::unsupported(format!(
                "the driver zookeeper-async cannot revoke a lock, because it cannot keep the next holder out in one write: \
                 key={key}; use the driver zookeeper-client"
            )));
        }
        revoke::revoke(&self.client, key, how).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        let path = names::key_path(&self.client.options.chroot, key)?;
        let session = self.client.session().await?;
        lock_info::inspect(&session, &path, key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let session = self.client.session().await?;
        lock_info::list(&self.client, &session, prefix).await
    }

    async fn close(&self) -> Result<(), Error> {
        drop(self.thread.lock().take());
        let closed = async |state| matches!(state, SessionState::Closed).then_some(());
        self.client.state.wait_for(closed).await;
        Ok(())
    }
}
