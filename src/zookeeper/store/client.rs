//! [`ZooKeeperClient`]: what the store and the thread of its session share.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::options::ZooKeeperOptions;
use super::queue::claim_state::{Claims, closed};
use super::session::Session;
use super::session_state::{SessionState, StateCell};
use crate::clock::Clock;
use crate::model::error::{Error, ErrorKind};

/// One client of an ensemble: its claims, and the session that holds their nodes.
#[derive(Debug)]
pub(crate) struct ZooKeeperClient {
    pub(crate) options: ZooKeeperOptions,
    pub(crate) clock: Clock,
    pub(crate) claims: Claims,
    /// That of the session's thread.
    pub(crate) runtime: Handle,
    pub(crate) state: StateCell,
    /// Those that are made, and covered, now.
    pub(super) barriers: TaskTracker,
    /// A model of an ensemble, in a simulation.
    #[cfg(feature = "testing")]
    pub(super) servers: Option<Arc<dyn super::simulation::Servers>>,
}

impl ZooKeeperClient {
    pub(crate) fn new(options: ZooKeeperOptions, clock: Clock, runtime: Handle) -> Self {
        Self {
            options,
            clock,
            claims: Claims::default(),
            runtime,
            state: StateCell::new(),
            barriers: TaskTracker::new(),
            #[cfg(feature = "testing")]
            servers: None,
        }
    }

    /// The session, once requests can leave: no request waits in a connection that does not exist.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, Error> {
        let limit = self.options.session_timeout;
        (self.clock.timeout(limit, self.wait_for_session()).await).unwrap_or_else(|| {
            Err(Error::unavailable(format!(
                "no connection to zookeeper within {limit:?}; nothing was sent, try again"
            )))
        })
    }

    async fn wait_for_session(&self) -> Result<Arc<Session>, Error> {
        let connected = async |state| match state {
            SessionState::Open(session) => {
                let is_connected = session.driver.connected().await.is_ok();
                is_connected.then_some(Ok(session))
            }
            SessionState::Opening(Some(error)) if error.kind() != ErrorKind::Unavailable => {
                Some(Err(error))
            }
            SessionState::Opening(_) => None,
            SessionState::Closed => Some(Err(closed())),
        };
        self.state.wait_for(connected).await
    }
}
