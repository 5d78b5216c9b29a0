//! [`OfTask`]: a task-local value that other tasks do not see.
//!
//! Blocking work may drive a runtime of its own. The tasks of that runtime are polled on the same
//! thread, where tokio shows them the task-local values of the work.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;

use tokio::task::futures::TaskLocalFuture;
use tokio::task::{Id, LocalKey, try_id};

/// A value of one task, or of one thread outside of tokio's tasks.
pub(crate) struct OfTask<T> {
    value: T,
    task: Cell<Option<Id>>,
}

impl<T: Clone + 'static> OfTask<T> {
    fn new(value: T) -> Self {
        let task = Cell::new(try_id());
        Self { value, task }
    }

    /// The value of the current task; `None` if it has none, also where another task on this thread
    /// has one.
    pub(crate) fn of(key: &'static LocalKey<Self>) -> Option<T> {
        let own = |this: &Self| (this.task.get() == try_id()).then(|| this.value.clone());
        key.try_with(own).ok().flatten()
    }

    /// Calls `work`, which has the value.
    pub(crate) fn sync_scope<R>(
        key: &'static LocalKey<Self>,
        value: T,
        work: impl FnOnce() -> R,
    ) -> R {
        key.sync_scope(Self::new(value), work)
    }

    /// Awaits `work`, which has the value, also while it is dropped.
    pub(crate) fn scope<F: Future>(
        key: &'static LocalKey<Self>,
        value: T,
        work: F,
    ) -> TaskLocalFuture<Self, impl Future<Output = F::Output>> {
        key.scope(Self::new(value), async move {
            let mut work = pin!(work);
            poll_fn(|cx| {
                // A future may be moved to another task between two polls.
                key.with(|this| this.task.set(try_id()));
                work.as_mut().poll(cx)
            })
            .await
        })
    }
}
