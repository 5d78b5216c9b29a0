//! How a claim makes its node, and lists the contenders directly after it.

use std::sync::Arc;

use futures_util::future::join;

use super::super::client::ZooKeeperClient;
use super::super::drivers::{Fault, Kind, Made};
use super::super::session::Session;
use super::claim_state::{ClaimState, NodeState};
use super::lists::{self, Listed};
use super::look::LookupError;
use crate::model::error::Error;

/// What became of our node.
pub(super) enum OurNode {
    /// It was made, and the contenders were listed after it.
    Made(Made, Listed),
    /// Another client has a node of this name.
    Exists,
    /// The key's node was missing and was made: try again.
    NoKey,
}

pub(super) async fn make(
    client: &ZooKeeperClient,
    session: &Arc<Session>,
    state: &ClaimState,
    path: &str,
    data: &[u8],
    kind: Kind,
) -> Result<OurNode, LookupError> {
    // Noted before it is sent: if the caller goes away now, the node is looked for.
    state.set_node(NodeState::InDoubt);
    let sent_at = client.clock.stamp();
    let create = session.driver.create(path, data, kind);
    let (made, listed) = join(create, lists::shared(session, &state.parent)).await;
    match made {
        Ok(made) if made.owner == session.id => {
            session.proven(sent_at);
            Ok(OurNode::Made(made, listed))
        }
        Ok(_) => {
            let foreign = "zookeeper made our node for another session; check the servers";
            Err(Error::corrupt(foreign).into())
        }
        Err(Fault::Exists) => {
            state.set_node(NodeState::Absent);
            Ok(OurNode::Exists)
        }
        Err(Fault::NoNode) => {
            state.set_node(NodeState::Absent);
            session.make_parents(&state.parent).await?;
            Ok(OurNode::NoKey)
        }
        Err(other) => {
            let failed = other.into();
            if matches!(failed, LookupError::Error(_)) {
                state.set_node(NodeState::Absent);
            }
            Err(failed)
        }
    }
}
