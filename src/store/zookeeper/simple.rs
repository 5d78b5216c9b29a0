//! The simple lock: one ephemeral node. Who makes it holds the lock; the others watch it, and all wake when it goes.
//!
//! Its path is used again, so that nothing may be told from its being there: its data names the claim, and its `czxid` the
//! grant. A client that queues on the same key takes the node for the first contender, and this lock gives way to any
//! contender that it finds, so that the two modes exclude each other.

use futures_util::future::join;

use super::driver::{Fault, Kind, Node};
use super::keeper::Shared;
use super::names::{self, SIMPLE};
use super::place::{Place, Spot, Standing};
use super::queue::{Blind, Look, barred_for, blind};
use super::said::Said;
use super::session::Session;
use crate::model::error::Error;

/// As for the queue.
const TRIES: usize = 4;

/// Makes the node, if the claim does not hold it.
pub(crate) async fn look(shared: &Shared, session: &Session, place: &Place) -> Result<Look, Blind> {
    let path = path(place);
    for _ in 0..TRIES {
        match place.standing() {
            Standing::Nowhere => {}
            _ => match find(session, place, &path)
                .await
                .map_err(|f| blind(f, "look for our node"))?
            {
                Some(node) if node.owner == session.id => {
                    let mut spot = spot(session, node.czxid);
                    spot.is_granted =
                        matches!(place.standing(), Standing::At(known) if known.is_granted);
                    if spot.is_granted {
                        place.stand(Standing::At(spot.clone()));
                        return Ok(Look::First(spot));
                    }
                    // Made, but its answer was lost: whether a contender was there before is not known.
                    remove(session, place)
                        .await
                        .map_err(|f| blind(f, "delete our node"))?;
                }
                Some(_) => {
                    remove(session, place)
                        .await
                        .map_err(|f| blind(f, "delete our old node"))?;
                }
                None if place.held_in(session.id).is_some() => return Ok(Look::TakenAway),
                None => place.stand(Standing::Nowhere),
            },
        }
        place.stand(Standing::InDoubt);
        let said = Said {
            head: format!("{} {}", place.guid, place.claim.label),
            ttl: Some(session.ttl),
            reads: false,
        };
        let data = said.encode();
        let sent_at = shared.clock.stamp();
        let create = session.driver.create(&path, &data, Kind::Ephemeral);
        let (made, children) = join(create, session.driver.children(&place.parent)).await;
        let made = match made {
            Ok(made) => made,
            Err(Fault::Exists) => {
                place.stand(Standing::Nowhere);
                return Ok(Look::Behind(None));
            }
            Err(Fault::NoNode) => {
                place.stand(Standing::Nowhere);
                session
                    .make_parents(&place.parent)
                    .await
                    .map_err(Blind::Error)?;
                continue;
            }
            Err(other) => {
                let failed = blind(other, "make the lock's node");
                if matches!(failed, Blind::Error(_)) {
                    place.stand(Standing::Nowhere);
                }
                return Err(failed);
            }
        };
        if made.owner != session.id {
            return Err(Blind::Error(Error::corrupt(
                "zookeeper made our node for another session; look at the servers",
            )));
        }
        session.proven(sent_at);
        let children = children.map_err(|f| blind(f, "list the contenders"))?;
        let mut spot = spot(session, made.czxid);
        place.stand(Standing::At(spot.clone()));
        let others = names::contenders(children).map_err(Blind::Error)?;
        if others.iter().any(|other| other.name != SIMPLE) {
            remove(session, place)
                .await
                .map_err(|f| blind(f, "give way to a contender"))?;
            let left = barred_for(shared, session, place, &others).await?;
            return Ok(Look::Behind(left));
        }
        spot.is_granted = true;
        place.stand(Standing::At(spot.clone()));
        return Ok(Look::First(spot));
    }
    Err(Blind::Error(
        Fault::NoNode.into_error("make the lock's node"),
    ))
}

/// Deletes the node, if it is the claim's. Whether it was.
pub(crate) async fn remove(session: &Session, place: &Place) -> Result<bool, Fault> {
    let path = path(place);
    if place.standing() == Standing::Nowhere {
        return Ok(false);
    }
    let was_there = match find(session, place, &path).await? {
        Some(node) => match session.driver.delete(&path, Some(node.version)).await {
            Ok(()) => true,
            Err(Fault::NoNode | Fault::BadVersion) => false,
            Err(other) => return Err(other),
        },
        None => false,
    };
    place.stand(Standing::Nowhere);
    Ok(was_there)
}

/// The lock's node, if it was made for this claim.
async fn find(session: &Session, place: &Place, path: &str) -> Result<Option<Node>, Fault> {
    session.sync(path).await?;
    match session.driver.read(path).await {
        Ok(node) if node.data.starts_with(place.guid.as_bytes()) => Ok(Some(node)),
        Ok(_) | Err(Fault::NoNode) => Ok(None),
        Err(other) => Err(other),
    }
}

fn spot(session: &Session, czxid: i64) -> Spot {
    Spot {
        session: session.id,
        name: SIMPLE.to_owned(),
        czxid,
        is_granted: false,
        predecessor: None,
    }
}

fn path(place: &Place) -> String {
    format!("{}/{SIMPLE}", place.parent)
}
