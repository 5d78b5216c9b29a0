//! One attempt to hold, whatever the mode; and what undoes it.

use std::sync::Arc;

use futures_util::future::ready;

use super::driver::Fault;
use super::keeper::{Shared, State};
use super::names;
use super::options::ZooKeeperMode;
use super::place::{Place, Standing, withdrawn};
use super::queue::{self, Blind, Look};
use super::session::Session;
use super::{closed, simple};
use crate::model::error::{Error, ErrorKind};
use crate::model::token::FencingToken;
use crate::store::{Acquired, Claim, Grant, Hint, LockMode};

/// How many broken connections or ended sessions one attempt outlives.
const TRIES: usize = 3;

impl Shared {
    /// The session, once requests can leave: nothing is queued in a connection that is not there.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, Error> {
        let limit = self.options.session_timeout;
        (self.clock.timeout(limit, self.wait_for_session()).await).unwrap_or_else(|| {
            Err(Error::unavailable(format!(
                "no connection to zookeeper within {limit:?}; nothing was sent, try again"
            )))
        })
    }

    async fn wait_for_session(&self) -> Result<Arc<Session>, Error> {
        let mut state = self.state.subscribe();
        loop {
            let seen = state.borrow_and_update().clone();
            match seen {
                State::Open(session) => {
                    if session.driver.connected().await.is_ok() {
                        return Ok(session);
                    }
                }
                State::Opening(Some(error)) if error.kind() != ErrorKind::Unavailable => {
                    return Err(error);
                }
                State::Opening(_) => {}
                State::Closed => return Err(closed()),
            }
            // The sender lives in `self`, so that this ends only with a change.
            let _ = state.changed().await;
        }
    }
}

pub(super) async fn acquire(shared: &Shared, claim: &Claim) -> Result<Acquired, Error> {
    let ttl = shared.options.session_timeout;
    if shared.options.mode == ZooKeeperMode::Simple && claim.mode != LockMode::Exclusive {
        return Err(Error::unsupported(format!(
            "the simple lock of zookeeper has no read and write modes: key={}; leave out mode=simple",
            claim.key
        )));
    }
    let place = shared
        .places
        .enter(claim, &shared.options.chroot, &shared.clock.stamp(), ttl)?;
    let _turn = place.turn.lock().await;
    // `Unavailable` says that nothing happened: never where a node of ours may be there.
    let honest = |error: Error| {
        if error.kind() != ErrorKind::Unavailable || place.standing() == Standing::Nowhere {
            return error;
        }
        Error::in_doubt(
            "zookeeper refused in the midst of an attempt; withdraw the claim or ask again",
        )
        .because(error)
    };
    let mut last = None;
    for _ in 0..TRIES {
        let session = shared.session().await.map_err(honest)?;
        if place.is_withdrawn() {
            return Err(withdrawn(claim));
        }
        let look = match shared.options.mode {
            ZooKeeperMode::Queue => queue::look(shared, &session, &place).await,
            ZooKeeperMode::Simple => simple::look(shared, &session, &place).await,
        };
        match look {
            Ok(Look::Behind(remaining)) => {
                if place.standing() == Standing::Nowhere {
                    shared.places.leave(&place);
                }
                return Ok(Acquired::Busy { remaining });
            }
            Ok(Look::TakenAway) => {
                shared.places.bury(&place, &shared.clock.stamp(), ttl);
                return Err(withdrawn(claim));
            }
            Ok(Look::First(spot)) => {
                let number = u64::try_from(spot.czxid).unwrap_or(u64::MAX);
                let token = FencingToken::new(number)?;
                place.keep(&shared.clock.stamp(), session.ttl);
                return Ok(Acquired::Granted(Grant::new(
                    claim.clone(),
                    token,
                    session.proof(),
                )));
            }
            Err(Blind::Broken(fault)) => last = Some(fault),
            Err(Blind::Error(error)) => return Err(honest(error)),
        }
    }
    let source = last.unwrap_or(Fault::Expired).into_error("acquire");
    Err(Error::in_doubt(
        "the connection to zookeeper broke again and again; withdraw the claim or ask again",
    )
    .because(source))
}

/// Deletes what the claim left in the tree, and forgets it. Whether there was anything.
pub(super) async fn remove(
    shared: &Shared,
    session: &Session,
    place: &Place,
) -> Result<bool, Error> {
    let was_held = place.held_in(session.id).is_some();
    let removed = match shared.options.mode {
        ZooKeeperMode::Queue => queue::remove(session, place).await,
        ZooKeeperMode::Simple => simple::remove(session, place).await,
    };
    let was_there = removed.map_err(|fault| fault.into_error("delete our node"))?;
    if was_held && !was_there {
        // Taken away: the claim is not to be granted again because it was released in between.
        shared
            .places
            .bury(place, &shared.clock.stamp(), session.ttl);
    } else {
        shared.places.leave(place);
    }
    Ok(was_there)
}

/// Deletes what nobody may still count on: grants that were not renewed for a TTL, claims that were withdrawn while the
/// server was away, places that nobody asks after.
pub(super) async fn sweep(shared: &Shared, session: &Session) {
    for place in shared.places.abandoned(&shared.clock.stamp()) {
        let Ok(_turn) = place.turn.try_lock() else {
            continue;
        };
        // It may have been asked after while the others were swept.
        if !place.is_abandoned(&shared.clock.stamp()) {
            continue;
        }
        if let Err(error) = remove(shared, session, &place).await {
            tracing::warn!(%error, key = %place.claim.key, "an abandoned zookeeper node could not be deleted yet");
        }
    }
}

pub(super) async fn subscribe(shared: &Shared, claim: &Claim) -> Result<Hint, Error> {
    let what = "watch a contender";
    let session = shared.session().await?;
    let parent = names::key_path(&shared.options.chroot, &claim.key)?;
    let standing = shared.places.of(claim).map(|place| place.standing());
    let predecessor = match standing {
        Some(Standing::At(spot)) if spot.session == session.id => spot.predecessor,
        // Not in the queue: whoever is last in it would be before us.
        _ => match session.driver.children(&parent).await {
            Ok(children) => names::contenders(children)?.pop().map(|last| last.name),
            Err(Fault::NoNode) => None,
            Err(other) => return Err(other.into_error(what)),
        },
    };
    let Some(predecessor) = predecessor else {
        return Ok(Hint::new(ready(())));
    };
    match session
        .driver
        .watch(&format!("{parent}/{predecessor}"))
        .await
    {
        Ok(changed) => Ok(Hint::new(changed)),
        Err(Fault::NoNode) => Ok(Hint::new(ready(()))),
        Err(other) => Err(other.into_error(what)),
    }
}
