//! [`Route`]: the way of one request to the node that has its slot.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{ErrorKind as Redis, RedisError, ServerErrorKind, Value};

use super::super::link::{Failure, Link};
use super::super::links::Purpose;
use super::super::script::{Call, Script};
use super::super::wake::Waker;
use super::map::Address;
use super::nodes::{Cluster, Node};
use super::slot::Slot;
use crate::model::error::{Error, ErrorKind};

/// How often a request goes on to another node.
const MOST_TURNS: u32 = 5;
/// How long a request waits for a slot that is on its way, the first time; each time after that so much longer. A slot with a
/// few locks is there within this.
const PAUSE: Duration = Duration::from_millis(10);

/// What a request does at a slot that is on its way to another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Passage {
    /// It names one key, which is here or there: it goes where it is sent.
    Follows,
    /// It names several keys, of which some are never there: it waits a moment, and ends.
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
    /// The node that takes the slot in, for this one request.
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

    /// The node of a slot. If nobody is known to have it, it is looked for.
    pub(super) async fn find(&self, slot: Slot) -> Result<Arc<Node>, Error> {
        if let Some(node) = self.owner(slot)? {
            return Ok(node);
        }
        self.look().await?;
        self.owner(slot)?.ok_or_else(|| {
            Error::unavailable(format!(
                "no node of the cluster has this slot: slot={}; look at the cluster",
                slot.number()
            ))
        })
    }

    /// The subscriber at the node of a slot.
    pub(in super::super) async fn waker(&self, slot: Slot) -> Result<Arc<Waker>, Error> {
        self.find(slot).await?.links.waker()
    }

    /// Runs a script at the node of a slot.
    pub(in super::super) async fn run(
        &self,
        slot: Slot,
        purpose: Purpose,
        script: &Script,
        call: &Call,
    ) -> Result<Value, Failure> {
        let mut route = self.route(slot, purpose, Passage::Follows);
        loop {
            let answer = match route.link().await {
                Ok(link) if route.asking.is_some() => call.run_asking(script, &link).await,
                Ok(link) => call.run(script, &link).await,
                Err(failure) => Err(failure),
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(failure) => route.follow(failure).await?,
            }
        }
    }
}

impl Route<'_> {
    pub(in super::super) fn slot(&self) -> Slot {
        self.slot
    }

    /// Whether it is asked to take the slot in for this one request.
    pub(super) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// The node that is asked.
    pub(super) fn sent_to(&self) -> Option<&Node> {
        self.sent_to.as_deref()
    }

    pub(super) fn first_slot_of(&self, node: &Node) -> Option<Slot> {
        self.cluster.first_slot_of(node)
    }

    pub(super) async fn look(&self) -> Result<(), Error> {
        self.cluster.look().await
    }

    /// The link to the node that has the slot, as far as is known.
    pub(in super::super) async fn link(&mut self) -> Result<Arc<Link>, Failure> {
        let link = self.choose().await.map_err(Failure::NotSent)?;
        if self.asking.is_some() || !link.is_broken() {
            return Ok(link);
        }
        // It may be dead, and another in its place. If nobody tells, the node itself is asked.
        let _ = self.cluster.look().await;
        self.choose().await.map_err(Failure::NotSent)
    }

    async fn choose(&mut self) -> Result<Arc<Link>, Error> {
        let node = match &self.asking {
            Some(address) => self.cluster.node_at(address)?,
            None => self.cluster.find(self.slot).await?,
        };
        let link = node.links.link(self.purpose);
        self.sent_to = Some(node);
        link
    }

    /// What follows from a failure: the request is made again, or it has failed. Only what was surely not done is made again.
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
            // A renewal does not wait: it is asked lock by lock.
            Failure::Refused(refusal)
                if is_on_its_way(refusal) && self.purpose != Purpose::Heartbeat =>
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

    /// The node cannot do it now. If another has the slot, that one is asked.
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

    /// A slot that is on its way, or that two nodes take for each other's.
    fn unplaced(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Refused(refusal)
                if is(&refusal, ServerErrorKind::Moved) || is_on_its_way(&refusal) =>
            {
                Failure::NotSent(Error::unavailable(format!(
                    "the slot is on its way to another node: slot={}; try later",
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

/// What is asked for is here and there, or there only.
fn is_on_its_way(refusal: &RedisError) -> bool {
    is(refusal, ServerErrorKind::Ask) || is(refusal, ServerErrorKind::TryAgain)
}
