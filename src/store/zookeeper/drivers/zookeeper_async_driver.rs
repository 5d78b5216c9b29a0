//! The second driver, over the crate `zookeeper-async`, isolated on a runtime of its own.
//!
//! That client hides what a lock must know (that its session ended and another began), matches answers by their order instead
//! of by number, and does not end when it is dropped. Therefore it runs on a runtime of its own, which is ended whatever its
//! tasks do; one request is in flight, with a time limit; the owner of our own node names the session and is compared at every
//! heartbeat. At the first sign of trouble (a state other than connected, a lost connection, a late answer) the session is over
//! and the runtime is ended.
//!
//! It has no `multi`, no `sync` and no container nodes: a heartbeat writes the session's own node and then reads each held one;
//! a write replaces `sync`; nodes of old keys stay. It does not learn the negotiated time-out and uses the configured one.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, select};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use zookeeper_async::{Acl, CreateMode, Permission, ZkError, ZkResult, ZkState, ZooKeeper};

use super::super::acl::AclEntry;
use super::super::options::ZooKeeperOptions;
use super::driver::{Change, Driver, Fault, Kind, Made, Missing, Node, Refused};
use crate::clock::Clock;
use crate::model::error::Error;

/// The pause between two tries to connect: without it the client uses a whole CPU.
const RETRY: Duration = Duration::from_millis(100);
/// How long the server is given to end the session in order.
const CLOSING: Duration = Duration::from_secs(1);
/// An answer later than this part of the time-out counts as none.
const ANSWERS_PER_TIMEOUT: u32 = 3;

type Job = Box<dyn FnOnce(Arc<ZooKeeper>) -> BoxFuture<'static, ()> + Send>;

/// One session of `zookeeper-async`, on its own runtime.
pub(crate) struct ZooKeeperAsyncDriver {
    jobs: mpsc::UnboundedSender<Job>,
    life: Life,
    clock: Clock,
    timeout: Duration,
    session: Arc<OnceLock<i64>>,
    acls: Vec<Acl>,
    runtime: Mutex<Option<Runtime>>,
}

/// Whether the session is usable. Once it is not, it never is again.
#[derive(Clone, Debug)]
struct Life(Arc<watch::Sender<bool>>);

impl Life {
    fn end(&self) {
        self.0.send_replace(false);
    }

    fn is_over(&self) -> bool {
        !*self.0.borrow()
    }

    async fn over(&self) {
        let mut alive = self.0.subscribe();
        // The sender is in `self`, so this completes only at the end.
        let _ = alive.wait_for(|is_alive| !is_alive).await;
    }
}

impl ZooKeeperAsyncDriver {
    /// Opens a session on a new runtime.
    pub(crate) async fn connect(options: &ZooKeeperOptions, clock: &Clock) -> Result<Self, Fault> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("leasehold-zk-box")
            .enable_all()
            .build()
            .map_err(|e| Fault::Refused(Box::new(e)))?;
        let (jobs, waiting) = mpsc::unbounded_channel();
        let driver = Self {
            jobs,
            life: Life(Arc::new(watch::Sender::new(true))),
            clock: clock.clone(),
            timeout: options.session_timeout,
            session: Arc::default(),
            acls: options.acl_entries().iter().map(acl).collect(),
            runtime: Mutex::new(None),
        };
        let login = options
            .credentials
            .as_ref()
            .map(|login| login.expose().into_bytes());
        let (servers, timeout) = (options.servers.clone(), options.session_timeout);
        let (life, limit) = (driver.life.clone(), driver.limit());
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
        // From here on dropping the driver ends the runtime.
        *driver.runtime.lock() = Some(runtime);
        is_connected.await.unwrap_or(Err(Fault::Expired))?;
        Ok(driver)
    }

    fn limit(&self) -> Duration {
        self.timeout / ANSWERS_PER_TIMEOUT
    }

    /// Queues a request when first polled.
    fn ask<'a, T, A>(&'a self, ask: A) -> BoxFuture<'a, Result<T, Fault>>
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
                Ok(result) => result.map_err(fault),
                // Not answered, or not sent: it is not known which.
                Err(_) => Err(Fault::InDoubt("the session is over".into())),
            }
        })
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

impl Driver for ZooKeeperAsyncDriver {
    fn session(&self) -> Option<i64> {
        self.session.get().copied()
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn connected(&self) -> BoxFuture<'_, Result<(), Fault>> {
        let is_over = self.life.is_over();
        Box::pin(std::future::ready(if is_over {
            Err(Fault::Expired)
        } else {
            Ok(())
        }))
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.life.over())
    }

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        kind: Kind,
    ) -> BoxFuture<'a, Result<Made, Fault>> {
        let mode = match kind {
            Kind::Container => CreateMode::Persistent,
            Kind::Ephemeral => CreateMode::Ephemeral,
            Kind::Sequential => CreateMode::EphemeralSequential,
        };
        let (asked, data, acls) = (path.to_owned(), data.to_owned(), self.acls.clone());
        Box::pin(async move {
            let create = self.ask(move |client| {
                Box::pin(async move { client.create2(&asked, data, acls, mode).await })
            });
            let (made, stat) = create.await?;
            // The owner of the first ephemeral node is the session's id; every later one must have the same.
            if kind != Kind::Container
                && *self.session.get_or_init(|| stat.ephemeral_owner) != stat.ephemeral_owner
            {
                self.life.end();
                return Err(Fault::InDoubt("the session was replaced by another".into()));
            }
            let sequence = made
                .strip_prefix(path)
                .and_then(|digits| digits.parse().ok());
            Ok(Made {
                sequence: sequence.unwrap_or(-1),
                czxid: stat.czxid,
                owner: stat.ephemeral_owner,
            })
        })
    }

    fn delete<'a>(
        &'a self,
        path: &'a str,
        version: Option<i32>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        let path = path.to_owned();
        self.ask(move |client| Box::pin(async move { client.delete(&path, version).await }))
    }

    fn children<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<String>, Fault>> {
        let path = path.to_owned();
        self.ask(move |client| Box::pin(async move { client.get_children(&path, false).await }))
    }

    fn read<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Node, Fault>> {
        let path = path.to_owned();
        self.ask(move |client| {
            Box::pin(async move {
                let (data, stat) = client.get_data(&path, false).await?;
                Ok(Node {
                    data,
                    czxid: stat.czxid,
                    owner: stat.ephemeral_owner,
                    version: stat.version,
                })
            })
        })
    }

    fn write<'a>(&'a self, path: &'a str, data: &'a [u8]) -> BoxFuture<'a, Result<(), Fault>> {
        let (path, data) = (path.to_owned(), data.to_owned());
        self.ask(move |client| {
            Box::pin(async move { client.set_data(&path, data, None).await.map(drop) })
        })
    }

    fn watch<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<BoxFuture<'static, ()>, Fault>> {
        let (path, life) = (path.to_owned(), self.life.clone());
        Box::pin(async move {
            let (changed, has_changed) = oneshot::channel();
            let watching = self.ask(move |client| {
                Box::pin(async move {
                    let changed = move |_| {
                        // The waiting caller may be gone. A panic here would kill the client.
                        let _ = changed.send(());
                    };
                    client.get_data_w(&path, changed).await
                })
            });
            watching.await?;
            let over = async move { life.over().await };
            Ok(select(has_changed, Box::pin(over)).map(drop).boxed())
        })
    }

    /// A write through the quorum: once it is answered, the server that answered has seen all that came before it.
    fn sync<'a>(&'a self, own: &'a str, _path: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        let own = own.to_owned();
        self.ask(move |client| {
            Box::pin(async move { client.set_data(&own, Vec::new(), None).await.map(drop) })
        })
    }

    /// The held nodes are read after the write, on the same session: a node that exists then existed during the write.
    fn beat<'a>(&'a self, own: &'a str, held: &'a [String]) -> BoxFuture<'a, Result<(), Missing>> {
        let (own, held) = (own.to_owned(), held.to_vec());
        Box::pin(async move {
            let beat = self.ask(move |client| {
                Box::pin(async move {
                    let stat = client.set_data(&own, Vec::new(), None).await?;
                    for path in held {
                        if client.exists(&path, false).await?.is_none() {
                            return Ok((stat.ephemeral_owner, false));
                        }
                    }
                    Ok((stat.ephemeral_owner, true))
                })
            });
            match beat.await {
                Ok((owner, _)) if self.session() != Some(owner) => {
                    self.life.end();
                    Err(Missing::Fault(Fault::Expired))
                }
                Ok((_, true)) => Ok(()),
                Ok((_, false)) => Err(Missing::Held),
                // Our own node is gone, and this client cannot say whether its session is too.
                Err(Fault::NoNode) => {
                    self.life.end();
                    Err(Missing::Fault(Fault::Expired))
                }
                Err(other) => Err(Missing::Fault(other)),
            }
        })
    }

    /// It has no `multi`.
    fn change<'a>(&'a self, _changes: &'a [Change]) -> BoxFuture<'a, Result<(), Refused>> {
        let error = Error::unsupported(
            "the driver zookeeper-async cannot write under a fence; use the driver zookeeper-client",
        );
        Box::pin(std::future::ready(Err(Refused::NotSent(error))))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Its `close` sends the request and then waits for ever for a dead server.
            let goodbye = self.ask(|client| Box::pin(async move { client.close().await }));
            let _ = self.clock.timeout(CLOSING, goodbye).await;
            self.life.end();
            if let Some(runtime) = self.runtime.lock().take() {
                runtime.shutdown_background();
            }
        })
    }
}

impl Drop for ZooKeeperAsyncDriver {
    fn drop(&mut self) {
        self.life.end();
        if let Some(runtime) = self.runtime.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for ZooKeeperAsyncDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperAsyncDriver")
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

fn acl(entry: &AclEntry) -> Acl {
    let bits = [
        Permission::READ,
        Permission::WRITE,
        Permission::CREATE,
        Permission::DELETE,
        Permission::ADMIN,
    ];
    let granted = (bits.into_iter().enumerate())
        .filter(|(bit, _)| entry.permissions & (1 << bit) != 0)
        .fold(Permission::NONE, |all, (_, one)| all | one);
    Acl::new(granted, &entry.scheme, &entry.id)
}

/// Only errors that certainly changed nothing are reported so; every other error is in doubt.
fn fault(error: ZkError) -> Fault {
    match error {
        ZkError::NoNode => Fault::NoNode,
        ZkError::NodeExists => Fault::Exists,
        ZkError::BadVersion => Fault::BadVersion,
        ZkError::NoAuth | ZkError::AuthFailed | ZkError::InvalidACL => Fault::Denied,
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
