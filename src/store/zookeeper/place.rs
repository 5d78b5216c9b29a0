//! [`Places`]: what this process remembers of each claim it put to the ensemble.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::names;
use super::said::Said;
use crate::clock::Stamp;
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::model::key::Key;
use crate::store::Claim;

/// The longest pause between two looks of a claim that waits: the longest `max_poll_interval`. A place that nobody has asked after
/// for this long and a TTL is given up, so that a forgotten waiter does not block the queue for the life of the session.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How many withdrawn claims and places are remembered before the old ones are looked through.
const SWEEP_AT: usize = 1_000;

/// Where one claim stands. Its nodes are found again by the guid, also after a reply was lost.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) claim: Claim,
    pub(crate) guid: String,
    /// The key's node.
    pub(crate) parent: String,
    /// One request of a claim at a time: a second create would be a second contender.
    pub(crate) turn: tokio::sync::Mutex<()>,
    is_withdrawn: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    standing: Standing,
    /// Until when the holder or the waiter is believed to be there without asking again.
    kept_until: Stamp,
}

/// What is known of the claim's node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// There is none.
    Nowhere,
    /// One was asked for, and no answer came yet.
    InDoubt,
    /// It was made.
    At(Spot),
}

/// A claim's node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    /// The session that it ends with.
    pub(crate) session: i64,
    pub(crate) name: String,
    pub(crate) czxid: i64,
    /// Whether the claim was granted: then nothing comes before it any more.
    pub(crate) is_granted: bool,
    /// Whom it was last seen to wait for.
    pub(crate) predecessor: Option<String>,
}

impl Place {
    pub(crate) fn standing(&self) -> Standing {
        self.state.lock().standing.clone()
    }

    pub(crate) fn stand(&self, standing: Standing) {
        self.state.lock().standing = standing;
    }

    /// The claim's node, if it was granted in this session.
    pub(crate) fn held_in(&self, session: i64) -> Option<Spot> {
        match self.standing() {
            Standing::At(spot) if spot.session == session && spot.is_granted => Some(spot),
            _ => None,
        }
    }

    /// What the claim's node says in a queue.
    pub(crate) fn said(&self, ttl: Duration, reads: bool) -> Said {
        Said {
            head: self.claim.label.as_str().to_owned(),
            ttl: Some(ttl),
            reads,
        }
    }

    pub(crate) fn path(&self, spot: &Spot) -> String {
        format!("{}/{}", self.parent, spot.name)
    }

    /// Somebody asked for this claim at `now`: keep its node a while.
    pub(crate) fn keep(&self, now: &Stamp, ttl: Duration) {
        let mut state = self.state.lock();
        let is_granted = matches!(&state.standing, Standing::At(spot) if spot.is_granted);
        state.kept_until = now.plus(if is_granted { ttl } else { ttl + LONGEST_PAUSE });
    }

    /// Whether nobody may still count on this place at `now`.
    pub(crate) fn is_abandoned(&self, now: &Stamp) -> bool {
        self.is_withdrawn() || self.state.lock().kept_until.since(now).is_zero()
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::SeqCst)
    }
}

/// The places of every claim that is held, waits, or is in doubt.
#[derive(Debug, Default)]
pub(crate) struct Places {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    places: HashMap<OwnerToken, Arc<Place>>,
    /// Claims that were withdrawn, until when: an acquire that is asked after its withdrawal is refused.
    withdrawn: HashMap<OwnerToken, Stamp>,
    sweep_at: usize,
}

impl Places {
    /// The place of a claim, made if it has none.
    ///
    /// # Errors
    ///
    /// `Invalid` if the claim was withdrawn or its key does not suit the tree.
    pub(crate) fn enter(
        &self,
        claim: &Claim,
        chroot: &str,
        now: &Stamp,
        ttl: Duration,
    ) -> Result<Arc<Place>, Error> {
        let parent = names::key_path(chroot, &claim.key)?;
        let mut inner = self.inner.lock();
        if inner.withdrawn.contains_key(&claim.owner) {
            return Err(withdrawn(claim));
        }
        if let Some(place) = inner.places.get(&claim.owner) {
            place.keep(now, ttl);
            return Ok(Arc::clone(place));
        }
        let place = Arc::new(Place {
            claim: claim.clone(),
            guid: names::new_guid()?,
            parent,
            turn: tokio::sync::Mutex::default(),
            is_withdrawn: AtomicBool::new(false),
            state: Mutex::new(State {
                standing: Standing::Nowhere,
                kept_until: now.plus(ttl + LONGEST_PAUSE),
            }),
        });
        inner.places.insert(claim.owner, Arc::clone(&place));
        Ok(place)
    }

    /// The places of every claim of a key.
    pub(crate) fn of_key(&self, key: &Key) -> Vec<Arc<Place>> {
        let inner = self.inner.lock();
        let places = inner.places.values();
        places
            .filter(|place| place.claim.key == *key)
            .cloned()
            .collect()
    }

    pub(crate) fn of(&self, claim: &Claim) -> Option<Arc<Place>> {
        self.inner.lock().places.get(&claim.owner).cloned()
    }

    /// From now on the claim is never granted. Gives its place, if it has one.
    pub(crate) fn withdraw(&self, claim: &Claim, now: &Stamp, ttl: Duration) -> Option<Arc<Place>> {
        let mut inner = self.inner.lock();
        inner.bury(claim, now, ttl);
        let place = inner.places.get(&claim.owner).cloned();
        if let Some(place) = &place {
            place.is_withdrawn.store(true, Ordering::SeqCst);
        }
        place
    }

    /// Forgets a place whose node somebody took away: its claim is never granted again.
    pub(crate) fn bury(&self, place: &Place, now: &Stamp, ttl: Duration) {
        let mut inner = self.inner.lock();
        inner.bury(&place.claim, now, ttl);
        inner.places.remove(&place.claim.owner);
    }

    /// Forgets a place whose nodes are gone.
    pub(crate) fn leave(&self, place: &Place) {
        self.inner.lock().places.remove(&place.claim.owner);
    }

    /// The places that nobody may still count on.
    pub(crate) fn abandoned(&self, now: &Stamp) -> Vec<Arc<Place>> {
        let inner = self.inner.lock();
        (inner.places.values())
            .filter(|place| place.is_abandoned(now))
            .cloned()
            .collect()
    }
}

impl Inner {
    fn bury(&mut self, claim: &Claim, now: &Stamp, ttl: Duration) {
        self.withdrawn
            .insert(claim.owner, now.plus(ttl + LONGEST_PAUSE));
        if self.withdrawn.len() > self.sweep_at {
            self.withdrawn
                .retain(|_, until| !until.since(now).is_zero());
            self.sweep_at = (2 * self.withdrawn.len()).max(SWEEP_AT);
        }
    }
}

pub(crate) fn withdrawn(claim: &Claim) -> Error {
    Error::invalid(format!(
        "this claim was withdrawn or taken away: key={}; make a new claim",
        claim.key
    ))
}
