//! [`Counter`]: the counter as a task of a worker sees it.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::postgres::{PgFence, tokio_postgres};
use leasehold::redis::{RedisBatch, RedisFence};
use leasehold::run::EffectError;
use leasehold::zookeeper::{ZkBatch, ZkFence};
use leasehold::{AsyncTx, BoxError, Lock};
use redis::aio::MultiplexedConnection;
use tokio::sync::Mutex;

use crate::plan::{Resource, StoreKind};
use crate::register::Caller;
use crate::worker::Worker;

pub const REDIS_VALUE: &str = "nemesis-value";
pub const REDIS_LOG: &str = "nemesis-log";
/// How often each write was applied.
pub const REDIS_TIMES: &str = "nemesis-times";
pub const ZK_VALUE: &str = "/nemesis-value";
pub const ZK_LOG: &str = "/nemesis-log";
/// A read of the counter that takes longer fails its run.
const LIMIT: Duration = Duration::from_millis(500);

pub struct Counter {
    worker: Arc<Worker>,
    task: u32,
    clock: Clock,
    caller: Caller,
    /// Connected at the first use, and again after an error.
    server: Mutex<Option<Server>>,
}

#[derive(Clone)]
enum Server {
    Redis(RedisFence, MultiplexedConnection),
    Postgres(PgFence, Arc<tokio_postgres::Client>),
    ZooKeeper(ZkFence),
}

impl Counter {
    pub fn new(worker: Arc<Worker>, task: u32) -> Self {
        Self {
            caller: Caller::of(&worker.plan.socket),
            clock: Clock::system().expect("clocks"),
            worker,
            task,
            server: Mutex::new(None),
        }
    }

    async fn connect(&self) -> Result<Server, BoxError> {
        let url = self.worker.plan.counter_url.as_str();
        Ok(match self.worker.plan.kind {
            StoreKind::Redis => {
                let client = redis::Client::open(url)?;
                let plain = client.get_multiplexed_async_connection().await?;
                Server::Redis(RedisFence::connect(url).await?, plain)
            }
            StoreKind::Postgres => {
                let (client, connection) =
                    tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
                tokio::spawn(connection);
                Server::Postgres(PgFence::connect(url).await?, Arc::new(client))
            }
            StoreKind::ZooKeeper => Server::ZooKeeper(ZkFence::connect(url).await?),
            StoreKind::Redlock | StoreKind::Files => return Err("it has no fence".into()),
        })
    }

    async fn server(&self) -> Result<Server, BoxError> {
        let mut server = self.server.lock().await;
        if server.is_none() {
            let limit = LIMIT * 10;
            let connected = self.clock.timeout(limit, self.connect()).await;
            *server = Some(connected.ok_or("the counter's server does not answer")??);
        }
        Ok(server.clone().expect("it was just set"))
    }

    /// The lock, with the fence tied to it where there is one.
    pub async fn tie(&self, lock: Lock) -> Result<Lock, BoxError> {
        Ok(match self.worker.plan.resource {
            Resource::Open => lock,
            Resource::Gate => lock.fence(self.caller.clone()),
            Resource::Server => match self.server().await? {
                Server::Redis(fence, _) => lock.fence(fence),
                Server::Postgres(fence, _) => lock.fence(fence),
                Server::ZooKeeper(fence) => lock.fence(fence),
            },
        })
    }

    pub async fn read(&self) -> Result<u64, BoxError> {
        if self.worker.plan.resource != Resource::Server {
            return Ok(self.caller.read()?);
        }
        let server = self.server().await?;
        let read = self.clock.timeout(LIMIT, read(&server)).await;
        let read = read.unwrap_or_else(|| Err("the counter is not read in time".into()));
        if read.is_err() && !matches!(server, Server::ZooKeeper(_)) {
            *self.server.lock().await = None;
        }
        read
    }

    /// Writes `number` as the commit of the run `txn`.
    pub fn write(self: &Arc<Self>, tx: &AsyncTx, hold: u64, txn: &str, number: u64) {
        let (counter, txn) = (Arc::clone(self), txn.to_owned());
        let server = self
            .server
            .try_lock()
            .ok()
            .and_then(|server| server.clone());
        let entry = move |token: u64| format!("{txn} {token} {number}");
        drop(tx.commit_with(move |permit| async move {
            let token = permit.single()?.token.number();
            let entry = entry(token);
            let txn = entry.split(' ').next().unwrap_or_default().to_owned();
            match server {
                _ if counter.worker.plan.resource != Resource::Server => {
                    let is_open = counter.worker.is_open();
                    let commit = counter.caller.write(token, entry, is_open);
                    counter.worker.aimed(counter.task, hold, txn, commit).await
                }
                Some(Server::Redis(fence, _)) => {
                    let batch = RedisBatch::new()
                        .set(REDIS_VALUE, number.to_string())
                        .hash_set(REDIS_LOG, &txn, &entry)
                        .hash_increment_by(REDIS_TIMES, &txn, 1);
                    let commit = fence.apply(permit, batch);
                    counter.worker.aimed(counter.task, hold, txn, commit).await
                }
                Some(Server::ZooKeeper(fence)) => {
                    let path = format!("{ZK_LOG}/{txn}");
                    let batch = ZkBatch::new()
                        .create(path, &entry)
                        .set(ZK_VALUE, number.to_string());
                    let commit = fence.apply(permit, batch);
                    counter.worker.aimed(counter.task, hold, txn, commit).await
                }
                Some(Server::Postgres(fence, _)) => {
                    let work = fence.transaction(async move |t| {
                        let number = number.cast_signed();
                        t.execute("UPDATE nemesis_value SET number = $1", &[&number])
                            .await?;
                        t.execute("INSERT INTO nemesis_log (entry) VALUES ($1)", &[&entry])
                            .await?;
                        t.done(())
                    });
                    let commit = work(permit);
                    let applied = counter
                        .worker
                        .aimed(counter.task, hold, txn, commit)
                        .await?;
                    applied.map_err(EffectError::not_applied)
                }
                None => Err(EffectError::not_applied("the counter is not connected")),
            }
        }));
    }
}

async fn read(server: &Server) -> Result<u64, BoxError> {
    match server {
        Server::Redis(_, plain) => {
            let mut plain = plain.clone();
            let number: Option<u64> = redis::cmd("GET")
                .arg(REDIS_VALUE)
                .query_async(&mut plain)
                .await?;
            Ok(number.unwrap_or(0))
        }
        Server::Postgres(_, plain) => {
            let row = plain
                .query_one("SELECT number FROM nemesis_value", &[])
                .await?;
            Ok(u64::try_from(row.try_get::<_, i64>(0)?)?)
        }
        Server::ZooKeeper(fence) => {
            let data = fence.read(ZK_VALUE).await?.ok_or("no value")?;
            Ok(String::from_utf8(data)?.parse()?)
        }
    }
}
