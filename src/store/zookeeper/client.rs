//! [`ZooKeeperClient`]: what the store and the thread of its session share.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::options::ZooKeeperOptions;
use super::queue::claim_state::Claims;
use super::session::Session;
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
    pub(crate) state: watch::Sender<SessionState>,
}

/// Whether there is a session.
#[derive(Clone, Debug)]
pub(crate) enum SessionState {
    /// Not now; why the last try failed.
    Opening(Option<Error>),
    /// There is one.
    Open(Arc<Session>),
    /// There will be none any more.
    Closed,
}

impl ZooKeeperClient {
    pub(crate) fn new(options: ZooKeeperOptions, clock: Clock, runtime: Handle) -> Self {
        Self {
            options,
            clock,
            claims: Claims::default(),
            runtime,
            state: watch::Sender::new(SessionState::Opening(None)),
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
        let mut state = self.state.subscribe();
        loop {
            let seen = state.borrow_and_update().clone();
            match seen {
                SessionState::Open(session) => {
                    if session.driver.connected().await.is_ok() {
                        return Ok(session);
                    }
                }
                SessionState::Opening(Some(error)) if error.kind() != ErrorKind::Unavailable => {
                    return Err(error);
                }
                SessionState::Opening(_) => {}
                SessionState::Closed => return Err(closed()),
            }
            // The sender is in `self`, so this completes only with a change.
            let _ = state.changed().await;
        }
    }
}

pub(super) fn closed() -> Error {
    Error::closed("the zookeeper store was closed; connect again")
}
