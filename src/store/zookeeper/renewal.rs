//! The heartbeat of what is held: every renewal proves every hold, not only the session.

use futures_util::future::join_all;

use super::bars;
use super::driver::{Fault, Missing};
use super::keeper::Shared;
use super::names::SIMPLE;
use super::place::{Place, Spot};
use super::session::Session;
use crate::model::error::Error;
use crate::store::{Grant, Renewed};
use std::sync::Arc;

/// How many holds one request proves. A path is at most some 300 bytes, and the server takes requests of 1 MB.
pub(crate) const HOLDS_PER_REQUEST: usize = 500;
/// How often a request that a missing node spoiled is sent again without it.
const TRIES: usize = 3;

struct Hold<'a> {
    place: Arc<Place>,
    spot: Spot,
    path: String,
    answer: &'a mut Renewed,
}

/// Renews grants of one session: one answer for each, in their order.
pub(crate) async fn renew(shared: &Shared, session: &Session, grants: &[Grant]) -> Vec<Renewed> {
    let mut answers: Vec<_> = grants.iter().map(|_| Renewed::Gone).collect();
    let mut holds = Vec::with_capacity(grants.len());
    for (grant, answer) in grants.iter().zip(&mut answers) {
        let held = (shared.places.of(&grant.claim)).and_then(|place| {
            let spot = place.held_in(session.id)?;
            (u64::try_from(spot.czxid) == Ok(grant.token.number())).then_some((place, spot))
        });
        if let Some((place, spot)) = held {
            let path = place.path(&spot);
            holds.push(Hold {
                place,
                spot,
                path,
                answer,
            });
        }
    }
    let chunks = holds.chunks_mut(HOLDS_PER_REQUEST);
    join_all(chunks.map(|chunk| renew_chunk(shared, session, chunk))).await;
    answers
}

async fn renew_chunk(shared: &Shared, session: &Session, chunk: &mut [Hold<'_>]) {
    let asked_at = shared.clock.stamp();
    let mut live: Vec<usize> = (0..chunk.len()).collect();
    for _ in 0..TRIES {
        let paths: Vec<String> = live.iter().map(|&i| chunk[i].path.clone()).collect();
        match session.beat(&paths).await {
            Ok(()) => {
                let missing = check_simple(session, chunk, &live).await;
                let proof = session.proof();
                for i in live {
                    let hold = &mut chunk[i];
                    *hold.answer = match missing.iter().find(|(at, _)| *at == i) {
                        None => {
                            hold.place.keep(&asked_at, session.ttl);
                            Renewed::Extended(proof)
                        }
                        Some((_, None)) => Renewed::Gone,
                        Some((_, Some(error))) => Renewed::Unknown(error.clone()),
                    };
                }
                return;
            }
            Err(Missing::Held) => match still_there(session, chunk, &live).await {
                Ok(there) => {
                    for i in live.iter().filter(|i| !there.contains(i)) {
                        bars::notice(shared, session, &chunk[*i].place.parent).await;
                    }
                    live = there;
                }
                Err(fault) => return answer(chunk, &live, fault),
            },
            Err(Missing::Own) => return answer(chunk, &live, Fault::NoNode),
            Err(Missing::Fault(fault)) => return answer(chunk, &live, fault),
        }
    }
    answer(chunk, &live, Fault::NoNode);
}

/// The session is over: so are its holds. Anything else proves nothing.
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
    let reads = join_all(live.iter().map(|&i| session.driver.read(&chunk[i].path))).await;
    let mut there = Vec::with_capacity(live.len());
    for (&i, read) in live.iter().zip(reads) {
        match read {
            Ok(node) if node.czxid == chunk[i].spot.czxid => there.push(i),
            Ok(_) | Err(Fault::NoNode) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(there)
}

/// The path of a simple lock is used again, so that its node's being there proves nothing. It is read *behind* the
/// heartbeat, on the same session: a node that is ours after the heartbeat was ours at it.
async fn check_simple(
    session: &Session,
    chunk: &[Hold<'_>],
    live: &[usize],
) -> Vec<(usize, Option<Error>)> {
    let simple = live
        .iter()
        .copied()
        .filter(|&i| chunk[i].spot.name == SIMPLE);
    let reads =
        join_all(simple.map(|i| async move { (i, session.driver.read(&chunk[i].path).await) }))
            .await;
    let mut missing = Vec::new();
    for (i, read) in reads {
        match read {
            Ok(node) if node.czxid == chunk[i].spot.czxid => {}
            Ok(_) | Err(Fault::NoNode | Fault::Expired) => missing.push((i, None)),
            Err(other) => missing.push((i, Some(other.into_error("renew")))),
        }
    }
    missing
}
