//! [`Servers`]: where the locks are: in one server, or in a cluster.

use std::collections::HashMap;
use std::sync::Arc;

use ::redis::Value;

use super::cluster::{Cluster, Passage, Slot};
use super::connection::{Connection, ConnectionPool, Failure, Purpose, Subscriber, Target};
use super::names::Names;
use super::script::{Call, Script};
use crate::model::error::Error;
use crate::model::key::Key;

/// The servers of a store.
#[derive(Debug)]
pub(crate) enum Servers {
    /// A single server; behind sentinels, the master of now.
    One(ConnectionPool),
    /// The nodes of a cluster.
    Many(Box<Cluster>),
}

impl Servers {
    /// Connects to nothing yet.
    pub(crate) fn of(target: &Arc<Target>) -> Self {
        match &target.options.seeds {
            None => Self::One(ConnectionPool::new("redis", Arc::clone(target))),
            Some(seeds) => {
                let (options, clock) = (target.options.clone(), target.clock().clone());
                Self::Many(Box::new(Cluster::new(options, seeds.clone(), clock)))
            }
        }
    }

    /// Connects, and returns whether a replica copies what is granted.
    pub(crate) async fn connect(&self) -> Result<bool, Error> {
        match self {
            Self::One(pool) => Ok(pool
                .connection(Purpose::Ask)?
                .session()
                .await?
                .server
                .replicas
                > 0),
            Self::Many(cluster) => cluster.connect().await,
        }
    }

    /// Asks the server that has a lock. `ask` gets a connection to it, and whether the lock's slot
    /// is on its way to that node. It is called again where the request was surely not executed,
    /// and another node has the slot.
    pub(super) async fn at<T, F>(
        &self,
        names: &Names,
        key: &Key,
        (purpose, passage): (Purpose, Passage),
        ask: impl Fn(Arc<Connection>, bool) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let cluster = match self {
            Self::Many(cluster) => cluster,
            Self::One(pool) => {
                let connection = pool.connection(purpose).map_err(Failure::NotSent)?;
                return ask(connection, false).await;
            }
        };
        let mut route = cluster.route(Slot::of(names.lock(key)), purpose, passage);
        loop {
            let answer = match route.connection().await {
                Ok(connection) => ask(connection, route.is_asking()).await,
                Err(failure) => Err(failure),
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(failure) => route.follow(failure).await?,
            }
        }
    }

    /// Runs a script at the server that has the lock.
    pub(crate) async fn run(
        &self,
        names: &Names,
        key: &Key,
        script: &Script,
        call: &Call,
    ) -> Result<Value, Failure> {
        self.run_seen(names, key, script, call, &|| {}).await
    }

    /// The same; `sends` is called before each send, once there is a connection.
    pub(crate) async fn run_seen(
        &self,
        names: &Names,
        key: &Key,
        script: &Script,
        call: &Call,
        sends: &(dyn Fn() + Sync),
    ) -> Result<Value, Failure> {
        let run = |connection: Arc<Connection>, is_asking: bool| async move {
            let session = connection.session().await.map_err(Failure::NotSent)?;
            sends();
            let answer = if is_asking {
                session.run_asking(script, call).await?
            } else {
                session.run(script, call).await?
            };
            session.served();
            Ok(answer)
        };
        let how = (Purpose::Ask, Passage::Follows);
        self.at(names, key, how, run).await
    }

    /// The first slot of the node that has this one.
    pub(super) fn first_beside(&self, slot: Slot) -> Option<Slot> {
        match self {
            Self::One(_) => None,
            Self::Many(cluster) => cluster.first_beside(slot),
        }
    }

    /// Whether one script may name this together with the keys of a lock.
    pub(crate) fn is_beside(&self, names: &Names, key: &Key, name: &[u8]) -> bool {
        match self {
            Self::One(_) => true,
            Self::Many(_) => Slot::of(name) == Slot::of(names.lock(key)),
        }
    }

    /// The subscriber that receives the messages of a lock.
    pub(super) async fn subscriber(
        &self,
        names: &Names,
        key: &Key,
    ) -> Result<Arc<Subscriber>, Error> {
        match self {
            Self::One(pool) => pool.subscriber(),
            // Every node passes on what one of them publishes. The lock's own node is asked anyway.
            Self::Many(cluster) => cluster.subscriber(Slot::of(names.lock(key))).await,
        }
    }

    /// The same, if there is one.
    pub(super) fn present_subscriber(&self, names: &Names, key: &Key) -> Option<Arc<Subscriber>> {
        match self {
            Self::One(pool) => pool.present_subscriber(),
            Self::Many(cluster) => cluster.present_subscriber(Slot::of(names.lock(key))),
        }
    }

    /// A connection to every server that has locks.
    pub(super) async fn all(&self) -> Result<Vec<Arc<Connection>>, Error> {
        match self {
            Self::One(pool) => Ok(vec![pool.connection(Purpose::Ask)?]),
            Self::Many(cluster) => {
                cluster.look().await?;
                let nodes = cluster.nodes()?;
                nodes
                    .iter()
                    .map(|node| node.pool.connection(Purpose::Ask))
                    .collect()
            }
        }
    }

    /// Locks that one script may name together.
    pub(super) fn by_slot(&self, names: &Names, keys: impl Iterator<Item = Key>) -> Vec<Vec<Key>> {
        match self {
            Self::One(_) => vec![keys.collect()],
            Self::Many(_) => {
                let mut slots: HashMap<Slot, Vec<Key>> = HashMap::new();
                for key in keys {
                    let slot = Slot::of(names.lock(&key));
                    slots.entry(slot).or_default().push(key);
                }
                slots.into_values().collect()
            }
        }
    }

    /// Drops every connection; later requests fail.
    pub(super) fn close(&self) {
        match self {
            Self::One(pool) => pool.close(),
            Self::Many(cluster) => cluster.close(),
        }
    }
}
