//! The manager's own thread and tokio runtime, and calls from outside of any runtime.

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::context::TokioContext;

use crate::model::error::Error;

/// Polls `future` in the caller's runtime, or, where there is none, in the manager's.
pub(crate) async fn in_runtime<F: Future>(manager: &Handle, future: F) -> F::Output {
    if Handle::try_current().is_ok() {
        future.await
    } else {
        TokioContext::new(future, manager.clone()).await
    }
}

pub(super) fn own_runtime() -> Result<Runtime, Error> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Error::unavailable("the lock manager's runtime could not be built; free some resources")
                .because(error)
        })
}

/// Runs `task` on a thread of its own.
pub(super) fn start(
    own: Runtime,
    task: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let run = move || {
        // Spawned, because a waker of `block_on` writes to a file each time.
        let task = own.spawn(tokio::task::unconstrained(task));
        let _ = own.block_on(task);
        own.shutdown_background();
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
