//! [`Reconnecting`]: one connection, which is made again when it is dead.

use std::sync::Arc;

use parking_lot::Mutex;

use super::connecting::{Connecting, Found};
use crate::model::error::Error;

/// What is there while a connection lives. A clone is of the same connection.
pub(crate) trait Live: Clone + Send + 'static {
    fn is_dead(&self) -> bool;

    /// Whether the connection served a caller. If so, the next one is made at once.
    fn was_useful(&self) -> bool;
}

/// One connection of one runtime, for one purpose. Made on first use.
#[derive(Debug)]
pub(crate) struct Reconnecting<L> {
    connecting: Connecting,
    slot: Arc<Mutex<Slot<L>>>,
}

#[derive(Debug)]
struct Slot<L> {
    live: Option<L>,
    /// The last connection was useful, and no attempt has begun since it was found dead.
    was_useful: bool,
}

impl<L: Live> Slot<L> {
    fn present(&mut self) -> Option<L> {
        if let Some(dead) = self.live.take_if(|live| live.is_dead()) {
            self.was_useful = dead.was_useful();
        }
        self.live.clone()
    }

    fn look(&mut self) -> Found {
        match self.present() {
            Some(_) => Found::Present,
            None => Found::Nothing {
                was_useful: std::mem::take(&mut self.was_useful),
            },
        }
    }
}

impl<L: Live> Reconnecting<L> {
    pub(crate) fn new(connecting: Connecting) -> Self {
        let slot = Slot {
            live: None,
            was_useful: false,
        };
        Self {
            connecting,
            slot: Arc::new(Mutex::new(slot)),
        }
    }

    /// Whether the last connection is dead; `None` if there was none, or its end was noticed.
    pub(crate) fn is_dead(&self) -> Option<bool> {
        self.slot.lock().live.as_ref().map(L::is_dead)
    }

    /// Whether there is a connection, or one is being made, that its runtime still drives.
    pub(crate) fn is_live(&self) -> bool {
        self.connecting.is_under_way() || self.is_dead() == Some(false)
    }

    /// The connection, if there is one now.
    pub(crate) fn present(&self) -> Option<L> {
        self.slot.lock().present()
    }

    /// Why the last connection was of no use, for callers that have to wait for the next one.
    #[cfg(feature = "redis")]
    pub(crate) fn blame(&self, error: Error) {
        self.connecting.blame(error);
    }

    /// The connection; a new one if there is none or it is dead. `ended`: the error of one that
    /// ends as soon as it is made.
    ///
    /// # Errors
    ///
    /// Those of [`Connecting::wait`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the attempt continues for all callers that wait, and for the next ones.
    pub(crate) async fn ready<F>(
        &self,
        connect: impl FnOnce() -> F,
        ended: impl FnOnce() -> Error,
    ) -> Result<L, Error>
    where
        F: Future<Output = Result<L, Error>> + Send + 'static,
    {
        if let Some(live) = self.present() {
            return Ok(live);
        }
        let attempt = || {
            let (slot, connected) = (Arc::clone(&self.slot), connect());
            async move {
                let live = connected.await?;
                slot.lock().live = Some(live);
                Ok(())
            }
        };
        let look = || self.slot.lock().look();
        self.connecting.wait(look, attempt).await?;
        self.present().ok_or_else(ended)
    }
}
