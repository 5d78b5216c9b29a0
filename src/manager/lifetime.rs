//! [`Lifetime`]: whether the manager still works, for the process that asks.

use tokio_util::sync::CancellationToken;

use crate::clock::fork;
use crate::model::error::Error;

/// From the build of a manager to its shutdown, in the process that built it.
#[derive(Debug)]
pub(super) struct Lifetime {
    /// The process that built the manager.
    generation: u64,
    /// Cancelled when a shutdown begins.
    closing: CancellationToken,
}

impl Lifetime {
    pub(super) fn begin() -> Self {
        Self {
            generation: fork::generation(),
            closing: CancellationToken::new(),
        }
    }

    /// # Errors
    ///
    /// `Closed` if the manager was shut down, or if this process is a fork of the one that built
    /// it: the manager's thread stayed there.
    pub(super) fn ensure_open(&self) -> Result<(), Error> {
        if self.is_closing() {
            return Err(closed());
        }
        if fork::generation() != self.generation {
            return Err(Error::closed(
                "this process is a fork of the one that built the lock manager; build a new one here",
            ));
        }
        Ok(())
    }

    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Completes when a shutdown begins.
    pub(super) async fn closing(&self) {
        self.closing.cancelled().await;
    }
}

pub(super) fn closed() -> Error {
    Error::closed("the lock manager was shut down; build a new one")
}
