//! The keeper: the thread on which the session lives.
//!
//! The connection, its driver and the heartbeat have a thread and a runtime of their own, so that no busy worker, blocking
//! closure or ended runtime of a caller can delay a heartbeat or take the session of all locks along. Callers' requests go
//! to the connection from wherever they are.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::{oneshot, watch};

use super::acquire;
use super::bars::{self, Bars};
#[cfg(feature = "zookeeper-async")]
use super::boxed::BoxedDriver;
use super::client::ClientDriver;
use super::driver::{Driver, Fault, Missing};
use super::options::{DriverKind, ZooKeeperOptions};
use super::place::Places;
use super::session::Session;
use crate::clock::Clock;
use crate::model::error::Error;

/// The pause after the first failure to open a session; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long the server is given to confirm the end of a session.
const CLOSING: Duration = Duration::from_secs(2);

/// What the keeper and the store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: ZooKeeperOptions,
    pub(crate) clock: Clock,
    pub(crate) places: Places,
    pub(crate) bars: Bars,
    pub(crate) state: watch::Sender<State>,
}

/// Whether there is a session.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// None yet, or none any more; why the last try failed.
    Opening(Option<Error>),
    /// There is one.
    Open(Arc<Session>),
    /// There will be none any more.
    Closed,
}

/// The keeper's thread as the store holds it: dropping it ends the session.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// Never sent: the thread ends when it is dropped.
    _stop: oneshot::Sender<()>,
}

impl Keeper {
    /// Starts the thread.
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|e| {
                Error::unavailable("no runtime could be made for the zookeeper session").because(e)
            })?;
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new()
            .name("leasehold-zk".to_owned())
            .spawn(move || runtime.block_on(keep(&shared, stopped)))
            .map_err(|e| {
                Error::unavailable("no thread could be started for the zookeeper session")
                    .because(e)
            })?;
        Ok(Self { _stop: stop })
    }
}

async fn keep(shared: &Shared, mut stopped: oneshot::Receiver<()>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(opened) = unless(&mut stopped, open(shared)).await else {
            break;
        };
        let waited = match opened {
            Ok(session) => {
                pause = FIRST_PAUSE;
                let session = Arc::new(session);
                shared.state.send_replace(State::Open(Arc::clone(&session)));
                let ended = unless(&mut stopped, live(shared, &session)).await;
                // First told, then closed: no request finds a session that is about to end.
                shared.state.send_replace(State::Opening(None));
                let _ = shared.clock.timeout(CLOSING, session.driver.close()).await;
                if ended.is_none() {
                    break;
                }
                Duration::ZERO
            }
            Err(error) => {
                tracing::warn!(%error, "no zookeeper session; trying again");
                shared.state.send_replace(State::Opening(Some(error)));
                let longer = (pause * 2).min(LONGEST_PAUSE);
                std::mem::replace(&mut pause, longer)
            }
        };
        if unless(&mut stopped, shared.clock.sleep(waited))
            .await
            .is_none()
        {
            break;
        }
    }
    shared.state.send_replace(State::Closed);
}

/// Runs `work`; `None` if `stop` came first.
async fn unless<T>(stop: &mut (impl Future + Unpin), work: impl Future<Output = T>) -> Option<T> {
    match select(stop, std::pin::pin!(work)).await {
        Either::Left(_) => None,
        Either::Right((done, _)) => Some(done),
    }
}

async fn open(shared: &Shared) -> Result<Session, Error> {
    let asked_at = shared.clock.stamp();
    let limit = shared.options.session_timeout;
    let opening = async {
        let driver = connect(shared).await?;
        Session::open(driver, &shared.options, &shared.clock, asked_at).await
    };
    (shared.clock.timeout(limit, opening).await).unwrap_or_else(|| {
        Err(Error::unavailable(format!(
            "no zookeeper session within {limit:?}: servers={}; check the servers and the network",
            addresses(&shared.options)
        )))
    })
}

async fn connect(shared: &Shared) -> Result<Box<dyn Driver>, Error> {
    match shared.options.driver {
        DriverKind::Client => {
            let driver = ClientDriver::connect(&shared.options).await;
            Ok(Box::new(
                driver.map_err(|fault| unreachable(fault, &shared.options))?,
            ))
        }
        #[cfg(feature = "zookeeper-async")]
        DriverKind::Async => {
            let driver = BoxedDriver::connect(&shared.options, &shared.clock).await;
            Ok(Box::new(
                driver.map_err(|fault| unreachable(fault, &shared.options))?,
            ))
        }
    }
}

/// Proves the session whenever that is due, until it is over; and deletes the bars whose time is over.
async fn live(shared: &Shared, session: &Session) {
    let beats = async {
        loop {
            let bar = shared.bars.next(&shared.clock.stamp());
            let pause = session.until_due().min(bar.unwrap_or(Duration::MAX));
            let slept = unless(&mut pin!(shared.bars.more()), shared.clock.sleep(pause)).await;
            bars::sweep(shared, session).await;
            if slept.is_none() || !session.until_due().is_zero() {
                continue;
            }
            match session.beat(&[]).await {
                Ok(()) => acquire::sweep(shared, session).await,
                Err(Missing::Fault(Fault::Expired)) => return,
                Err(error) => {
                    tracing::warn!(?error, "a zookeeper heartbeat failed; trying again");
                    shared.clock.sleep(FIRST_PAUSE).await;
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
