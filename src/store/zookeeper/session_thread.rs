//! [`SessionThread`]: the thread that keeps the session.
//!
//! The connection, its driver and the heartbeat have a thread and a runtime of their own. Therefore no busy worker, blocking
//! closure or ended runtime of a caller can delay a heartbeat or end the session of all locks. Callers send their requests to
//! the connection from their own threads.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use super::client::{SessionState, ZooKeeperClient};
#[cfg(feature = "zookeeper-async")]
use super::drivers::ZooKeeperAsyncDriver;
use super::drivers::{ClientDriver, Driver, Fault, Missing};
use super::options::{DriverKind, ZooKeeperOptions};
use super::session::Session;
use super::{acquire, barriers};
use crate::model::error::Error;

/// The pause after the first failure to open a session; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long the server is given to confirm the end of a session.
const CLOSING: Duration = Duration::from_secs(2);

/// The thread as the store owns it: dropping it ends the session.
#[derive(Debug)]
pub(crate) struct SessionThread {
    /// Never sent: the thread ends when it is dropped.
    _stop: oneshot::Sender<()>,
}

impl SessionThread {
    /// Starts the thread.
    pub(crate) fn start(client: Arc<ZooKeeperClient>) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|e| {
                Error::unavailable("no runtime could be made for the zookeeper session").because(e)
            })?;
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new()
            .name("leasehold-zk".to_owned())
            .spawn(move || runtime.block_on(run(&client, stopped)))
            .map_err(|e| {
                Error::unavailable("no thread could be started for the zookeeper session")
                    .because(e)
            })?;
        Ok(Self { _stop: stop })
    }
}

async fn run(client: &ZooKeeperClient, mut stopped: oneshot::Receiver<()>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(opened) = unless(&mut stopped, open(client)).await else {
            break;
        };
        let waited = match opened {
            Ok(session) => {
                pause = FIRST_PAUSE;
                let session = Arc::new(session);
                client
                    .state
                    .send_replace(SessionState::Open(Arc::clone(&session)));
                let ended = unless(&mut stopped, live(client, &session)).await;
                // Published before it is closed: no request finds a session that is about to end.
                client.state.send_replace(SessionState::Opening(None));
                let _ = client.clock.timeout(CLOSING, session.driver.close()).await;
                if ended.is_none() {
                    break;
                }
                Duration::ZERO
            }
            Err(error) => {
                tracing::warn!(%error, "no zookeeper session; trying again");
                client
                    .state
                    .send_replace(SessionState::Opening(Some(error)));
                let longer = (pause * 2).min(LONGEST_PAUSE);
                std::mem::replace(&mut pause, longer)
            }
        };
        if unless(&mut stopped, client.clock.sleep(waited))
            .await
            .is_none()
        {
            break;
        }
    }
    client.state.send_replace(SessionState::Closed);
}

/// Runs `work`; `None` if `stop` came first.
async fn unless<T>(stop: &mut (impl Future + Unpin), work: impl Future<Output = T>) -> Option<T> {
    match select(stop, std::pin::pin!(work)).await {
        Either::Left(_) => None,
        Either::Right((done, _)) => Some(done),
    }
}

async fn open(client: &ZooKeeperClient) -> Result<Session, Error> {
    let asked_at = client.clock.stamp();
    let limit = client.options.session_timeout;
    let opening = async {
        let driver = connect(client).await?;
        Session::open(driver, &client.options, &client.clock, asked_at).await
    };
    (client.clock.timeout(limit, opening).await).unwrap_or_else(|| {
        Err(Error::unavailable(format!(
            "no zookeeper session within {limit:?}: servers={}; check the servers and the network",
            addresses(&client.options)
        )))
    })
}

async fn connect(client: &ZooKeeperClient) -> Result<Box<dyn Driver>, Error> {
    match client.options.driver {
        DriverKind::Client => {
            let driver = ClientDriver::connect(&client.options).await;
            Ok(Box::new(
                driver.map_err(|fault| unreachable(fault, &client.options))?,
            ))
        }
        #[cfg(feature = "zookeeper-async")]
        DriverKind::Async => {
            let driver = ZooKeeperAsyncDriver::connect(&client.options, &client.clock).await;
            Ok(Box::new(
                driver.map_err(|fault| unreachable(fault, &client.options))?,
            ))
        }
    }
}

/// Proves the session whenever that is due, until it is over; deletes the barriers whose time is over.
async fn live(client: &ZooKeeperClient, session: &Session) {
    let beats = async {
        loop {
            let barrier = client.barriers.next(&client.clock.stamp());
            let pause = session.until_due().min(barrier.unwrap_or(Duration::MAX));
            let slept = unless(&mut pin!(client.barriers.more()), client.clock.sleep(pause)).await;
            barriers::sweep(client, session).await;
            if slept.is_none() || !session.until_due().is_zero() {
                continue;
            }
            match session.beat(&[]).await {
                Ok(()) => acquire::sweep(client, session).await,
                Err(Missing::Fault(Fault::Expired)) => return,
                Err(error) => {
                    tracing::warn!(?error, "a zookeeper heartbeat failed; trying again");
                    client.clock.sleep(FIRST_PAUSE).await;
                }
            }
        }
    };
    unless(&mut session.driver.ended(), beats).await;
    tracing::warn!(?session, "the zookeeper session is over; opening a new one");
}

/// Without what may be credentials in the wrong place.
fn addresses(options: &ZooKeeperOptions) -> &str {
    options.servers.rsplit('@').next().unwrap_or_default()
}

fn unreachable(fault: Fault, options: &ZooKeeperOptions) -> Error {
    match fault {
        Fault::InDoubt(source) | Fault::Refused(source) => Error::unavailable(format!(
            "no zookeeper server could be reached: servers={}; check the servers and the network",
            addresses(options)
        ))
        .because(source),
        other => other.into_error("open a session"),
    }
}
