//! The heartbeat of the holds: every renewal proves every hold, not only the session.

use futures_util::future::join_all;

use super::client::ZooKeeperClient;
use super::drivers::{Fault, Missing};
use super::queue::claim_state::{ClaimNode, ClaimState};
use super::queue::names::SIMPLE;
use super::session::Session;
use crate::model::error::Error;
use crate::store::{Grant, Renewed};
use std::sync::Arc;

/// How many holds one request proves. A path is at most some 300 bytes, and the server takes
/// requests of 1 MB.
pub(crate) const HOLDS_PER_REQUEST: usize = 500;
/// How often a request that failed for a missing node is sent again without that node.
const TRIES: usize = 3;

struct Hold<'a> {
    state: Arc<ClaimState>,
    node: ClaimNode,
    path: String,
    answer: &'a mut Renewed,
}

/// Renews grants of one session: one answer for each, in their order.
pub(crate) async fn renew(
    client: &ZooKeeperClient,
    session: &Session,
    grants: &[Grant],
) -> Vec<Renewed> {
    let mut answers: Vec<_> = grants.iter().map(|_| Renewed::Gone).collect();
    let mut holds = Vec::with_capacity(grants.len());
    for (grant, answer) in grants.iter().zip(&mut answers) {
        let held = (client.claims.of(&grant.claim)).and_then(|state| {
            let node = state.held_in(session.id)?;
            (u64::try_from(node.czxid) == Ok(grant.token.number())).then_some((state, node))
        });
        if let Some((state, node)) = held {
            let path = state.path(&node);
            holds.push(Hold {
                state,
                node,
                path,
                answer,
            });
        }
    }
    let chunks = holds.chunks_mut(HOLDS_PER_REQUEST);
    join_all(chunks.map(|chunk| renew_chunk(session, chunk))).await;
    answers
}

async fn renew_chunk(session: &Session, chunk: &mut [Hold<'_>]) {
    let mut live: Vec<usize> = (0..chunk.len()).collect();
    for _ in 0..TRIES {
        let paths: Vec<String> = live.iter().map(|&i| chunk[i].path.clone()).collect();
        match session.beat(&paths).await {
            Ok(sent_at) => {
                let missing = check_simple(session, chunk, &live).await;
                let proof = session.proof(sent_at);
                for i in live {
                    let hold = &mut chunk[i];
                    *hold.answer = match missing.iter().find(|(at, _)| *at == i) {
                        None => {
                            // The lease counts from no later time, so the node stays for longer.
                            hold.state.keep(&sent_at, session.ttl);
                            Renewed::Extended(proof)
                        }
                        Some((_, None)) => Renewed::Gone,
                        Some((_, Some(error))) => Renewed::Unknown(error.clone()),
                    };
                }
                return;
            }
            Err(Missing::Held) => match still_there(session, chunk, &live).await {
                Ok(there) => live = there,
                Err(fault) => return answer(chunk, &live, fault),
            },
            Err(Missing::Own) => return answer(chunk, &live, Fault::NoNode),
            Err(Missing::Fault(fault)) => return answer(chunk, &live, fault),
        }
    }
    answer(chunk, &live, Fault::NoNode);
}

/// An ended session ends its holds. Any other fault proves nothing.
fn answer(chunk: &mut [Hold<'_>], live: &[usize], fault: Fault) {
    if matches!(fault, Fault::Expired) {
        return;
    }
    let error = fault.into_error("renew");
    for &i in live {
        *chunk[i].answer = Renewed::Unknown(error.clone());
    }
}

/// Which of the holds still have their node. The rest stay `Gone`.
async fn still_there(
    session: &Session,
    chunk: &[Hold<'_>],
    live: &[usize],
) -> Result<Vec<usize>, Fault> {
    let reads = join_all((live.iter()).map(|&i| session.read_if_there(&chunk[i].path))).await;
    let mut there = Vec::with_capacity(live.len());
    for (&i, read) in live.iter().zip(reads) {
        if read?.is_some_and(|node| node.czxid == chunk[i].node.czxid) {
            there.push(i);
        }
    }
    Ok(there)
}

/// The path of a simple lock is used again, so the existence of its node proves nothing. The node
/// is read *after* the heartbeat, on the same session: a node that is ours after the heartbeat was
/// ours during it.
async fn check_simple(
    session: &Session,
    chunk: &[Hold<'_>],
    live: &[usize],
) -> Vec<(usize, Option<Error>)> {
    let simple = live
        .iter()
        .copied()
        .filter(|&i| chunk[i].node.name == SIMPLE);
    let reads =
        join_all(simple.map(|i| async move { (i, session.driver.read(&chunk[i].path).await) }))
            .await;
    let mut missing = Vec::new();
    for (i, read) in reads {
        match read {
            Ok(node) if node.czxid == chunk[i].node.czxid => {}
            Ok(_) | Err(Fault::NoNode | Fault::Expired) => missing.push((i, None)),
            Err(other) => missing.push((i, Some(other.into_error("renew")))),
        }
    }
    missing
}
