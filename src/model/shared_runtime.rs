//! [`SharedRuntime`]: the manager's runtime, for callers that have none and for work beside its
//! thread.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock::Clock;

/// A handle to the manager's runtime, which knows the calls that are polled in it from outside.
/// tokio's timers panic when their runtime has ended, so the manager's thread ends its runtime
/// after the last of these calls. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct SharedRuntime {
    handle: Handle,
    clock: Clock,
    is_driven: bool,
    calls: Arc<Calls>,
}

/// No locks: a fork may happen at any time.
#[derive(Debug, Default)]
struct Calls {
    in_progress: AtomicUsize,
    ended: Notify,
}

/// A call is in progress until this is dropped.
#[derive(Debug)]
#[must_use = "the call is in progress only while this lives"]
pub(crate) struct CallInProgress(Arc<Calls>);

impl SharedRuntime {
    /// `is_driven`: by a thread of the manager, not by its user.
    pub(crate) fn new(handle: Handle, clock: Clock, is_driven: bool) -> Self {
        Self {
            handle,
            clock,
            is_driven,
            calls: Arc::default(),
        }
    }

    /// Whether the caller needs it: it is in no tokio runtime, or in one without timers.
    pub(crate) fn is_needed(&self) -> bool {
        !self.clock.has_timers()
    }

    pub(crate) fn is_driven(&self) -> bool {
        self.is_driven
    }

    /// A call begins. It looks after this whether the manager was shut down: if it was not, its
    /// thread has not looked for calls yet.
    pub(crate) fn begin_call(&self) -> CallInProgress {
        self.calls.in_progress.fetch_add(1, Ordering::SeqCst);
        CallInProgress(Arc::clone(&self.calls))
    }

    /// Completes when no call is in progress.
    pub(crate) async fn calls_ended(&self) {
        while self.calls.in_progress.load(Ordering::SeqCst) > 0 {
            // Kept for us if it comes between the look and the wait.
            self.calls.ended.notified().await;
        }
    }
}

impl Deref for SharedRuntime {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for CallInProgress {
    fn drop(&mut self) {
        if self.0.in_progress.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.ended.notify_one();
        }
    }
}
