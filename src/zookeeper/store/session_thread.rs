//! [`SessionThread`]: the thread that keeps the session. Its connection, its driver and the
//! heartbeat have a runtime of their own, so no busy or ended runtime of a caller delays or ends
//! them. What a store leaves is invariant 7 of the [protocol](crate::zookeeper).

use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::client::ZooKeeperClient;
use super::drivers::{Ending, Fault, Missing};
use super::options::digest;
use super::queue::claim_state::closed;
use super::session::{HEARTBEATS_PER_TIMEOUT, Session};
use super::session_state::SessionState;
use super::{acquire, opening};
use crate::model::credentials::Credentials;
use crate::model::error::Error;

/// The pause after the first session that could not be opened or did not last; it doubles up to
/// [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// A session that lasted for this long is opened again at once.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long the server is given to delete our nodes and to confirm the end of a session.
const CLOSING: Duration = Duration::from_secs(2);

/// The thread as the store owns it: dropping it ends the session.
#[derive(Debug)]
pub(crate) struct SessionThread {
    /// Never sent: the thread ends when it is dropped.
    _stop: oneshot::Sender<()>,
}

/// The runtime of the thread.
pub(super) fn runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|e| {
            Error::unavailable("no runtime could be made for the zookeeper session").because(e)
        })
}

impl SessionThread {
    /// Starts the thread.
    pub(crate) fn start(runtime: Runtime, client: Arc<ZooKeeperClient>) -> Result<Self, Error> {
        let (stop, stopped) = oneshot::channel();
        // The thread gets its runtime once it is there: a runtime may not be dropped by a caller
        // inside of another one.
        let (give, taken) = mpsc::channel::<Runtime>();
        let live = move || {
            let Ok(runtime) = taken.recv() else { return };
            let left = runtime.block_on(run(&client, stopped));
            // First the connection, with its runtime: a driver that is dropped while its runtime
            // runs closes its session.
            drop(runtime);
            drop(left);
        };
        let started = std::thread::Builder::new()
            .name("leasehold-zk".to_owned())
            .spawn(live);
        if let Err(error) = started {
            runtime.shutdown_background();
            let refused = "no thread could be started for the zookeeper session";
            return Err(Error::unavailable(refused).because(error));
        }
        // It fails only if the thread has ended, which it does not without a runtime.
        let _ = give.send(runtime);
        Ok(Self { _stop: stop })
    }

    /// A task of the client's runtime instead of a thread, in a simulation.
    #[cfg(feature = "testing")]
    pub(super) fn simulated(client: Arc<ZooKeeperClient>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let runtime = client.runtime.clone();
        runtime.spawn(async move {
            let left = run(&client, stopped).await;
            // Where the thread's runtime would end.
            if let Some(servers) = &client.servers {
                servers.disconnect();
            }
            drop(left);
        });
        Self { _stop: stop }
    }
}

/// Keeps a session until the store ends. Gives a session that must not be closed.
async fn run(client: &ZooKeeperClient, mut stopped: oneshot::Receiver<()>) -> Option<Arc<Session>> {
    let mut pauses = Pauses(FIRST_PAUSE);
    let limit = client.options.session_timeout;
    let left = loop {
        let open = opening::open(client, &client.options, Ending::Closed, limit);
        let Some(opened) = unless(&mut stopped, open).await else {
            break None;
        };
        let waited = match opened {
            Ok(session) => {
                let session = Arc::new(session);
                let opened_at = client.clock.stamp();
                let ended = unless(&mut stopped, serve(client, &session)).await;
                // Published before it is closed: no request finds a session that is about to end,
                // or waits for another when the store ends, and so in its claim's turn.
                let over = ended.is_none().then(closed);
                client.state.set(SessionState::Opening(over));
                if ended.is_none() && acquire::leave(client, &session, CLOSING).await {
                    break Some(session);
                }
                let _ = client.clock.timeout(CLOSING, session.driver.close()).await;
                if ended.is_none() {
                    break None;
                }
                pauses.after(client.clock.stamp().since(&opened_at))
            }
            Err(error) => {
                tracing::warn!(target: "leasehold::zookeeper", %error, "no zookeeper session; trying again");
                client.state.set(SessionState::Opening(Some(error)));
                pauses.after(Duration::ZERO)
            }
        };
        if unless(&mut stopped, client.clock.sleep(waited))
            .await
            .is_none()
        {
            break None;
        }
    };
    // Nobody proves their sessions any more.
    client.barriers.close();
    let _ = (client.clock.timeout(limit, client.barriers.wait())).await;
    client.state.set(SessionState::Closed);
    left
}

/// The pause before the next session is opened: a server that closes each of them is not flooded.
struct Pauses(Duration);

impl Pauses {
    /// After a session that lasted for so long.
    fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= LONGEST_PAUSE {
            self.0 = FIRST_PAUSE;
            return Duration::ZERO;
        }
        let longer = (self.0 * 2).min(LONGEST_PAUSE);
        std::mem::replace(&mut self.0, longer)
    }
}

/// Runs `work`; `None` if `stop` came first.
async fn unless<T>(stop: &mut (impl Future + Unpin), work: impl Future<Output = T>) -> Option<T> {
    match select(stop, std::pin::pin!(work)).await {
        Either::Left(_) => None,
        Either::Right((done, _)) => Some(done),
    }
}

/// Offers a session once its leases last, until it is over.
async fn serve(client: &ZooKeeperClient, session: &Arc<Session>) {
    let ended = session.driver.ended();
    let caught_up = std::pin::pin!(catch_up(client, session));
    if matches!(select(ended, caught_up).await, Either::Left(_)) {
        return;
    }
    client.state.set(SessionState::Open(Arc::clone(session)));
    live(client, session).await;
}

async fn catch_up(client: &ZooKeeperClient, session: &Session) {
    while let Err(error) = session.catch_up(client.options.tick_time).await {
        tracing::warn!(target: "leasehold::zookeeper", ?error, "a new zookeeper session could not be proven; trying again");
        client.clock.sleep(FIRST_PAUSE).await;
    }
}

/// Serves a session until it is over.
async fn live(client: &ZooKeeperClient, session: &Session) {
    let sweeps = async {
        loop {
            client
                .clock
                .sleep(session.ttl / HEARTBEATS_PER_TIMEOUT)
                .await;
            acquire::sweep(client, session).await;
        }
    };
    let beats = std::pin::pin!(beat_until_expired(client, session));
    let over = select(session.driver.ended(), beats);
    // Both have timers of their own: in a busy process no heartbeat is ever due.
    let others = std::pin::pin!(async { tokio::join!(sweeps, log_in_again(client, session)) });
    select(others, over).await;
    tracing::warn!(target: "leasehold::zookeeper", ?session, "the zookeeper session is over; opening a new one");
}

/// Adds the credentials of now whenever the server has refused those of the session: the nodes may
/// admit only new ones, and a new session would cost every hold.
async fn log_in_again(client: &ZooKeeperClient, session: &Session) {
    let mut last = None;
    loop {
        session.driver.refused().await;
        if let Err(error) = add_login(client, session, &mut last).await {
            tracing::warn!(target: "leasehold::zookeeper", %error, "a zookeeper session could not log in again; trying again");
        }
        (client.clock.sleep(session.ttl / HEARTBEATS_PER_TIMEOUT)).await;
    }
}

/// A connection that is made again sends all that were added, so `last` is not added twice.
async fn add_login(
    client: &ZooKeeperClient,
    session: &Session,
    last: &mut Option<Credentials>,
) -> Result<(), Error> {
    let now = (client.options.login.now((&client.clock, session.ttl))).await?;
    let now = client.options.with_login(Some(now))?.credentials;
    let Some(now) = now.filter(|now| last.as_ref() != Some(now)) else {
        return Ok(());
    };
    let added = session.driver.log_in(&digest(&now)).await;
    added.map_err(|fault| fault.into_error("log in again"))?;
    *last = Some(now);
    Ok(())
}

/// Proves the session whenever that is due.
async fn beat_until_expired(client: &ZooKeeperClient, session: &Session) {
    loop {
        client.clock.sleep(session.until_due()).await;
        if !session.until_due().is_zero() {
            continue;
        }
        match session.beat(&[]).await {
            Ok(_) => {}
            Err(Missing::Fault(Fault::Expired)) => return,
            Err(error) => {
                tracing::warn!(target: "leasehold::zookeeper", ?error, "a zookeeper heartbeat failed; trying again");
                client.clock.sleep(FIRST_PAUSE).await;
            }
        }
    }
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests {
    use super::super::options::ZooKeeperOptions;
    use super::super::scripted::{Access, Scripted, pass};
    use super::super::zookeeper_store::ZooKeeperStore;
    use crate::clock::{Clock, ManualClock};

    use super::*;

    /// When sessions were opened within a while, as spans since the first, where each lasts for so
    /// long.
    async fn opened(lasts: Duration, within: Duration) -> Vec<Duration> {
        let manual = ManualClock::new();
        let clock = Clock::from(manual.clone());
        let mut servers = Scripted::new(&clock);
        servers.lasts = Some(lasts);
        let servers = Arc::new(servers);
        let options = ZooKeeperOptions::parse("zookeeper://model").unwrap();
        let access = Arc::new(Access(Arc::clone(&servers)));
        let store = ZooKeeperStore::simulated(options, manual.clone(), access).unwrap();
        pass(&manual, within).await;
        drop(store);
        let opened = servers.opened.lock();
        opened.iter().map(|at| at.since(&opened[0])).collect()
    }

    #[tokio::test]
    async fn sessions_that_end_at_once_are_opened_a_few_times() {
        let opened = opened(Duration::ZERO, Duration::from_secs(3)).await;
        assert!((3..=20).contains(&opened.len()), "{}", opened.len());
    }

    #[tokio::test]
    async fn a_session_that_lasted_is_opened_again_at_once() {
        let lasts = LONGEST_PAUSE + Duration::from_secs(1);
        let opened = opened(lasts, 3 * lasts).await;
        assert_eq!(opened, [0, 1, 2].map(|times| lasts * times));
    }
}
