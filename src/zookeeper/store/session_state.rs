//! [`StateCell`]: whether there is a session, and the callers that wait for a change of that.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::session::Session;
use crate::model::error::Error;

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

/// The state, for many callers. Those that wait are woken in the order in which they came.
#[derive(Debug)]
pub(crate) struct StateCell {
    state: Mutex<SessionState>,
    changed: Notify,
}

impl StateCell {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(SessionState::Opening(None)),
            changed: Notify::new(),
        }
    }

    pub(super) fn get(&self) -> SessionState {
        self.state.lock().clone()
    }

    pub(super) fn set(&self, state: SessionState) {
        let before = std::mem::replace(&mut *self.state.lock(), state);
        // Not under the lock: it may be the last reference to a session.
        drop(before);
        self.changed.notify_waiters();
    }

    /// Asks about this state, and about each later one until there is an answer.
    pub(super) async fn wait_for<T>(&self, ask: impl AsyncFn(SessionState) -> Option<T>) -> T {
        loop {
            // From here on no change is missed.
            let changed = self.changed.notified();
            if let Some(answer) = ask(self.get()).await {
                return answer;
            }
            changed.await;
        }
    }
}
