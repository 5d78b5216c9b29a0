//! [`BarrierSession`]: the session that owns a revocation barrier, and that nobody keeps: the
//! server ends it. How long that takes is under "Revocation" in the [protocol](crate::zookeeper).

use std::sync::Arc;
use std::time::Duration;

use super::client::ZooKeeperClient;
use super::drivers::{Change, Ending, Fault, Missing, Refused};
use super::opening;
use super::options::ZooKeeperOptions;
use super::session::Session;
use crate::clock::Clock;
use crate::model::error::Error;

/// How much longer than the lease the session is asked for, in ticks. Where the holder's tick is
/// much shorter than ours, it is more: our own sessions have some ticks at least.
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
        let making = async move {
            match Self::open(&owner, length).await {
                Ok(barrier) => {
                    if let Err(error) = barrier.refresh(owner.options.session_timeout).await {
                        let _ = answer.send(Err(Refused::NotSent(error)));
                        return;
                    }
                    let changed = barrier.session.driver.change(&changes).await;
                    // Without an answer it may have been made.
                    let may_be_made = matches!(changed, Ok(()) | Err(Refused::Whole(_)));
                    let _ = answer.send(changed);
                    if may_be_made {
                        barrier.cover().await;
                    }
                }
                Err(error) => {
                    let _ = answer.send(Err(Refused::NotSent(error)));
                }
            }
        };
        client.barriers.spawn_on(making, &client.runtime);
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

    /// Proves the session, if it is older than the slack: where its opening was slow, or its
    /// process was stopped, a barrier that is made now would be almost over, and go before it is
    /// proven again.
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

    /// Proves the session until the server's count covers the lease from now on. A connection that
    /// breaks meanwhile is made again, and that proves the session too.
    async fn cover(&self) {
        let made_at = self.clock.stamp();
        while !self.covers(&made_at) {
            self.clock.sleep(self.tick / 2).await;
            let Err(error) = self.session.beat(&[]).await else {
                continue;
            };
            let is_over = self.clock.stamp().since(&made_at) > self.length;
            if is_over || matches!(error, Missing::Fault(Fault::Expired)) {
                tracing::warn!(
                    target: "leasehold::zookeeper", ?error,
                    "the session of a revocation barrier could not be proven again; the barrier may have ended early"
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

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests {
    use super::super::scripted::{Access, Scripted};
    use super::super::zookeeper_store::ZooKeeperStore;
    use super::*;
    use crate::clock::{ManualClock, Stamp};
    use crate::store::Store;

    const LEASE: Duration = Duration::from_secs(10);
    const TICK: Duration = Duration::from_secs(2);
    const LATE: Duration = Duration::from_secs(5);

    /// What became of a barrier that was made late.
    struct Came {
        made: Result<(), Refused>,
        /// When its session was proven after that.
        proven: Vec<Stamp>,
        took: Duration,
    }

    impl Came {
        /// Whether the server's count was moved: by a heartbeat that another one followed a tick
        /// later.
        fn is_covered(&self) -> bool {
            let ends = self.proven.first().zip(self.proven.last());
            ends.is_some_and(|(first, last)| last.since(first) >= TICK)
        }
    }

    /// A barrier that is made later than its slack allows, by a store that is closed right after.
    async fn made_late(script: impl FnOnce(&mut Scripted)) -> Came {
        let manual = ManualClock::new();
        let clock = Clock::from(manual.clone());
        let mut servers = Scripted::new(&clock);
        servers.change_takes = LATE;
        script(&mut servers);
        let servers = Arc::new(servers);
        let options = ZooKeeperOptions::parse("zookeeper://model/locks").unwrap();
        assert_eq!(options.tick_time, TICK);
        let access = Arc::new(Access(Arc::clone(&servers)));
        let store = ZooKeeperStore::simulated(options, manual.clone(), access).unwrap();
        let begun_at = clock.stamp();
        let client = Arc::clone(&store.client);
        let making = tokio::spawn(async move {
            let changes = vec![Change::Delete {
                path: "/locks/k/holder".to_owned(),
            }];
            let made = BarrierSession::make_barrier(&client, LEASE, changes).await;
            store.close().await.unwrap();
            made
        });
        while !making.is_finished() {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            manual.advance(manual.until_next().unwrap_or_default());
        }
        let proven = servers.proven.lock().clone();
        Came {
            made: making.await.unwrap(),
            proven,
            took: clock.stamp().since(&begun_at),
        }
    }

    fn no_answer() -> Fault {
        Fault::InDoubt("the connection broke".into())
    }

    #[tokio::test]
    async fn a_late_barrier_is_covered_before_its_store_is_closed() {
        let came = made_late(|_| {}).await;
        assert!(came.made.is_ok());
        assert!(came.is_covered(), "{:?}", came.proven);
    }

    #[tokio::test]
    async fn a_late_barrier_is_covered_although_heartbeats_fail() {
        let came = made_late(|servers| {
            let failures = [no_answer(), no_answer()].map(Missing::Fault);
            servers.beats.get_mut().extend(failures);
        });
        let came = came.await;
        assert!(came.made.is_ok());
        assert!(came.is_covered(), "{:?}", came.proven);
    }

    #[tokio::test]
    async fn a_late_barrier_that_may_have_been_made_is_covered() {
        let came = made_late(|servers| servers.change = || Err(Refused::Whole(no_answer()))).await;
        assert!(matches!(came.made, Err(Refused::Whole(Fault::InDoubt(_)))));
        assert!(came.is_covered(), "{:?}", came.proven);
    }

    #[tokio::test]
    async fn a_barrier_that_was_refused_or_whose_session_is_over_is_not_proven_again() {
        let refused = made_late(|servers| {
            servers.change = || Err(Refused::At(0, Fault::NoNode));
        });
        let over = made_late(|servers| {
            let expired = Missing::Fault(Fault::Expired);
            servers.beats.get_mut().push_back(expired);
        });
        for came in [refused.await, over.await] {
            assert_eq!(came.proven, []);
        }
    }

    /// Nobody else would close the store: its servers never answer again.
    #[tokio::test]
    async fn a_barrier_is_not_proven_for_longer_than_its_lease() {
        let came = made_late(|servers| {
            let failures = (0..1_000).map(|_| Missing::Fault(no_answer()));
            servers.beats.get_mut().extend(failures);
        });
        let came = came.await;
        assert!(came.took <= LATE + LEASE + 2 * TICK, "{:?}", came.took);
    }
}
