//! The simple lock: one ephemeral node, whose path is used again: "Simple mode" in the
//! [protocol](crate::zookeeper).

use std::sync::Arc;

use super::super::client::ZooKeeperClient;
use super::super::drivers::{Fault, Kind, Node};
use super::super::session::Session;
use super::claim_state::{ClaimNode, ClaimState, NodeState};
use super::lists;
use super::look::{Look, LookupError};
use super::make::{OurNode, make};
use super::names::SIMPLE;
use super::node_data::NodeData;

/// As for the queue.
const TRIES: usize = 4;

/// Makes the node, if the claim does not hold it.
pub(crate) async fn look(
    client: &ZooKeeperClient,
    session: &Arc<Session>,
    state: &ClaimState,
) -> Result<Look, LookupError> {
    let path = path(state);
    for _ in 0..TRIES {
        match state.node() {
            NodeState::Absent => {}
            _ => match find(session, state, &path).await? {
                Some(node) => {
                    let mut node = claim_node(session, node.czxid);
                    node.is_granted =
                        matches!(state.node(), NodeState::At(known) if known.is_granted);
                    if node.is_granted {
                        return Ok(Look::First(node));
                    }
                    // It was made, but its answer was lost: a contender may have been there before.
                    remove(session, state).await?;
                }
                None if state.held_in(session.id).is_some() => return Ok(Look::TakenAway),
                None => state.set_node(NodeState::Absent),
            },
        }
        let data = NodeData {
            head: format!("{} {}", state.guid, state.claim.label.record()),
            ttl: Some(session.ttl),
            reads: false,
        };
        let data = data.encode();
        let made = make(client, session, state, &path, &data, Kind::Ephemeral).await?;
        let (made, listed) = match made {
            OurNode::Made(made, listed) => (made, listed),
            OurNode::NoKey => continue,
            OurNode::Exists => return Ok(Look::Behind),
        };
        let node = claim_node(session, made.czxid);
        state.set_node(NodeState::At(node.clone()));
        let others = lists::or_own(listed, session, &state.parent).await?;
        if others.iter().any(|other| other.name != SIMPLE) {
            remove(session, state).await?;
            return Ok(Look::Behind);
        }
        return Ok(Look::First(node));
    }
    Err(Fault::NoNode.into())
}

/// Deletes the node, if it is the claim's. Returns whether it was.
pub(crate) async fn remove(session: &Session, state: &ClaimState) -> Result<bool, Fault> {
    let path = path(state);
    if state.node() == NodeState::Absent {
        return Ok(false);
    }
    let was_there = match find(session, state, &path).await? {
        Some(node) => match session.driver.delete(&path, Some(node.version)).await {
            Ok(()) => true,
            Err(Fault::NoNode | Fault::BadVersion) => false,
            Err(other) => return Err(other),
        },
        None => false,
    };
    state.set_node(NodeState::Absent);
    Ok(was_there)
}

/// The lock's node, if this session made it for this claim. A node of an earlier session of ours
/// ends with that session: to delete it from here could delete the node that another client made
/// after it, since each has version 0.
async fn find(session: &Session, state: &ClaimState, path: &str) -> Result<Option<Node>, Fault> {
    session.sync(path).await?;
    let node = session.read_if_there(path).await?;
    let guid = state.guid.as_bytes();
    Ok(node.filter(|node| node.owner == session.id && node.data.starts_with(guid)))
}

fn claim_node(session: &Session, czxid: i64) -> ClaimNode {
    ClaimNode {
        session: session.id,
        name: SIMPLE.to_owned(),
        czxid,
        is_granted: false,
        predecessor: None,
    }
}

fn path(state: &ClaimState) -> String {
    format!("{}/{SIMPLE}", state.parent)
}
