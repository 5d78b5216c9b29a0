//! [`RedisClient`]: what every operation of the store uses.

use std::sync::Arc;

use ::redis::Value;

use super::connection::{Failure, Target};
use super::marker_history::MarkerHistory;
use super::options::RedisOptions;
use super::script::{Call, Script};
use super::servers::Servers;
use crate::model::key::Key;
use crate::store::Fencing;

/// The servers of a store, how they are used, and what was seen of them.
#[derive(Debug)]
pub(super) struct RedisClient {
    target: Arc<Target>,
    pub(super) servers: Servers,
    pub(super) fencing: Fencing,
    pub(super) markers: MarkerHistory,
}

impl RedisClient {
    pub(super) fn new(target: Arc<Target>, servers: Servers, fencing: Fencing) -> Self {
        Self {
            target,
            servers,
            fencing,
            markers: MarkerHistory::default(),
        }
    }

    pub(super) fn options(&self) -> &RedisOptions {
        &self.target.options
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
