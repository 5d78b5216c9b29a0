//! The manager's own thread and tokio runtime, and calls from outside of any runtime.

use futures_util::future::Either;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::context::TokioContext;

use crate::model::error::Error;
use crate::model::shared_runtime::SharedRuntime;

/// Polls `future` in the caller's runtime, or, where there is none or it has no timers, in the
/// manager's.
pub(crate) fn in_runtime<F: Future>(
    manager: &SharedRuntime,
    future: F,
) -> impl Future<Output = F::Output> + use<F> {
    if !manager.is_needed() {
        return Either::Right(future);
    }
    let in_progress = manager.begin_call();
    let future = async move {
        let _in_progress = in_progress;
        future.await
    };
    Either::Left(TokioContext::new(future, Handle::clone(manager)))
}

/// A runtime that may be dropped anywhere. tokio's panics when it is dropped in a task.
pub(super) struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    pub(super) fn handle(&self) -> Option<&Handle> {
        self.0.as_ref().map(Runtime::handle)
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

pub(super) fn own_runtime() -> Result<OwnRuntime, Error> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map(|runtime| OwnRuntime(Some(runtime)))
        .map_err(|error| {
            Error::unavailable("the lock manager's runtime could not be built; free some resources")
                .because(error)
        })
}

/// Runs `task` on a thread of its own, and then the timers of those that are still in a call.
pub(super) fn start(
    own: OwnRuntime,
    shared: SharedRuntime,
    task: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let run = move || {
        if let Some(runtime) = &own.0 {
            // Spawned, because a waker of `block_on` writes to a file each time.
            let task = runtime.spawn(tokio::task::unconstrained(task));
            let _ = runtime.block_on(task);
            runtime.block_on(shared.calls_ended());
        }
    };
    std::thread::Builder::new()
        .name("leasehold".to_owned())
        .spawn(run)
        .map(drop)
        .map_err(|error| {
            Error::unavailable(
                "the lock manager's thread could not be started; free some resources",
            )
            .because(error)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_runtime_without_a_thread_may_be_dropped_in_a_task() {
        let own = own_runtime().unwrap();
        assert!(own.handle().is_some());
        drop(own);
    }
}
