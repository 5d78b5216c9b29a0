//! [`Thread`]: the thread and the runtime of the connections.
//!
//! A connection lives on the runtime that opened it. On a runtime of its own it outlives that of
//! the caller that happened to open it, and no busy worker of a caller delays it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::model::error::Error;

/// How many requests go on at once after their callers have gone. One that gets its connection
/// leaves it to all others.
const GO_ON: usize = 16;
/// How long a request may take with its connection, whether its caller still waits or not.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);

/// Dropping it ends the thread, and with it every connection.
#[derive(Debug)]
pub(crate) struct Thread {
    runtime: Handle,
    go_on: Arc<Semaphore>,
    /// Never sent: the thread ends when it is dropped.
    _stop: oneshot::Sender<()>,
}

impl Thread {
    /// `name`: what the system shows for the thread, with at most 15 bytes.
    pub(crate) async fn start(name: &str) -> Result<Self, Error> {
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
        let none = "no thread could be started for the connections of the store";
        (std::thread::Builder::new().name(name.to_owned()))
            .spawn(live)
            .map_err(|error| Error::unavailable(none).because(error))?;
        let runtime = taken.await.map_err(|_| Error::unavailable(none))?;
        Ok(Self {
            runtime: runtime.map_err(|error| Error::unavailable(none).because(error))?,
            go_on: Arc::new(Semaphore::new(GO_ON)),
            _stop: stop,
        })
    }

    /// Runs a future there; it is dropped with the returned one. `None` if the thread has ended.
    pub(crate) async fn run<F>(&self, future: F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        AbortOnDropHandle::new(self.runtime.spawn(future))
            .await
            .ok()
    }

    /// Runs a request there, for [`LONGEST`] at most. If the returned future is dropped, it goes
    /// on: a connection that takes longer than any caller waits is made all the same. `None` if the
    /// thread has ended, `Some(None)` if the request took longer.
    pub(crate) async fn finish<F>(&self, clock: &Clock, request: F) -> Option<Option<F::Output>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let (end, ended) = oneshot::channel();
        let clock = clock.clone();
        let task = self.runtime.spawn(async move {
            let _ = end.send(clock.timeout(LONGEST, request).await);
        });
        let mut asked = Asked(self, Some(task));
        let answer = ended.await.ok();
        asked.1 = None;
        answer
    }

    /// Starts a task that ends by itself, or with the thread.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(task)
    }
}

/// A task for which its caller waits.
struct Asked<'a>(&'a Thread, Option<JoinHandle<()>>);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let Some(task) = self.1.take().filter(|task| !task.is_finished()) else {
            return;
        };
        match Arc::clone(&self.0.go_on).try_acquire_owned() {
            Ok(place) => drop(self.0.begin(async move {
                let _ = task.await;
                drop(place);
            })),
            Err(_) => task.abort(),
        }
    }
}
