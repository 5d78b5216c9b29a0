//! How a claim joins the queue: invariant 1 of the [protocol](crate::zookeeper). (P. Hunt et al.,
//! "ZooKeeper: wait-free coordination for internet-scale systems", 2010, section 2.4, "Simple Locks
//! without Herd Effect".)

use std::sync::Arc;

use futures_util::future::join;

use super::super::client::ZooKeeperClient;
use super::super::drivers::{Fault, Kind};
use super::super::session::Session;
use super::claim_state::{ClaimNode, ClaimState, NodeState};
use super::lists::{self, Listed};
use super::look::{Look, LookupError};
use super::make::{OurNode, make};
use super::names::{self, Contender};
use super::order::{self, Position};
use crate::store::LockMode;

/// How many times the key's node may vanish during one attempt before the caller gets an error.
const TRIES: usize = 4;

/// Joins the queue, if the claim is not in it, and reads who is first.
pub(crate) async fn look(
    client: &ZooKeeperClient,
    session: &Arc<Session>,
    state: &ClaimState,
) -> Result<Look, LookupError> {
    for _ in 0..TRIES {
        let known = match state.node() {
            NodeState::At(node) if node.session == session.id => Some(node),
            NodeState::At(_) | NodeState::InDoubt => settle(session, state).await?,
            NodeState::Absent => None,
        };
        let (node, listed) = match known {
            // Our server may not have seen yet that the node was taken away.
            Some(node) => (node, lists::shared_synced(session, &state.parent).await),
            None if is_passed_by(session, state).await? => return Ok(Look::Behind),
            None => match join_queue(client, session, state).await? {
                Some(joined) => joined,
                None => continue,
            },
        };
        let contenders = lists::or_own(listed, session, &state.parent).await?;
        match judge(session, state, &node, &contenders).await? {
            Judged::Missing if node.is_granted => return Ok(Look::TakenAway),
            // Another client deleted our node: the claim joins again, behind the others.
            Judged::Missing => state.set_node(NodeState::Absent),
            Judged::Waits(predecessor) => {
                let is_first = predecessor.is_none();
                let node = ClaimNode {
                    is_granted: node.is_granted && is_first,
                    predecessor,
                    ..node
                };
                state.set_node(NodeState::At(node.clone()));
                if is_first {
                    return Ok(Look::First(node));
                }
                return Ok(Look::Behind);
            }
        }
    }
    Err(Fault::NoNode.into())
}

/// Whether a claim that is asked only once would join behind another, so that it need not join at
/// all. A look costs the servers no write; a node that is made and deleted costs two.
async fn is_passed_by(session: &Session, state: &ClaimState) -> Result<bool, LookupError> {
    let claim = &state.claim;
    // A reader shares with readers: its place decides.
    if !claim.place_ttl.is_zero() || claim.mode == LockMode::Read {
        return Ok(false);
    }
    // Our server may not have seen yet that the key is free.
    let synced = session.sync(&state.parent);
    let (synced, children) = join(synced, session.children_if_there(&state.parent)).await;
    synced?;
    Ok(!names::contenders(children?)?.is_empty())
}

enum Judged {
    /// Our node does not exist.
    Missing,
    /// The node that ours waits for; `None` if ours is first.
    Waits(Option<String>),
}

async fn judge(
    session: &Session,
    state: &ClaimState,
    node: &ClaimNode,
    contenders: &[Contender],
) -> Result<Judged, LookupError> {
    let waits_for = match order::position(contenders, &node.name, node.is_granted) {
        Position::Missing => return Ok(Judged::Missing),
        Position::First => None,
        Position::Behind(other) => Some(other),
        Position::BehindHolder(writer) => {
            let path = format!("{}/{}", state.parent, writer.name);
            (!session.reads_now(&path).await?).then_some(writer)
        }
    };
    Ok(Judged::Waits(waits_for.map(|other| other.name.clone())))
}

type Joined = (ClaimNode, Listed);

/// Makes our node, and lists after it. `None`: the key's node was missing and was made; try again.
async fn join_queue(
    client: &ZooKeeperClient,
    session: &Arc<Session>,
    state: &ClaimState,
) -> Result<Option<Joined>, LookupError> {
    let prefix = names::queue_prefix(&state.guid, &state.claim);
    let path = format!("{}/{prefix}", state.parent);
    let data = state.node_data(session.ttl, false).encode();
    let made = make(client, session, state, &path, &data, Kind::Sequential).await?;
    let (made, listed) = match made {
        OurNode::Made(made, listed) => (made, listed),
        OurNode::NoKey => return Ok(None),
        OurNode::Exists => return Err(Fault::Exists.into()),
    };
    let node = ClaimNode {
        session: made.owner,
        name: format!("{prefix}{:010}", made.sequence),
        czxid: made.czxid,
        is_granted: false,
        predecessor: None,
    };
    state.set_node(NodeState::At(node.clone()));
    Ok(Some((node, listed)))
}

/// Finds the nodes of a claim that is in doubt: keeps the lowest of this session and deletes the
/// rest.
async fn settle(session: &Session, state: &ClaimState) -> Result<Option<ClaimNode>, LookupError> {
    let mut kept = None;
    for name in ours(session, state).await? {
        let path = format!("{}/{name}", state.parent);
        if kept.is_none() {
            let Some(node) = session.read_if_there(&path).await? else {
                continue;
            };
            if node.owner == session.id {
                kept = Some(ClaimNode {
                    session: session.id,
                    name,
                    czxid: node.czxid,
                    is_granted: false,
                    predecessor: None,
                });
                continue;
            }
        }
        session.delete_if_there(&path).await?;
    }
    state.set_node(match &kept {
        Some(node) => NodeState::At(node.clone()),
        None => NodeState::Absent,
    });
    Ok(kept)
}

/// The names of all nodes of the claim, of whatever session, lowest first.
async fn ours(session: &Session, state: &ClaimState) -> Result<Vec<String>, Fault> {
    // Our server may not have seen yet what another one did for us.
    session.sync(&state.parent).await?;
    let mut names = session.children_if_there(&state.parent).await?;
    let prefix = names::own_prefix(&state.guid);
    names.retain(|name| name.starts_with(&prefix));
    names.sort_unstable();
    Ok(names)
}

/// Deletes every node of the claim. Returns whether there was one.
pub(crate) async fn remove(session: &Session, state: &ClaimState) -> Result<bool, Fault> {
    let names = match state.node() {
        NodeState::Absent => Vec::new(),
        NodeState::At(node) if node.session == session.id => vec![node.name],
        NodeState::At(_) | NodeState::InDoubt => ours(session, state).await?,
    };
    let mut was_there = false;
    for name in names {
        let path = format!("{}/{name}", state.parent);
        was_there |= session.delete_if_there(&path).await?;
    }
    state.set_node(NodeState::Absent);
    Ok(was_there)
}
