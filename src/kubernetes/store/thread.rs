//! [`Thread`]: the thread and the runtime of the connections.
//!
//! A connection lives on the runtime that opened it. On a runtime of its own it outlives that of
//! the caller that happened to open it, and no busy worker of a caller delays it.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use super::login::{Running, closed};
use crate::model::error::Error;

/// How many requests go on at once after their callers have gone. One that gets its connection
/// leaves it to all others.
const GO_ON: usize = 16;

/// Dropping it ends the thread, and with it every connection.
#[derive(Debug)]
pub(super) struct Thread {
    runtime: Handle,
    go_on: Arc<Semaphore>,
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
            go_on: Arc::new(Semaphore::new(GO_ON)),
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

    /// Runs a future there that has a limit of its own. If the returned one is dropped, it goes on:
    /// a connection that takes longer than any caller waits is made all the same.
    pub(super) async fn finish<F>(&self, future: F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let (end, ended) = oneshot::channel();
        let task = self
            .runtime
            .spawn(async move { end.send(future.await).ok() });
        let mut asked = Asked(self, Some(task));
        let answer = ended.await.ok();
        asked.1 = None;
        answer
    }

    /// Runs a login there, for all that wait for it.
    pub(super) fn share(
        &self,
        login: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> Running {
        let login = self.runtime.spawn(login);
        let ended = async { login.await.unwrap_or_else(|_| Err(closed())) };
        ended.boxed().shared()
    }

    /// Starts a task that ends by itself, or with the thread.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(task));
    }
}

/// A task for which its caller waits.
struct Asked<'a, T: Send + 'static>(&'a Thread, Option<JoinHandle<T>>);

impl<T: Send + 'static> Drop for Asked<'_, T> {
    fn drop(&mut self) {
        let Some(task) = self.1.take().filter(|task| !task.is_finished()) else {
            return;
        };
        match Arc::clone(&self.0.go_on).try_acquire_owned() {
            Ok(place) => self.0.spawn(async move {
                let _ = task.await;
                drop(place);
            }),
            Err(_) => task.abort(),
        }
    }
}
