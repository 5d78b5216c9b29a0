//! [`Line`]: the holders of one key and its queue. Pure: the time is an argument.

use std::time::Duration;

use crate::clock::Stamp;
use crate::model::holder::OwnerToken;
use crate::model::token::FencingToken;
use crate::store::{Claim, LockMode};

/// One key: its holders, its queue, and until when nobody can enter.
#[derive(Debug, Default)]
pub(super) struct Line {
    holders: Vec<Held>,
    /// In the order of arrival.
    places: Vec<Place>,
    /// A hold was revoked, and its lease may last until then.
    barred: Option<Stamp>,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) claim: Claim,
    pub(super) token: FencingToken,
    pub(super) ends: Stamp,
}

/// A place in the queue: a short lease that its waiter renews with each request.
#[derive(Debug)]
struct Place {
    owner: OwnerToken,
    mode: LockMode,
    ends: Stamp,
}

/// The claim cannot enter now. The first of its obstacles ends by itself in `remaining`.
#[derive(Debug)]
pub(super) struct Busy {
    pub(super) remaining: Duration,
}

fn is_over(ends: &Stamp, now: &Stamp) -> bool {
    ends.since(now).is_zero()
}

impl Line {
    /// Removes expired holds, places and revocation barriers: all dead waiters at once, not one after the other.
    fn forget_what_is_over(&mut self, now: &Stamp) {
        self.holders.retain(|held| !is_over(&held.ends, now));
        self.places.retain(|place| !is_over(&place.ends, now));
        self.barred = self.barred.filter(|until| !is_over(until, now));
    }

    /// Whether every hold, place and barrier has expired.
    pub(super) fn is_idle(&self, now: &Stamp) -> bool {
        (self.holders.iter().map(|held| &held.ends))
            .chain(self.places.iter().map(|place| &place.ends))
            .chain(&self.barred)
            .all(|ends| is_over(ends, now))
    }

    /// The live hold of a claim.
    pub(super) fn held_by(&mut self, owner: &OwnerToken, now: &Stamp) -> Option<&mut Held> {
        self.holders
            .iter_mut()
            .find(|held| held.claim.owner == *owner && !is_over(&held.ends, now))
    }

    /// Whether the claim can enter now. If not, a claim that queues gets a place.
    pub(super) fn may_enter(&mut self, claim: &Claim, now: &Stamp) -> Result<(), Busy> {
        self.forget_what_is_over(now);
        let place = self.places.iter().position(|p| p.owner == claim.owner);
        let ahead = &self.places[..place.unwrap_or(self.places.len())];
        let blocked_by = (self.holders.iter())
            .filter(|held| !held.claim.mode.goes_with(claim.mode))
            .map(|held| &held.ends)
            .chain(
                (ahead.iter())
                    .filter(|place| !place.mode.goes_with(claim.mode))
                    .map(|place| &place.ends),
            )
            .chain(&self.barred);
        let Some(remaining) = blocked_by.map(|ends| ends.since(now)).min() else {
            return Ok(());
        };
        if claim.queues() && !claim.place_ttl.is_zero() {
            self.keep_place(claim, place, now);
        }
        Err(Busy { remaining })
    }

    fn keep_place(&mut self, claim: &Claim, place: Option<usize>, now: &Stamp) {
        let ends = now.plus(claim.place_ttl);
        match place {
            Some(index) => self.places[index].ends = ends,
            None => self.places.push(Place {
                owner: claim.owner,
                mode: claim.mode,
                ends,
            }),
        }
    }

    /// Makes the claim a holder and removes its place.
    pub(super) fn enter(&mut self, held: Held) {
        self.places.retain(|place| place.owner != held.claim.owner);
        self.holders.push(held);
    }

    /// Removes a claim from the holders and the queue. True if it was in one of them.
    pub(super) fn leave(&mut self, owner: &OwnerToken) -> bool {
        let before = self.holders.len() + self.places.len();
        self.holders.retain(|held| held.claim.owner != *owner);
        self.places.retain(|place| place.owner != *owner);
        self.holders.len() + self.places.len() < before
    }

    /// Takes every live hold away. With `bar` nobody can enter before their time is over.
    pub(super) fn revoke(&mut self, bar: bool, now: &Stamp) -> Vec<Held> {
        self.forget_what_is_over(now);
        let revoked = std::mem::take(&mut self.holders);
        if bar {
            let last = revoked.iter().map(|held| held.ends).chain(self.barred);
            self.barred = last.max_by_key(|ends| ends.since(now));
        } else {
            self.barred = None;
        }
        revoked
    }

    /// How long nobody can enter because of a revocation.
    pub(super) fn barred_for(&self, now: &Stamp) -> Duration {
        self.barred.map_or(Duration::ZERO, |until| until.since(now))
    }

    pub(super) fn holders(&self, now: &Stamp) -> impl Iterator<Item = &Held> {
        let now = *now;
        self.holders
            .iter()
            .filter(move |held| !is_over(&held.ends, &now))
    }

    /// The number of live places.
    pub(super) fn waiting(&self, now: &Stamp) -> usize {
        let live = |place: &&Place| !is_over(&place.ends, now);
        self.places.iter().filter(live).count()
    }
}
