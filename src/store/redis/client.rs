//! [`RedisClient`]: what every operation of the store uses.

use std::sync::Arc;

use ::redis::Value;

use super::cluster::Slot;
use super::connection::{Failure, Purpose, Subscribed, Target};
use super::counters::Counters;
use super::marker_history::MarkerHistory;
use super::options::RedisOptions;
use super::script::{Call, Script};
use super::servers::Servers;
use super::waiting::AskedClaims;
use crate::model::key::Key;
use crate::store::{Claim, Fencing};

/// The servers of a store, how they are used, and what was seen of them.
#[derive(Debug)]
pub(super) struct RedisClient {
    target: Arc<Target>,
    pub(super) servers: Servers,
    pub(super) fencing: Fencing,
    pub(super) markers: MarkerHistory,
    pub(super) counters: Counters,
    /// The claims that may be granted by message.
    pub(super) asked: AskedClaims,
}

impl RedisClient {
    pub(super) fn new(target: Arc<Target>, servers: Servers, fencing: Fencing) -> Self {
        Self {
            counters: Counters::new(target.clock().clone()),
            target,
            servers,
            fencing,
            markers: MarkerHistory::default(),
            asked: AskedClaims::default(),
        }
    }

    pub(super) fn options(&self) -> &RedisOptions {
        &self.target.options
    }

    /// The connection that attempts use. A wait for replicas delays what follows it there.
    pub(super) fn attempt_purpose(&self) -> Purpose {
        if self.options().replicas > 0 {
            Purpose::Replicated
        } else {
            Purpose::Ask
        }
    }

    /// The part of the servers' names that the keys of a lock share with each other; a single server has none.
    pub(super) fn slot_of(&self, key: &Key) -> Option<Slot> {
        match &self.servers {
            Servers::One(_) => None,
            Servers::Many(_) => Some(Slot::of(self.options().names.lock(key))),
        }
    }

    /// The subscription to the messages about a claim's lock, if this process has one.
    pub(super) fn subscriptions_of(&self, claim: &Claim) -> Option<Subscribed> {
        let names = &self.options().names;
        let subscriber = self.servers.present_subscriber(names, &claim.key)?;
        subscriber.subscribed(|| names.own_channel(&claim.key, &claim.owner))
    }

    /// Runs a script at the server that has the lock.
    pub(super) async fn run(
        &self,
        key: &Key,
        script: &Script,
        call: &Call,
    ) -> Result<Value, Failure> {
        let names = &self.options().names;
        self.servers.run(names, key, script, call).await
    }
}
