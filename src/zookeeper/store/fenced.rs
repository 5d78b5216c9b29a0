//! What a fence in the same ensemble needs from the store: its session, and the path of a hold's
//! node.

use std::sync::Arc;

use futures_util::future::try_join_all;

use super::drivers::{Change, LeaderTime, Node, Refused};
use super::queue::claim_state::{ClaimState, NodeState};
use super::queue::names;
use super::zookeeper_store::ZooKeeperStore;
use crate::clock::Clock;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;

const READ: &str = "read a fence";

impl ZooKeeperStore {
    /// The clock that its leases are counted by.
    pub(crate) fn clock(&self) -> &Clock {
        &self.client.clock
    }

    /// A clone that does not keep the session open.
    pub(crate) fn passing(&self) -> Self {
        let mut passing = self.clone();
        passing.thread = Arc::default();
        passing
    }

    /// Runs a task on the thread of the session, until the thread ends.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.client.runtime.spawn(task));
    }

    /// The node of a key's fence. It stays when the lock is free.
    pub(crate) fn fence_path(&self, key: &Key) -> Result<String, Error> {
        Ok(format!(
            "{}/{}",
            names::key_path(&self.client.options.chroot, key)?,
            names::FENCE
        ))
    }

    /// The node of the hold with this token, if this store granted it.
    pub(crate) fn hold_path(&self, key: &Key, token: FencingToken) -> Option<String> {
        let is_it = |state: &&Arc<ClaimState>| match state.node() {
            NodeState::At(node) => {
                node.is_granted && u64::try_from(node.czxid) == Ok(token.number())
            }
            _ => false,
        };
        let claims = self.client.claims.of_key(key);
        let state = claims.iter().find(is_it)?;
        match state.node() {
            NodeState::At(node) => Some(state.path(&node)),
            _ => None,
        }
    }

    /// A node as the leader had it when this was called.
    pub(crate) async fn read_now(&self, path: &str) -> Result<Option<Node>, Error> {
        let mut nodes = self.read_all_now(&[path]).await?;
        Ok(nodes.pop().flatten())
    }

    /// Nodes, each as the leader had it when this was called, or later. All in one session: the
    /// server of the next one may be behind.
    pub(crate) async fn read_all_now(
        &self,
        paths: &[impl AsRef<str>],
    ) -> Result<Vec<Option<Node>>, Error> {
        let Some(first) = paths.first() else {
            return Ok(Vec::new());
        };
        let session = self.client.session().await?;
        let read = async {
            session.sync(first.as_ref()).await?;
            let reads = paths.iter();
            try_join_all(reads.map(|path| session.read_if_there(path.as_ref()))).await
        };
        read.await.map_err(|fault| fault.into_error(READ))
    }

    /// The leader's time now, about.
    pub(crate) async fn leader_now(&self) -> Result<LeaderTime, Error> {
        let now = self.client.session().await?.leader_now();
        now.ok_or_else(|| {
            Error::unavailable("the zookeeper leader's time is not known yet; try again")
        })
    }

    /// The names of a node's children.
    pub(crate) async fn children_of(&self, path: &str) -> Result<Vec<String>, Error> {
        let session = self.client.session().await?;
        let children = session.driver.children(path).await;
        children.map_err(|fault| fault.into_error("list the names of commits"))
    }

    /// Makes the nodes above `path`.
    pub(crate) async fn make_above(&self, path: &str) -> Result<(), Error> {
        let session = self.client.session().await?;
        session
            .make_parents(names::parent(path).unwrap_or(path))
            .await
    }

    /// Changes all of it, or nothing.
    pub(crate) async fn change(&self, changes: &[Change]) -> Result<(), Refused> {
        let session = self.client.session().await.map_err(Refused::NotSent)?;
        session.driver.change(changes).await
    }
}
