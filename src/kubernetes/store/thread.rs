//! [`Thread`]: the thread and the runtime of the connections.
//!
//! A connection lives on the runtime that opened it. On a runtime of its own it outlives that of
//! the caller that happened to open it, and no busy worker of a caller delays it.

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::model::error::Error;

/// Dropping it ends the thread, and with it every connection.
#[derive(Debug)]
pub(super) struct Thread {
    runtime: Handle,
    /// Never sent: the thread ends when it is dropped.
    _stop: oneshot::Sender<()>,
}

impl Thread {
    pub(super) async fn start() -> Result<Self, Error> {
        let (give, taken) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let live = move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = give.send(Err(error));
                    return;
                }
            };
            if give.send(Ok(runtime.handle().clone())).is_ok() {
                let _: Result<(), _> = runtime.block_on(stopped);
            }
            runtime.shutdown_background();
        };
        let none = "no thread could be started for the connections to the API server";
        (std::thread::Builder::new().name("leasehold-k8s".to_owned()))
            .spawn(live)
            .map_err(|error| Error::unavailable(none).because(error))?;
        let runtime = taken.await.map_err(|_| Error::unavailable(none))?;
        Ok(Self {
            runtime: runtime.map_err(|error| Error::unavailable(none).because(error))?,
            _stop: stop,
        })
    }

    /// Runs a future there; it is dropped with the returned one. `None` if the thread has ended.
    pub(super) async fn run<F>(&self, future: F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        AbortOnDropHandle::new(self.runtime.spawn(future))
            .await
            .ok()
    }

    /// Starts a task that ends by itself, or with the thread.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }
}
