//! [`Servers`]: where the locks are: in one server, or in a cluster of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;

use super::cluster::{Cluster, Passage, Route, Slot};
use super::link::{Failure, Link, Target};
use super::links::{Links, Purpose};
use super::names::Names;
use super::script::{Call, Script};
use super::session::Session;
use super::wake::Waker;
use crate::model::error::Error;
use crate::model::key::Key;

/// The servers of a store.
#[derive(Debug)]
pub(crate) enum Servers {
    One(Links),
    Many(Box<Cluster>),
}

impl Servers {
    /// Asks nobody yet.
    pub(crate) fn of(target: &Arc<Target>) -> Self {
        match target.options.seeds() {
            None => Self::One(Links::new(Arc::clone(target))),
            Some(seeds) => {
                let (options, clock) = (target.options.clone(), target.clock().clone());
                Self::Many(Box::new(Cluster::new(options, seeds.clone(), clock)))
            }
        }
    }

    /// Connects. Whether a replica copies what is granted.
    pub(crate) async fn connect(&self) -> Result<bool, Error> {
        match self {
            Self::One(links) => Ok(links.link(Purpose::Ask)?.server().await?.replicas > 0),
            Self::Many(cluster) => cluster.connect().await,
        }
    }

    /// Runs a script where a lock is.
    pub(crate) async fn run(
        &self,
        names: &Names,
        key: &Key,
        script: &Script,
        call: &Call,
    ) -> Result<Value, Failure> {
        match self {
            Self::One(links) => {
                let link = links.link(Purpose::Ask).map_err(Failure::NotSent)?;
                call.run(script, &link).await
            }
            Self::Many(cluster) => {
                let slot = Slot::of(names.lock(key));
                cluster.run(slot, Purpose::Ask, script, call).await
            }
        }
    }

    /// Whether one script may name this beside what belongs to a lock.
    pub(crate) fn is_beside(&self, names: &Names, key: &Key, name: &[u8]) -> bool {
        match self {
            Self::One(_) => true,
            Self::Many(_) => Slot::of(name) == Slot::of(names.lock(key)),
        }
    }

    /// The way of an attempt.
    pub(super) fn way(&self, names: &Names, key: &Key, purpose: Purpose) -> Way<'_> {
        match self {
            Self::One(links) => Way::Straight(links, purpose),
            Self::Many(cluster) => {
                let slot = Slot::of(names.lock(key));
                Way::Routed(cluster.route(slot, purpose, Passage::Waits))
            }
        }
    }

    /// The subscriber that hears of a lock.
    pub(super) async fn waker(&self, names: &Names, key: &Key) -> Result<Arc<Waker>, Error> {
        match self {
            Self::One(links) => links.waker(),
            // What a node publishes, all of them tell. The lock's own node is asked anyway.
            Self::Many(cluster) => cluster.waker(Slot::of(names.lock(key))).await,
        }
    }

    /// A link to every server that has locks.
    pub(super) async fn all(&self) -> Result<Vec<Arc<Link>>, Error> {
        match self {
            Self::One(links) => Ok(vec![links.link(Purpose::Ask)?]),
            Self::Many(cluster) => {
                cluster.look().await?;
                let nodes = cluster.nodes()?;
                nodes
                    .iter()
                    .map(|node| node.links.link(Purpose::Ask))
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

    /// Drops every connection; nothing can be asked any more.
    pub(super) fn close(&self) {
        match self {
            Self::One(links) => links.close(),
            Self::Many(cluster) => cluster.close(),
        }
    }
}

/// The way of an attempt, which asks the server that it is sent to for its run, before it is sent.
#[derive(Debug)]
pub(super) enum Way<'a> {
    Straight(&'a Links, Purpose),
    Routed(Route<'a>),
}

impl Way<'_> {
    /// A single server has none.
    pub(super) fn slot(&self) -> Option<Slot> {
        match self {
            Self::Straight(..) => None,
            Self::Routed(route) => Some(route.slot()),
        }
    }

    pub(super) async fn link(&mut self) -> Result<Arc<Link>, Failure> {
        match self {
            Self::Straight(links, purpose) => links.link(*purpose).map_err(Failure::NotSent),
            Self::Routed(route) => route.link().await,
        }
    }

    /// For how long at least a server that was a replica, or was flushed, has been what it is; asked until it is `most`. A single
    /// server is not asked: it has one marker, and so one quarantine.
    pub(super) async fn same_for(
        &self,
        session: &Session<'_>,
        names: &Names,
        most: Duration,
    ) -> Duration {
        match self {
            Self::Straight(..) => Duration::ZERO,
            Self::Routed(route) => route.same_for(session, names, most).await,
        }
    }

    /// Whether the attempt is made again, over the [link](Self::link) of then.
    pub(super) async fn follow(&mut self, failure: Failure) -> Result<(), Failure> {
        match self {
            Self::Straight(..) => Err(failure),
            Self::Routed(route) => route.follow(failure).await,
        }
    }
}
