//! [`Place`]: a caller in a local queue, and its part of `max_waiters`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;

use crate::model::error::Error;

/// A place in a local queue, in which its caller is called with a `C`.
#[derive(Debug)]
pub(super) struct Place<C> {
    called: oneshot::Receiver<C>,
    counted: Option<Counted>,
}

impl<C> Place<C> {
    pub(super) fn new(called: oneshot::Receiver<C>, counted: Option<Counted>) -> Self {
        Self { called, counted }
    }

    /// Completes when it is this caller's turn; `None` if the manager was shut down.
    pub(super) async fn called(&mut self) -> Option<C> {
        (&mut self.called).await.ok()
    }

    /// Leaves the queue. Gives what the caller was called with and did not take.
    pub(super) fn leave(&mut self) -> Option<C> {
        self.called.close();
        self.called.try_recv().ok()
    }

    /// The caller waits on, elsewhere.
    pub(super) fn take_counted(&mut self) -> Option<Counted> {
        self.counted.take()
    }
}

/// One of the `max_waiters` callers that may wait, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub(super) fn new(waiting: &Arc<AtomicUsize>, max_waiters: usize) -> Result<Self, Error> {
        let counted = Self(Arc::clone(waiting));
        if waiting.fetch_add(1, Ordering::Relaxed) < max_waiters {
            return Ok(counted);
        }
        Err(Error::contended(format!(
            "too many callers wait for locks of this manager: max_waiters={max_waiters}; try later, or raise max_waiters"
        )))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
