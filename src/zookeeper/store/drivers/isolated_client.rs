//! The client of the crate `zookeeper-async`, isolated on a runtime of its own.
//!
//! That client hides what a lock must know (that its session ended and another began), matches
//! answers by their order instead of by number, and does not end when it is dropped. Therefore its
//! runtime is ended whatever its tasks do, and one request is in flight, with a time limit. At the
//! first sign of trouble (a state other than connected, a lost connection, a late answer) the
//! session is over and the runtime is ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use zookeeper_async::{ZkError, ZkResult, ZkState, ZooKeeper};

use super::super::options::{ZooKeeperOptions, digest};
use super::driver::{Fault, Refusals};
use crate::clock::Clock;

/// The pause between two tries to connect: without it the client uses a whole CPU.
const RETRY: Duration = Duration::from_millis(100);
/// How long the server is given to end the session in order.
const CLOSING: Duration = Duration::from_secs(1);
/// An answer later than this part of the time-out counts as none.
const ANSWERS_PER_TIMEOUT: u32 = 3;

type Job = Box<dyn FnOnce(Arc<ZooKeeper>) -> BoxFuture<'static, ()> + Send>;

/// One session of `zookeeper-async`.
pub(super) struct IsolatedClient {
    jobs: mpsc::UnboundedSender<Job>,
    pub(super) life: Life,
    pub(super) refusals: Refusals,
    clock: Clock,
    runtime: Mutex<Option<Runtime>>,
}

/// Whether the session is usable. Once it is not, it never is again.
#[derive(Clone, Debug)]
pub(super) struct Life(Arc<watch::Sender<bool>>);

impl Life {
    pub(super) fn end(&self) {
        self.0.send_replace(false);
    }

    pub(super) fn is_over(&self) -> bool {
        !*self.0.borrow()
    }

    pub(super) async fn over(&self) {
        let mut alive = self.0.subscribe();
        // The sender is in `self`, so this completes only at the end.
        let _ = alive.wait_for(|is_alive| !is_alive).await;
    }
}

impl IsolatedClient {
    /// Opens a session on a new runtime.
    pub(super) async fn connect(options: &ZooKeeperOptions, clock: &Clock) -> Result<Self, Fault> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("leasehold-zk-box")
            .enable_all()
            .build()
            .map_err(|e| Fault::Refused(Box::new(e)))?;
        let (jobs, waiting) = mpsc::unbounded_channel();
        let client = Self {
            jobs,
            life: Life(Arc::new(watch::Sender::new(true))),
            refusals: Refusals::of(&options.login),
            clock: clock.clone(),
            runtime: Mutex::new(None),
        };
        let login = options
            .credentials
            .as_ref()
            .map(|login| digest(login).into_bytes());
        let (servers, timeout) = (options.servers.clone(), options.session_timeout);
        let (life, limit) = (client.life.clone(), timeout / ANSWERS_PER_TIMEOUT);
        let (connected, is_connected) = oneshot::channel();
        let worker_clock = clock.clone();
        runtime.spawn(async move {
            match connect(&servers, timeout, login, life.clone()).await {
                Ok(client) => {
                    let _ = connected.send(Ok(()));
                    work(Arc::new(client), waiting, &life, &worker_clock, limit).await;
                }
                Err(error) => {
                    let _ = connected.send(Err(fault(error)));
                }
            }
        });
        // From here on dropping the client ends the runtime.
        *client.runtime.lock() = Some(runtime);
        is_connected.await.unwrap_or(Err(Fault::Expired))?;
        Ok(client)
    }

    /// Queues a request when first polled.
    pub(super) fn ask<'a, T, A>(&'a self, ask: A) -> BoxFuture<'a, Result<T, Fault>>
    where
        A: FnOnce(Arc<ZooKeeper>) -> BoxFuture<'static, ZkResult<T>> + Send + 'static,
        T: Send + 'static,
    {
        Box::pin(async move {
            if self.life.is_over() {
                return Err(Fault::Expired);
            }
            let (answer, answered) = oneshot::channel();
            let life = self.life.clone();
            let job: Job = Box::new(move |client| {
                Box::pin(async move {
                    let result = ask(client).await;
                    if matches!(result, Err(error) if is_trouble(error)) {
                        life.end();
                    }
                    let _ = answer.send(result);
                })
            });
            self.jobs.send(job).map_err(|_| Fault::Expired)?;
            match answered.await {
                Ok(result) => result.map_err(|error| self.refusals.note(fault(error))),
                // Not answered, or not sent: it is not known which.
                Err(_) => Err(Fault::InDoubt("the session is over".into())),
            }
        })
    }

    /// Ends the session in order, if the server answers in time.
    pub(super) async fn close(&self) {
        // Its `close` sends the request and then waits for ever for a dead server.
        let goodbye = self.ask(|client| Box::pin(async move { client.close().await }));
        let _ = self.clock.timeout(CLOSING, goodbye).await;
        self.life.end();
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for IsolatedClient {
    fn drop(&mut self) {
        self.life.end();
        if let Some(runtime) = self.runtime.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}

async fn connect(
    servers: &str,
    timeout: Duration,
    login: Option<Vec<u8>>,
    life: Life,
) -> ZkResult<ZooKeeper> {
    let client = ZooKeeper::connect_with_retry_time(servers, timeout, |_| {}, RETRY).await?;
    if let Some(login) = login {
        client.add_auth("digest", login).await?;
    }
    // The first answer: the session is open, and any change of state is its end.
    client.exists("/", false).await?;
    client.add_listener(move |state| {
        if state != ZkState::Connected {
            life.end();
        }
    });
    Ok(client)
}

/// One request after the other, until the session is over or the driver is dropped.
async fn work(
    client: Arc<ZooKeeper>,
    mut waiting: mpsc::UnboundedReceiver<Job>,
    life: &Life,
    clock: &Clock,
    limit: Duration,
) {
    while let Some(job) = waiting.recv().await {
        if life.is_over() {
            return;
        }
        let answered = clock.timeout(limit, job(Arc::clone(&client)));
        let over = std::pin::pin!(life.over());
        match select(std::pin::pin!(answered), over).await {
            Either::Left((Some(()), _)) => {}
            Either::Left((None, _)) => {
                life.end();
                return;
            }
            Either::Right(_) => return,
        }
    }
}

/// Only errors that certainly changed nothing are reported so; every other error is in doubt.
fn fault(error: ZkError) -> Fault {
    match error {
        ZkError::NoNode => Fault::NoNode,
        ZkError::NodeExists => Fault::Exists,
        ZkError::BadVersion => Fault::BadVersion,
        ZkError::NoAuth | ZkError::AuthFailed | ZkError::InvalidACL => {
            Fault::Denied { may_pass: false }
        }
        ZkError::SessionExpired => Fault::Expired,
        ZkError::BadArguments
        | ZkError::NotEmpty
        | ZkError::NoChildrenForEphemerals
        | ZkError::SessionMoved
        | ZkError::NotReadOnly => Fault::Refused(Box::new(error)),
        // An unknown code of the server is reported as this one too.
        other => Fault::InDoubt(Box::new(other)),
    }
}

/// Errors after which this client is not used any more.
fn is_trouble(error: ZkError) -> bool {
    matches!(
        error,
        ZkError::ConnectionLoss
            | ZkError::SessionExpired
            | ZkError::SessionMoved
            | ZkError::OperationTimeout
            | ZkError::MarshallingError
            | ZkError::AuthFailed
    )
}
