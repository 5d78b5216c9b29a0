//! [`Resource`]: where the counter is. A file that nothing protects, or a value behind the fence of
//! the lock's own store.

mod file;
mod postgres;
mod redis;
mod zookeeper;

use std::path::PathBuf;

use leasehold::clock::{Clock, ClockKind};
use leasehold::{AsyncTx, BoxError, Lock};
use serde::{Deserialize, Serialize};

use self::postgres::InPostgres;
use self::redis::InRedis;
use self::zookeeper::InZooKeeper;
use crate::exit::Failure;

/// Where it is, as text for a counting process.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(super) enum ResourcePlace {
    File(PathBuf),
    /// A key in the Redis server of this URL, changed under a fence only.
    Redis {
        url: String,
        key: String,
    },
    /// A row in the PostgreSQL database of this URL, changed under a fence only.
    Postgres {
        url: String,
        name: String,
    },
    /// A node in the ZooKeeper ensemble of this URL, changed under a fence only.
    ZooKeeper {
        url: String,
        path: String,
    },
}

#[derive(Clone)]
pub(super) enum Resource {
    File(PathBuf),
    Redis(InRedis),
    Postgres(InPostgres),
    ZooKeeper(InZooKeeper),
}

impl ResourcePlace {
    /// A new place that holds 0.
    pub(super) async fn make(fenced_at: Option<&str>) -> Result<Self, Failure> {
        let now = Clock::system()?.stamp().on(ClockKind::Boot);
        let name = format!("leasehold-counter-{}-{now:x}", std::process::id());
        let made =
            match fenced_at {
                None => file::make(&name).map(Self::File),
                Some(url) if url.starts_with("zookeeper:") => zookeeper::make(url, &name)
                    .await
                    .map(|path| Self::ZooKeeper {
                        url: url.to_owned(),
                        path,
                    }),
                Some(url) if url.starts_with("postgres") => {
                    postgres::make(url, &name).await.map(|()| Self::Postgres {
                        url: url.to_owned(),
                        name,
                    })
                }
                Some(url) => redis::make(url, &name).await.map(|key| Self::Redis {
                    url: url.to_owned(),
                    key,
                }),
            };
        made.map_err(|why| Failure::system("the counter could not be made", &why))
    }

    pub(super) async fn open(&self) -> Result<Resource, Failure> {
        Ok(match self {
            Self::File(path) => Resource::File(path.clone()),
            Self::Redis { url, key } => Resource::Redis(InRedis::open(url, key).await?),
            Self::Postgres { url, name } => Resource::Postgres(InPostgres::open(url, name).await?),
            Self::ZooKeeper { url, path } => {
                Resource::ZooKeeper(InZooKeeper::open(url, path).await?)
            }
        })
    }

    /// Removes it. A failure leaves a temporary file or a key that nobody reads.
    pub(super) async fn remove(&self) {
        match self {
            Self::File(path) => drop(std::fs::remove_file(path)),
            Self::Redis { url, key } => drop(redis::remove(url, key).await),
            Self::Postgres { url, name } => drop(postgres::remove(url, name).await),
            Self::ZooKeeper { url, path } => drop(zookeeper::remove(url, path).await),
        }
    }
}

impl Resource {
    /// The lock, with the fence tied to it where there is one.
    pub(super) fn tie(&self, lock: Lock) -> Lock {
        match self {
            Self::File(_) => lock,
            Self::Redis(counter) => lock.fence(counter.fence.clone()),
            Self::Postgres(counter) => lock.fence(counter.fence.clone()),
            Self::ZooKeeper(counter) => lock.fence(counter.fence.clone()),
        }
    }

    pub(super) async fn read(&self) -> Result<u64, BoxError> {
        match self {
            Self::File(path) => Ok(file::read(path)?),
            Self::Redis(counter) => counter.read().await,
            Self::Postgres(counter) => counter.read().await,
            Self::ZooKeeper(counter) => counter.read().await,
        }
    }

    /// Writes `number` as the commit of a run.
    pub(super) fn write(&self, tx: &AsyncTx, number: u64) {
        match self.clone() {
            Self::File(path) => drop(tx.commit_with(move |_| file::commit(path, number))),
            Self::Redis(counter) => {
                tx.commit_with(move |permit| counter.commit(permit, number));
            }
            Self::Postgres(counter) => counter.commit(tx, number),
            Self::ZooKeeper(counter) => {
                tx.commit_with(move |permit| counter.commit(permit, number));
            }
        }
    }
}
