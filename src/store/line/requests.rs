//! The requests to a line: each is one step, and answers with data.

use std::time::Duration;

use super::queue::Wakes;
use super::state::{Held, Line, Origin, Place};
use crate::model::error::{Ended, Error, ErrorKind};
use crate::model::holder::OwnerToken;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::{
    Acquired, Claim, Grant, GrantProof, LockMode, Released, Renewed, Revoke, Revoked,
};

type NextToken<'a> = &'a mut dyn FnMut() -> Result<FencingToken, Error>;

/// A claim, where it comes from, and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) origin: Origin,
    pub(crate) now: Duration,
}

impl Line {
    /// One attempt of a claim. If it has to wait, it gets a place, or keeps its own.
    pub(crate) fn acquire(
        &mut self,
        asked: Asked<'_>,
        token: NextToken<'_>,
    ) -> Result<(Acquired, Wakes), Error> {
        let Asked { claim, origin, now } = asked;
        self.forget_what_is_over(now);
        if self.revoked.iter().any(|(owner, _)| *owner == claim.owner) {
            return Err(withdrawn(&claim.key));
        }
        let reads = |held: &mut Held| held.claim.mode == LockMode::Read;
        if claim.mode != LockMode::Read && self.held_by(&claim.owner, now).is_some_and(reads) {
            // A request to write, from before its downgrade.
            return Err(withdrawn(&claim.key));
        }
        if self.places.number_of(&claim.owner).is_some() {
            self.keep_place(claim, origin, now);
        }
        // A hold that ran out is handed over by whoever asks first.
        let mut wakes = self.hand_over(now, token);
        wakes.handed_over.retain(|(owner, _)| *owner != claim.owner);
        wakes.is_free = false;
        self.confirm(asked);
        if let Some(held) = self.held_by(&claim.owner, now) {
            let proof = GrantProof::of(held.remaining(now));
            let grant = Grant::new(claim.clone(), held.token, proof);
            return Ok((Acquired::Granted(grant), wakes));
        }
        if let Some(remaining) = self.blocked_for(claim, now) {
            self.keep_place(claim, origin, now);
            return Ok((Acquired::Busy { remaining }, wakes));
        }
        let held = Held {
            claim: claim.clone(),
            token: token()?,
            since: now,
            ends: now.saturating_add(claim.ttl),
            origin,
            is_handover: false,
        };
        let grant = Grant::new(claim.clone(), held.token, GrantProof::of(claim.ttl));
        self.holders.push(held);
        Ok((Acquired::Granted(grant), wakes))
    }

    /// A claim that was granted by a handover has asked: from here it holds for its full TTL.
    fn confirm(&mut self, asked: Asked<'_>) {
        let Asked { claim, now, .. } = asked;
        let held = self.held_by(&claim.owner, now);
        if held.is_some_and(|held| std::mem::take(&mut held.is_handover)) {
            (self.holders).set_ends(&claim.owner, now.saturating_add(claim.ttl));
        }
    }

    /// Extends a hold.
    pub(crate) fn renew(&mut self, claim: &Claim, now: Duration) -> Renewed {
        let Some(held) = self.held_by(&claim.owner, now) else {
            return Renewed::Gone;
        };
        held.is_handover = false;
        (self.holders).set_ends(&claim.owner, now.saturating_add(claim.ttl));
        Renewed::Extended(GrantProof::of(claim.ttl))
    }

    /// Ends a hold.
    pub(crate) fn release(
        &mut self,
        owner: &OwnerToken,
        now: Duration,
        token: NextToken<'_>,
    ) -> (Released, Wakes) {
        if self.held_by(owner, now).is_none() {
            return (Released::AlreadyGone, Wakes::default());
        }
        (Released::Released, self.withdraw(owner, now, token))
    }

    /// Ends a hold, and lets the key rest. Everybody who waits is woken once.
    pub(crate) fn rest(
        &mut self,
        owner: &OwnerToken,
        rest: Duration,
        now: Duration,
        token: NextToken<'_>,
    ) -> (Released, Wakes) {
        let is_held = self.held_by(owner, now).is_some();
        if is_held {
            self.rests = self.rests.max(Some(now.saturating_add(rest)));
        }
        let (released, mut wakes) = self.release(owner, now, token);
        let waiting = self.places.iter();
        wakes.at_rest = is_held.then(|| {
            waiting
                .map(|place| (place.claim.owner, place.origin))
                .collect()
        });
        (released, wakes)
    }

    /// Removes a claim from the holders and from the queue.
    pub(crate) fn withdraw(
        &mut self,
        owner: &OwnerToken,
        now: Duration,
        token: NextToken<'_>,
    ) -> Wakes {
        let (held, place) = (self.holders.remove(owner), self.places.remove(owner));
        if held.is_none() && place.is_none() {
            return Wakes::default();
        }
        self.forget_what_is_over(now);
        self.hand_over(now, token)
    }

    /// Takes back a handover to a claim whose process seems to have ended. One that has asked since
    /// then holds, and keeps it.
    #[cfg(target_os = "linux")]
    pub(crate) fn skip(
        &mut self,
        owner: &OwnerToken,
        now: Duration,
        token: NextToken<'_>,
    ) -> Wakes {
        if !(self.holders.get_mut(owner)).is_some_and(|held| held.is_handover) {
            return Wakes::default();
        }
        self.withdraw(owner, now, token)
    }

    /// Ends the holds and places of processes that have ended.
    #[cfg(target_os = "linux")]
    pub(crate) fn end_dead(
        &mut self,
        is_dead: impl Fn(u64) -> bool,
        now: Duration,
        token: NextToken<'_>,
    ) -> Wakes {
        if !self.forget_dead(is_dead) {
            return Wakes::default();
        }
        self.forget_what_is_over(now);
        self.hand_over(now, token)
    }

    /// A writer becomes a reader, without a gap.
    pub(crate) fn downgrade(
        &mut self,
        claim: &Claim,
        now: Duration,
        token: NextToken<'_>,
    ) -> Result<(Grant, Wakes), Error> {
        let key = &claim.key;
        let held = self
            .held_by(&claim.owner, now)
            .ok_or_else(|| not_held(key))?;
        if held.claim.mode == LockMode::Exclusive {
            return Err(Error::invalid(format!(
                "an exclusive hold cannot become a read hold: key={key}; take a write lock"
            )));
        }
        held.claim.mode = LockMode::Read;
        let proof = GrantProof::of(held.remaining(now));
        let grant = Grant::new(held.claim.clone(), held.token, proof);
        self.forget_what_is_over(now);
        Ok((grant, self.hand_over(now, token)))
    }

    /// Takes every hold away.
    pub(crate) fn revoke(
        &mut self,
        how: Revoke,
        now: Duration,
        token: NextToken<'_>,
    ) -> (Revoked, Wakes) {
        self.forget_what_is_over(now);
        let (handed_over, holders): (Vec<_>, Vec<_>) =
            std::iter::from_fn(|| self.holders.pop_first()).partition(|held| held.is_handover);
        // A waiter that has not asked since its handover does not know that it holds: it waits on,
        // first in the queue.
        let called = handed_over.into_iter().map(|held| held.into_place(now));
        self.places.put_before(called.collect());
        self.barred = match how {
            Revoke::AfterTtl => holders
                .iter()
                .map(|held| held.ends)
                .chain(self.barred)
                .max(),
            Revoke::Now => None,
        };
        let rest = self.rests.take_if(|_| how == Revoke::Now);
        let remembered = holders
            .iter()
            .map(|held| (held.claim.owner, now.saturating_add(held.claim.ttl)));
        self.revoked.extend(remembered);
        let free_in = self.barred_for(now);
        let wakes = self.hand_over(now, token);
        if holders.is_empty() && rest.is_none() {
            return (Revoked::NotHeld, wakes);
        }
        (Revoked::Revoked { free_in }, wakes)
    }
}

impl Held {
    fn into_place(self, now: Duration) -> Place {
        Place {
            ends: now.saturating_add(self.claim.place_ttl),
            claim: self.claim,
            origin: self.origin,
        }
    }
}

pub(super) fn withdrawn(key: &Key) -> Error {
    Error::invalid(format!(
        "this claim was withdrawn: key={key}; make a new claim"
    ))
}

pub(crate) fn not_held(key: &Key) -> Error {
    Error::new(
        ErrorKind::Lost(Ended::Gone),
        format!("the claim does not hold the lock: key={key}; acquire it again"),
    )
}
