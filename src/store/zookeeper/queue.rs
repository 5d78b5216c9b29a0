//! The queue: ephemeral sequential nodes, as Apache Curator's `InterProcessMutex` and `InterProcessReadWriteLock` lay them out.
//!
//! Every child of the key's node that ends in a sequence number contends, whoever made it. The first holds the lock; each
//! of the others watches the [one that it waits for](super::order), so that a release wakes one waiter and no herd. That this
//! one vanished is no grant: it may have given up, and another stands before it.
//!
//! The list is asked for right behind the create, on the same session, so that it shows everything that came before our
//! node: who is first in it stays first. (P. Hunt et al., "ZooKeeper: wait-free coordination for internet-scale systems",
//! 2010, section 2.4, "Simple Locks without Herd Effect".)

use futures_util::future::join;

use std::time::Duration;

use super::bars;
use super::downgrade::reads;
use super::driver::{Fault, Kind};
use super::keeper::Shared;
use super::names::{self, Contender};
use super::order::{self, Standing as Order};
use super::place::{Place, Spot, Standing};
use super::session::Session;
use crate::model::error::Error;

/// How many times the key's node may vanish under our hands before the answer is that it cannot be told.
const TRIES: usize = 4;

/// What one look shows.
#[derive(Debug)]
pub(crate) enum Look {
    /// The lock is ours.
    First(Spot),
    /// Somebody else is before us. A bar keeps us out for so long at least, if there is one.
    Behind(Option<Duration>),
    /// The lock was ours, and somebody took it away.
    TakenAway,
}

/// Why a look failed.
#[derive(Debug)]
pub(crate) enum Blind {
    /// The connection or the session broke: what is known of our node may be old, and has to be settled.
    Broken(Fault),
    /// The answer is an error.
    Error(Error),
}

/// Joins the queue, if the claim is not in it, and looks who is first.
pub(crate) async fn look(shared: &Shared, session: &Session, place: &Place) -> Result<Look, Blind> {
    for _ in 0..TRIES {
        let known = match place.standing() {
            Standing::At(spot) if spot.session == session.id => Some(spot),
            Standing::At(_) | Standing::InDoubt => settle(session, place).await?,
            Standing::Nowhere => None,
        };
        let (spot, children) = match known {
            Some(spot) => {
                let children = session.driver.children(&place.parent).await;
                (spot, children)
            }
            None => match join_queue(shared, session, place).await? {
                Some(joined) => joined,
                None => continue,
            },
        };
        let contenders = match children {
            Ok(children) => names::contenders(children).map_err(Blind::Error)?,
            Err(Fault::NoNode) => Vec::new(),
            Err(other) => return Err(blind(other, "list the contenders")),
        };
        match judge(session, place, &spot, &contenders).await? {
            Judged::Missing if spot.is_granted => return Ok(Look::TakenAway),
            // Deleted by somebody else: our place is lost, and we join again behind the others.
            Judged::Missing => place.stand(Standing::Nowhere),
            Judged::Waits(predecessor) => {
                let is_first = predecessor.is_none();
                let spot = Spot {
                    is_granted: is_first,
                    predecessor,
                    ..spot
                };
                place.stand(Standing::At(spot.clone()));
                if is_first {
                    return Ok(Look::First(spot));
                }
                let left = barred_for(shared, session, place, &contenders).await?;
                return Ok(Look::Behind(left));
            }
        }
    }
    Err(Blind::Error(Fault::NoNode.into_error("join the queue")))
}

enum Judged {
    /// Our node is not there.
    Missing,
    /// For whom our node waits; for nobody if it is first.
    Waits(Option<String>),
}

async fn judge(
    session: &Session,
    place: &Place,
    spot: &Spot,
    contenders: &[Contender],
) -> Result<Judged, Blind> {
    let waits_for = match order::stand(contenders, &spot.name, spot.is_granted) {
        Order::Missing => return Ok(Judged::Missing),
        Order::First => None,
        Order::Behind(other) => Some(other),
        Order::BehindHolder(writer) => {
            let path = format!("{}/{}", place.parent, writer.name);
            let reads = reads(session, &path).await;
            let reads = reads.map_err(|f| blind(f, "look whether a writer reads now"))?;
            (!reads).then_some(writer)
        }
    };
    Ok(Judged::Waits(waits_for.map(|other| other.name.clone())))
}

/// How long the bars that are before everybody stand, if there are any.
pub(crate) async fn barred_for(
    shared: &Shared,
    session: &Session,
    place: &Place,
    contenders: &[Contender],
) -> Result<Option<Duration>, Blind> {
    let bars = order::bars(contenders);
    if bars.is_empty() {
        return Ok(None);
    }
    let left = bars::left(shared, session, &place.parent, bars).await;
    let left = left.map_err(|f| blind(f, "look at a bar"))?;
    Ok((!left.is_zero()).then_some(left))
}

type Joined = (Spot, Result<Vec<String>, Fault>);

/// Makes our node, and lists behind it. `None`: the key's node was missing and was made; try again.
async fn join_queue(
    shared: &Shared,
    session: &Session,
    place: &Place,
) -> Result<Option<Joined>, Blind> {
    let prefix = names::queue_prefix(&place.guid, place.claim.mode);
    let path = format!("{}/{prefix}", place.parent);
    let data = place.said(session.ttl, false).encode();
    // Said before it is sent: a caller who goes away now leaves a node that is found again by its guid.
    place.stand(Standing::InDoubt);
    let sent_at = shared.clock.stamp();
    let create = session.driver.create(&path, &data, Kind::Sequential);
    let (made, children) = join(create, session.driver.children(&place.parent)).await;
    let made = match made {
        Ok(made) => made,
        Err(Fault::NoNode) => {
            place.stand(Standing::Nowhere);
            session
                .make_parents(&place.parent)
                .await
                .map_err(Blind::Error)?;
            return Ok(None);
        }
        Err(broken @ (Fault::InDoubt(_) | Fault::Expired)) => return Err(Blind::Broken(broken)),
        Err(other) => {
            place.stand(Standing::Nowhere);
            return Err(Blind::Error(other.into_error("make a contender's node")));
        }
    };
    let spot = Spot {
        session: made.owner,
        name: format!("{prefix}{:010}", made.sequence),
        czxid: made.czxid,
        is_granted: false,
        predecessor: None,
    };
    place.stand(Standing::At(spot.clone()));
    if made.owner != session.id {
        return Err(Blind::Error(Error::corrupt(
            "zookeeper made our node for another session; look at the servers",
        )));
    }
    session.proven(sent_at);
    Ok(Some((spot, children)))
}

/// Finds the nodes of a claim whose fate is in doubt: keeps the lowest of this session and deletes the rest.
async fn settle(session: &Session, place: &Place) -> Result<Option<Spot>, Blind> {
    let mut kept = None;
    for name in ours(session, place)
        .await
        .map_err(|f| blind(f, "look for our node"))?
    {
        let path = format!("{}/{name}", place.parent);
        if kept.is_none() {
            match session.driver.read(&path).await {
                Ok(node) if node.owner == session.id => {
                    kept = Some(Spot {
                        session: session.id,
                        name,
                        czxid: node.czxid,
                        is_granted: false,
                        predecessor: None,
                    });
                    continue;
                }
                Ok(_) => {}
                Err(Fault::NoNode) => continue,
                Err(other) => return Err(blind(other, "look at our node")),
            }
        }
        match session.driver.delete(&path, None).await {
            Ok(()) | Err(Fault::NoNode) => {}
            Err(other) => return Err(blind(other, "delete a spare node of ours")),
        }
    }
    place.stand(match &kept {
        Some(spot) => Standing::At(spot.clone()),
        None => Standing::Nowhere,
    });
    Ok(kept)
}

/// The names of all nodes of the claim, of whatever session, lowest first.
async fn ours(session: &Session, place: &Place) -> Result<Vec<String>, Fault> {
    // The server that we talk to now may not have seen yet what another one did for us.
    session.sync(&place.parent).await?;
    let mut names = match session.driver.children(&place.parent).await {
        Ok(children) => children,
        Err(Fault::NoNode) => Vec::new(),
        Err(other) => return Err(other),
    };
    let prefix = names::own_prefix(&place.guid);
    names.retain(|name| name.starts_with(&prefix));
    names.sort_unstable();
    Ok(names)
}

/// Deletes every node of the claim. Whether there was one.
pub(crate) async fn remove(session: &Session, place: &Place) -> Result<bool, Fault> {
    let names = match place.standing() {
        Standing::Nowhere => Vec::new(),
        Standing::At(spot) if spot.session == session.id => vec![spot.name],
        Standing::At(_) | Standing::InDoubt => ours(session, place).await?,
    };
    let mut was_there = false;
    for name in names {
        match session
            .driver
            .delete(&format!("{}/{name}", place.parent), None)
            .await
        {
            Ok(()) => was_there = true,
            Err(Fault::NoNode) => {}
            Err(other) => return Err(other),
        }
    }
    place.stand(Standing::Nowhere);
    Ok(was_there)
}

pub(crate) fn blind(fault: Fault, what: &str) -> Blind {
    match fault {
        Fault::InDoubt(_) | Fault::Expired => Blind::Broken(fault),
        other => Blind::Error(other.into_error(what)),
    }
}
