//! [`BarrierSession`]: the session that owns a revocation barrier.
//!
//! A barrier is an ephemeral node of a session of its own, which nobody keeps: its connection ends when the barrier is made,
//! and the server deletes the barrier when the session's time-out has passed. So a barrier ends by the server's count, whether
//! or not a process of ours is alive, and clients of other libraries that wait behind it get in as well.
//!
//! The time-out is the longest lease of the holders that were deleted, and [`SLACK_TICKS`]. The server counts from the session's
//! last contact that its leader knows of, at the earliest from its creation. A session that is older than the slack is proven
//! before it is used. Where the barrier was made later than the slack allows, and where the server's `maxSessionTimeout` cuts the slack off, the session is proven again until the count covers the
//! lease from the moment at which the holders' nodes went.

use std::sync::Arc;
use std::time::Duration;

use super::client::ZooKeeperClient;
use super::drivers::{Change, Ending, Fault, Refused};
use super::opening;
use super::options::ZooKeeperOptions;
use super::session::Session;
use crate::clock::Clock;
use crate::model::error::Error;

/// How much longer than the lease the session is asked for, in ticks. Where the holder's tick is much shorter than ours, it is more:
/// our own sessions have some ticks at least.
const SLACK_TICKS: u32 = 2;

/// A session that outlives its connection.
#[derive(Debug)]
pub(super) struct BarrierSession {
    session: Session,
    clock: Clock,
    tick: Duration,
    /// For how long the barrier must keep the others out.
    length: Duration,
}

impl BarrierSession {
    /// Makes a barrier and deletes the holders' nodes, in one write.
    pub(super) async fn make_barrier(
        client: &Arc<ZooKeeperClient>,
        length: Duration,
        changes: Vec<Change>,
    ) -> Result<(), Refused> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let owner = Arc::clone(client);
        // On the thread of our own session, so that a caller that goes away ends nothing half-way.
        client.runtime.spawn(async move {
            match Self::open(&owner, length).await {
                Ok(barrier) => {
                    if let Err(error) = barrier.refresh(owner.options.session_timeout).await {
                        let _ = answer.send(Err(Refused::NotSent(error)));
                        return;
                    }
                    let changed = barrier.session.driver.change(&changes).await;
                    let is_made = changed.is_ok();
                    let _ = answer.send(changed);
                    if is_made {
                        barrier.cover().await;
                    }
                }
                Err(error) => {
                    let _ = answer.send(Err(Refused::NotSent(error)));
                }
            }
        });
        answered.await.unwrap_or(Err(Refused::Whole(Fault::InDoubt(
            "the store was closed meanwhile".into(),
        ))))
    }

    async fn open(client: &ZooKeeperClient, length: Duration) -> Result<Self, Error> {
        let mut options = client.options.clone();
        let least = options.tick_time * ZooKeeperOptions::MIN_TICKS;
        options.session_timeout = (length + options.tick_time * SLACK_TICKS).max(least);
        let limit = client.options.session_timeout;
        let session = opening::open(client, &options, Ending::LeftToTimeOut, limit).await?;
        if session.ttl < length {
            return Err(Error::unsupported(format!(
                "a lease of the holder runs for up to {length:?}, and the servers grant sessions of {:?} only, which cannot keep \
                 the others out for so long; raise maxSessionTimeout, or revoke at once without waiting for the lease",
                session.ttl
            )));
        }
        Ok(Self {
            session,
            clock: client.clock.clone(),
            tick: options.tick_time,
            length,
        })
    }

    /// Proves the session, if it is older than the slack: where its opening was slow, or its process was stopped, a barrier that
    /// is made now would be almost over, and go before it is proven again.
    async fn refresh(&self, limit: Duration) -> Result<(), Error> {
        let is_old = || {
            let age = self.clock.stamp().since(&self.session.base());
            age > self.tick * SLACK_TICKS
        };
        let proving = async {
            while is_old() {
                if let Err(error) = self.session.beat(&[]).await {
                    return Some(error);
                }
                self.clock.sleep(self.tick / 2).await;
            }
            None
        };
        let why = match self.clock.timeout(limit, proving).await {
            Some(None) => return Ok(()),
            Some(Some(error)) => format!("{error:?}"),
            None => format!("no proof within {limit:?}"),
        };
        Err(Error::unavailable(format!(
            "the session of a revocation barrier could not be proven before its use; nothing was changed, try again: {why}"
        )))
    }

    /// Proves the session until the server's count covers the lease from now on.
    async fn cover(&self) {
        let made_at = self.clock.stamp();
        while !self.covers(&made_at) {
            self.clock.sleep(self.tick / 2).await;
            if let Err(error) = self.session.beat(&[]).await {
                tracing::warn!(
                    target: "leasehold::zookeeper", ?error,
                    "the session of a revocation barrier could not be proven again; the barrier may end early"
                );
                return;
            }
        }
    }

    fn covers(&self, made_at: &crate::clock::Stamp) -> bool {
        let late = made_at.since(&self.session.base());
        late + self.length <= self.session.ttl
    }
}
