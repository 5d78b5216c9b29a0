//! [`Cluster`]: the known nodes, which of them has which slot, and how the map is read again.
//!
//! The map is only a hint: a node that is asked for a slot of another refuses, and names the other.
//! So one slot that moved is learned from the refusal, and the whole map is read again only when a
//! node cannot be reached, or reports that the cluster is down.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::redis::{AsyncConnectionConfig, Cmd, Value};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;

use super::super::connection::{Connection, ConnectionPool, Purpose, Target, closed, dial};
use super::super::fault;
use super::super::options::RedisOptions;
use super::map::{Address, Map};
use super::slot::{SLOTS, Slot};
use crate::clock::{Clock, Stamp};
use crate::model::error::{Error, ErrorKind};

/// A map that was read within this is read for all who need one.
const FRESH: Duration = Duration::from_millis(100);
/// The least time between two connections that are made to one address only to read the map.
const DIAL_INTERVAL: Duration = Duration::from_millis(500);
/// How many nodes are asked for the map at once: one fewer may be silent without costing a
/// time-out.
const ASKED_AT_ONCE: usize = 3;

/// One master, and our connections to it.
#[derive(Debug)]
pub(in super::super) struct Node {
    pub(super) address: Address,
    pub(in super::super) pool: ConnectionPool,
}

/// The nodes of a cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// Of any node, except the address.
    options: RedisOptions,
    /// Those that the URL names; one that answers is enough.
    seeds: Vec<Address>,
    pub(super) clock: Clock,
    /// `None` once the store is closed.
    known: Mutex<Option<KnownNodes>>,
    /// Held by the caller that reads the map. The result of the last read, for those who waited for
    /// it. `None`: it was cancelled.
    looking: tokio::sync::Mutex<Option<Looked>>,
    looks: AtomicUsize,
    /// When a connection was last made to an address only to read the map.
    dialled: Mutex<HashMap<Address, Stamp>>,
}

/// A read of the map that ended.
#[derive(Debug)]
struct Looked {
    result: Result<(), Error>,
    at: Stamp,
}

#[derive(Debug)]
struct KnownNodes {
    nodes: Vec<Arc<Node>>,
    /// For each slot the node's index.
    owners: Vec<Option<usize>>,
    has_replicas: bool,
}

impl Cluster {
    /// Connects to nothing yet.
    pub(in super::super) fn new(options: RedisOptions, seeds: Vec<Address>, clock: Clock) -> Self {
        Self {
            options,
            seeds,
            clock,
            known: Mutex::new(Some(KnownNodes {
                nodes: Vec::new(),
                owners: vec![None; usize::from(SLOTS)],
                has_replicas: false,
            })),
            looking: tokio::sync::Mutex::default(),
            looks: AtomicUsize::new(0),
            dialled: Mutex::default(),
        }
    }

    /// Finds the nodes, connects to every master that can be reached, and returns whether one of
    /// them has a replica.
    pub(in super::super) async fn connect(&self) -> Result<bool, Error> {
        self.look().await?;
        let nodes = self.nodes()?;
        let mut connecting: FuturesUnordered<_> = (nodes.iter())
            .map(|node| async { node.pool.connection(Purpose::Ask)?.session().await })
            .collect();
        let (mut is_any, mut failure) = (false, None);
        // The map may not show a replica that is new.
        let mut has_replicas = (self.known.lock().as_ref()).is_some_and(|known| known.has_replicas);
        while let Some(connected) = connecting.next().await {
            match connected {
                Ok(session) => {
                    is_any = true;
                    has_replicas |= session.server.replicas > 0;
                }
                // Only the locks of a node that is down cannot be used; a node that cannot keep
                // locks is an error.
                Err(error) if error.kind() == ErrorKind::Unavailable => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        match failure {
            Some(error) if !is_any => Err(error),
            _ => Ok(has_replicas),
        }
    }

    /// The node of a slot, if one is known.
    pub(in super::super) fn owner(&self, slot: Slot) -> Result<Option<Arc<Node>>, Error> {
        let known = self.known.lock();
        let known = known.as_ref().ok_or_else(closed)?;
        let owner = known.owners[usize::from(slot.number())];
        Ok(owner.map(|index| Arc::clone(&known.nodes[index])))
    }

    /// The first slot of the node that has this one.
    pub(in super::super) fn first_beside(&self, slot: Slot) -> Option<Slot> {
        let known = self.known.lock();
        let owners = &known.as_ref()?.owners;
        let owner = owners[usize::from(slot.number())]?;
        let first = owners.iter().position(|one| *one == Some(owner))?;
        Slot::new(u16::try_from(first).ok()?)
    }

    /// All known nodes.
    pub(in super::super) fn nodes(&self) -> Result<Vec<Arc<Node>>, Error> {
        let known = self.known.lock();
        Ok(known.as_ref().ok_or_else(closed)?.nodes.clone())
    }

    /// The node at an address that another one named.
    pub(super) fn node_at(&self, address: &Address) -> Result<Arc<Node>, Error> {
        let mut known = self.known.lock();
        let known = known.as_mut().ok_or_else(closed)?;
        let index = self.index_of(&mut known.nodes, address)?;
        Ok(Arc::clone(&known.nodes[index]))
    }

    /// A node reported where a slot is.
    pub(super) fn learn(&self, slot: Slot, address: &Address) -> Result<(), Error> {
        let mut known = self.known.lock();
        let known = known.as_mut().ok_or_else(closed)?;
        let index = self.index_of(&mut known.nodes, address)?;
        known.owners[usize::from(slot.number())] = Some(index);
        Ok(())
    }

    fn index_of(&self, nodes: &mut Vec<Arc<Node>>, address: &Address) -> Result<usize, Error> {
        if let Some(index) = nodes.iter().position(|node| node.address == *address) {
            return Ok(index);
        }
        nodes.push(Arc::new(self.node(address)?));
        Ok(nodes.len() - 1)
    }

    fn node(&self, address: &Address) -> Result<Node, Error> {
        let target = Target::new(self.options.at(&address.host, address.port))?;
        Ok(Node {
            address: address.clone(),
            pool: ConnectionPool::new("redis", Arc::new(target)),
        })
    }

    /// Reads the whole map again. A caller that finds another one reading it waits for that result,
    /// and one that comes shortly after uses it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next caller reads the map.
    pub(in super::super) async fn look(&self) -> Result<(), Error> {
        let (mut looks, waited) = match self.looking.try_lock() {
            Ok(looks) => (looks, false),
            Err(_) => (self.looking.lock().await, true),
        };
        if let Some(looked) = &*looks
            && (waited || self.clock.stamp().since(&looked.at) < FRESH)
        {
            return looked.result.clone();
        }
        *looks = None;
        let result = self.ask_some().await.and_then(|map| self.take(map));
        *looks = Some(Looked {
            result: result.clone(),
            at: self.clock.stamp(),
        });
        result
    }

    async fn ask_some(&self) -> Result<Map, Error> {
        let nodes = self.nodes()?;
        let mut addresses = self.seeds.clone();
        for node in &nodes {
            if !addresses.contains(&node.address) {
                addresses.push(node.address.clone());
            }
        }
        // A node that is cut off answers as fast as any, from an old map: so the first ones to ask
        // change.
        let turn = self.looks.fetch_add(1, Ordering::Relaxed) % addresses.len();
        addresses.rotate_left(turn);
        let mut left = addresses.iter();
        let mut asked: FuturesUnordered<_> = (left.by_ref().take(ASKED_AT_ONCE))
            .map(|address| self.ask(&nodes, address))
            .collect();
        let mut failure = None;
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(map) => return Ok(map),
                // An error that an operator must fix is reported before one that may pass.
                Err(error) => {
                    let was_worse = failure
                        .as_ref()
                        .is_some_and(|other: &Error| other.kind() != ErrorKind::Unavailable);
                    if !was_worse {
                        failure = Some(error);
                    }
                    asked.extend(left.next().map(|address| self.ask(&nodes, address)));
                }
            }
        }
        Err(failure.unwrap_or_else(|| Error::unavailable("no node of the cluster is known")))
    }

    /// Asks one node for the map, over our connection to it if there is one.
    async fn ask(&self, nodes: &[Arc<Node>], address: &Address) -> Result<Map, Error> {
        let known = nodes.iter().find(|node| node.address == *address);
        let connection = known.and_then(|node| node.pool.connection(Purpose::Ask).ok());
        let answer = match connection.filter(|connection| connection.is_ready()) {
            Some(connection) => ask_over(connection).await?,
            None => self.dial(address).await?,
        };
        Map::read(&answer, address).ok_or_else(|| {
            Error::unavailable(format!(
                "this node of the cluster knows no node for any slot: address={address}; form the cluster, or name another node"
            ))
        })
    }

    /// Asks over a connection of its own: the node may be a replica, to which we have no other.
    async fn dial(&self, address: &Address) -> Result<Value, Error> {
        let now = self.clock.stamp();
        let last = self.dialled.lock().get(address).copied();
        if last.is_some_and(|last| now.since(&last) < DIAL_INTERVAL) {
            return Err(Error::unavailable(format!(
                "this node of the cluster was asked for the map a moment ago: address={address}; try later"
            )));
        }
        self.dialled.lock().insert(address.clone(), now);
        let name = address.to_string();
        let options = self.options.at(&address.host, address.port);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.timeout))
            .set_response_timeout(Some(options.timeout));
        let how = options.how(&self.clock);
        let (mut connection, _driver) = dial(&options.server, &name, how, &config).await?;
        match slots_command().query_async(&mut connection).await {
            Ok(answer) => Ok(answer),
            Err(error) if error.code() == Some("ERR") => Err(Error::unsupported(format!(
                "this redis is no node of a cluster: address={address}; use redis:// for a single server"
            ))),
            Err(error) => Err(fault::not_connected(&error, &name)),
        }
    }

    fn take(&self, map: Map) -> Result<(), Error> {
        let mut known = self.known.lock();
        let known = known.as_mut().ok_or_else(closed)?;
        let mut nodes = Vec::with_capacity(map.masters.len());
        for address in &map.masters {
            let old = known.nodes.iter().find(|node| node.address == *address);
            nodes.push(match old {
                Some(node) => Arc::clone(node),
                None => Arc::new(self.node(address)?),
            });
        }
        *known = KnownNodes {
            nodes,
            owners: map.owners,
            has_replicas: map.has_replicas,
        };
        Ok(())
    }

    /// Drops every connection; later requests fail.
    pub(in super::super) fn close(&self) {
        let known = self.known.lock().take();
        for node in known.iter().flat_map(|known| &known.nodes) {
            node.pool.close();
        }
    }
}

fn slots_command() -> Cmd {
    let mut command = ::redis::cmd("CLUSTER");
    command.arg("SLOTS");
    command
}

/// In a task of its own: a question that is dropped because another node answered first would count
/// against the connection.
async fn ask_over(connection: Arc<Connection>) -> Result<Value, Error> {
    let asked = tokio::spawn(async move { connection.ask(&slots_command()).await });
    match asked.await {
        Ok(answer) => answer.map_err(|failure| {
            Error::unavailable("a node of the cluster did not answer with the map; try later")
                .because(failure.into_error("read the map of the cluster"))
        }),
        Err(_) => Err(Error::unavailable(
            "the runtime that asked a node of the cluster ended; try again",
        )),
    }
}
