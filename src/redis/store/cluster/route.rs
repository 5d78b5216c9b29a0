//! [`Route`]: how one request finds the node that has its slot.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{ErrorKind as Redis, RedisError, ServerErrorKind};

use super::super::connection::{Connection, Failure, Purpose, Subscriber};
use super::map::Address;
use super::nodes::{Cluster, Node};
use super::slot::Slot;
use crate::model::error::{Error, ErrorKind};

/// How often a request is sent to another node.
const MOST_TURNS: u32 = 5;
/// How long a request waits for a slot that is moving, the first time; each later time so much
/// longer. A slot with a few locks arrives within this.
const PAUSE: Duration = Duration::from_millis(10);

/// What a request does at a slot that is moving to another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Passage {
    /// It names one key, which is at one of the two nodes: it goes where it is sent.
    Follows,
    /// It names several keys, some of which never exist: it waits a moment, and ends.
    Waits,
}

/// Where a request was sent, and where it goes next.
#[derive(Debug)]
pub(in super::super) struct Route<'a> {
    cluster: &'a Cluster,
    slot: Slot,
    purpose: Purpose,
    passage: Passage,
    turns: u32,
    /// The node that the slot moves to, for this one request.
    asking: Option<Address>,
    sent_to: Option<Arc<Node>>,
}

impl Cluster {
    pub(in super::super) fn route(
        &self,
        slot: Slot,
        purpose: Purpose,
        passage: Passage,
    ) -> Route<'_> {
        Route {
            cluster: self,
            slot,
            purpose,
            passage,
            turns: 0,
            asking: None,
            sent_to: None,
        }
    }

    /// The node of a slot. If none is known, the map is read.
    pub(super) async fn find(&self, slot: Slot) -> Result<Arc<Node>, Error> {
        if let Some(node) = self.owner(slot)? {
            return Ok(node);
        }
        self.look().await?;
        self.owner(slot)?.ok_or_else(|| {
            Error::unavailable(format!(
                "no node of the cluster has this slot: slot={}; check the cluster",
                slot.number()
            ))
        })
    }

    /// The subscriber at the node of a slot.
    pub(in super::super) async fn subscriber(&self, slot: Slot) -> Result<Arc<Subscriber>, Error> {
        self.find(slot).await?.pool.subscriber()
    }

    /// The same, if there is one and the node is known.
    pub(in super::super) fn present_subscriber(&self, slot: Slot) -> Option<Arc<Subscriber>> {
        self.owner(slot).ok()??.pool.present_subscriber()
    }
}

impl Route<'_> {
    /// Whether the request goes to the node that the slot moves to.
    pub(in super::super) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// The connection to the node that has the slot, as far as is known.
    pub(in super::super) async fn connection(&mut self) -> Result<Arc<Connection>, Failure> {
        let connection = self.choose().await.map_err(Failure::NotSent)?;
        if self.asking.is_some() || !connection.is_broken() {
            return Ok(connection);
        }
        // It may be dead, and replaced by another. If no node answers, the node itself is asked.
        let _ = self.cluster.look().await;
        self.choose().await.map_err(Failure::NotSent)
    }

    async fn choose(&mut self) -> Result<Arc<Connection>, Error> {
        let node = match &self.asking {
            Some(address) => self.cluster.node_at(address)?,
            None => self.cluster.find(self.slot).await?,
        };
        let connection = node.pool.connection(self.purpose);
        self.sent_to = Some(node);
        connection
    }

    /// What follows from a failure: the request is made again, or it has failed. Only a request
    /// that was surely not executed is made again.
    pub(in super::super) async fn follow(&mut self, failure: Failure) -> Result<(), Failure> {
        self.turns += 1;
        if self.turns > MOST_TURNS {
            return Err(self.unplaced(failure));
        }
        let was_asking = self.asking.take().is_some();
        match &failure {
            Failure::Refused(refusal) if is(refusal, ServerErrorKind::Moved) => {
                let Some(address) = self.named(refusal) else {
                    return Err(self.unplaced(failure));
                };
                self.cluster
                    .learn(self.slot, &address)
                    .map_err(Failure::NotSent)
            }
            Failure::Refused(refusal)
                if is(refusal, ServerErrorKind::Ask) && self.passage == Passage::Follows =>
            {
                self.asking = self.named(refusal);
                if self.asking.is_none() {
                    return Err(self.unplaced(failure));
                }
                Ok(())
            }
            // A renewal does not wait: it is repeated lock by lock.
            Failure::Refused(refusal)
                if is_moving(refusal) && self.purpose != Purpose::Heartbeat =>
            {
                self.cluster.clock.sleep(PAUSE * self.turns).await;
                Ok(())
            }
            Failure::Refused(refusal) if is(refusal, ServerErrorKind::ClusterDown) => {
                self.elsewhere(failure).await
            }
            Failure::NotSent(error) if error.kind() == ErrorKind::Unavailable && !was_asking => {
                self.elsewhere(failure).await
            }
            _ => Err(failure),
        }
    }

    /// The node cannot do it now. If another node has the slot, that one is asked.
    async fn elsewhere(&self, failure: Failure) -> Result<(), Failure> {
        if self.cluster.look().await.is_err() {
            return Err(failure);
        }
        match (self.cluster.owner(self.slot), &self.sent_to) {
            (Ok(Some(owner)), Some(asked)) if owner.address != asked.address => Ok(()),
            _ => Err(failure),
        }
    }

    fn named(&self, refusal: &RedisError) -> Option<Address> {
        let (address, _) = refusal.redirect_node()?;
        Address::parse(address, &self.sent_to.as_ref()?.address)
    }

    /// A slot that is moving, or that two nodes each attribute to the other.
    fn unplaced(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Refused(refusal)
                if is(&refusal, ServerErrorKind::Moved) || is_moving(&refusal) =>
            {
                Failure::NotSent(Error::unavailable(format!(
                    "the slot is moving to another node: slot={}; try later",
                    self.slot.number()
                )))
            }
            failure => failure,
        }
    }
}

pub(super) fn is(refusal: &RedisError, kind: ServerErrorKind) -> bool {
    refusal.kind() == Redis::Server(kind)
}

/// Some or all of the keys are at the other node.
fn is_moving(refusal: &RedisError) -> bool {
    is(refusal, ServerErrorKind::Ask) || is(refusal, ServerErrorKind::TryAgain)
}
