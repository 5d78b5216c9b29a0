//! The order of a line: whom a claim waits for, and who is next when the key becomes free.

use std::time::Duration;

use super::state::{Held, Line, Origin, Place};
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::model::token::FencingToken;
use crate::store::Claim;

/// How long a handover lasts, at most the claim's TTL: the time that a waiter has to ask again.
pub(crate) const HANDOVER_TIME: Duration = Duration::from_secs(1);

/// Whom a store wakes after a request.
#[derive(Debug, Default)]
#[must_use = "whoever is not woken polls"]
pub(crate) struct Wakes {
    /// The claims that were granted by a handover.
    pub(crate) handed_over: Vec<(OwnerToken, Origin)>,
    /// Nobody holds the key or waits for it: a subscriber without a place may get it.
    pub(crate) is_free: bool,
    /// A rest begins, and these have a place: it serves nobody, but a job that they wait for may be
    /// done.
    pub(crate) at_rest: Option<Vec<(OwnerToken, Origin)>>,
}

impl Line {
    /// Grants the key to the first places, as far as they go with the holders. A token that cannot
    /// be issued leaves the queue as it is: the next request reports the error.
    pub(super) fn hand_over(
        &mut self,
        now: Duration,
        token: &mut dyn FnMut() -> Result<FencingToken, Error>,
    ) -> Wakes {
        let mut wakes = Wakes::default();
        while let Some(first) = self.places.first() {
            if self.is_shut() || !self.goes_with_holders(&first.claim) {
                break;
            }
            let Ok(token) = token() else { break };
            let Some(place) = self.places.pop_first() else {
                break;
            };
            wakes.handed_over.push((place.claim.owner, place.origin));
            self.holders.push(Held {
                since: now,
                ends: now.saturating_add(place.claim.ttl.min(HANDOVER_TIME)),
                claim: place.claim,
                token,
                origin: place.origin,
                is_handover: true,
            });
        }
        wakes.is_free = self.holders.is_empty() && self.places.is_empty() && !self.is_shut();
        wakes
    }

    /// Nobody can enter, although nobody may hold.
    fn is_shut(&self) -> bool {
        self.barred.is_some() || self.rests.is_some()
    }

    /// Several holders all read, so the first one speaks for all.
    fn goes_with_holders(&self, claim: &Claim) -> bool {
        let first = self.holders.first();
        let fits = || (claim.share).is_none_or(|share| share.fits(self.holders.permits()));
        first.is_none_or(|held| held.claim.mode.is_compatible_with(claim.mode) && fits())
    }

    /// Whether the claim has to wait, and for how long: the first of its obstacles ends by itself
    /// after this time. `Some(None)` if many wait before it: it need not ask, because one of them
    /// asks earlier.
    pub(super) fn blocked_for(&mut self, claim: &Claim, now: Duration) -> Option<Option<Duration>> {
        let last = i64::MAX;
        let own = self.places.number_of(&claim.owner).unwrap_or(last);
        let is_free = self.goes_with_holders(claim) && !self.is_shut();
        let mode = claim.waits_as();
        if is_free && !self.places.is_before(own, mode) {
            return None;
        }
        let blocks = |other: &Claim| !other.waits_as().is_compatible_with(mode);
        let (few, are_many) = self.places.few_before(own);
        if are_many && !claim.place_ttl.is_zero() {
            return Some(None);
        }
        let holders = (!self.goes_with_holders(claim)).then(|| self.holders.next_end());
        let ends = (few
            .filter(|place| blocks(&place.claim))
            .map(|place| place.ends))
        .chain(holders)
        .chain(self.barred)
        .chain(self.rests)
        .min();
        Some(ends.map(|ends| ends.saturating_sub(now)))
    }

    /// The claim gets a place at the end of the queue, or keeps its own. A claim that is asked only
    /// once gets none.
    pub(super) fn keep_place(&mut self, claim: &Claim, origin: Origin, now: Duration) {
        if claim.place_ttl.is_zero() {
            return;
        }
        let ends = now.saturating_add(claim.place_ttl);
        match self.places.get(&claim.owner) {
            // With those of its process, see `keep_places`.
            Some(place) if place.ends >= ends => {}
            Some(_) => {
                self.places.set_ends(&claim.owner, ends);
            }
            None => self.places.push(Place {
                claim: claim.clone(),
                ends,
                origin,
            }),
        }
    }

    /// Keeps the places of the waiters of a process that still wait, for a quarter longer than
    /// their own requests do. So of a crowd that asks to keep its places, one now and then changes
    /// something. `last_asked` says when such a waiter has asked last. Its next request is due half
    /// of its place's time later: if that does not come, its place is kept as if it had come then,
    /// and no more after that.
    #[cfg(target_os = "linux")]
    pub(crate) fn keep_places(
        &mut self,
        process: u64,
        now: Duration,
        last_asked: impl Fn(&OwnerToken) -> Option<Duration>,
    ) {
        self.places.extend(|place| {
            let Claim {
                owner, place_ttl, ..
            } = &place.claim;
            let longer_by = |from: Duration, part| {
                from.saturating_add(*place_ttl)
                    .saturating_add(*place_ttl / part)
            };
            if place.origin.process != process || place.ends >= longer_by(now, 8) {
                return None;
            }
            let next = last_asked(owner)?.saturating_add(*place_ttl / 2);
            Some(longer_by(now.min(next), 4))
        });
    }
}
