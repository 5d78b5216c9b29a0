//! The book of claims: which attempt of which claim is under way, won, or withdrawn.
//!
//! A claim that waits asks again and again, and an attempt that lost is taken back from the
//! members. If both had the same owner token, a late withdrawal of the first attempt could free the
//! votes of the second. So every attempt votes with an owner token of its own; the caller's claim
//! is only its name in this book.

use std::collections::HashMap;
use std::time::Duration;

use super::votes::VoteSet;
use crate::clock::Stamp;
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::model::token::FencingToken;
use crate::store::Claim;

/// Fewer entries than this are not worth a sweep.
const SWEEP_FLOOR: usize = 2_000;

#[derive(Debug, Default)]
pub(super) struct Book {
    entries: HashMap<OwnerToken, BookEntry>,
    sweep_at: usize,
}

#[derive(Debug)]
struct BookEntry {
    attempt: OwnerToken,
    votes: VoteSet,
    stage: Stage,
    /// When the entry may be swept.
    kept_until: Stamp,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Asking,
    Won {
        token: FencingToken,
        ends: Stamp,
    },
    /// No majority holds its votes any more. Those that are left keep the others out until its
    /// lease is over: it is for the caller to give them back before.
    Lost {
        ends: Stamp,
    },
    /// Its release is under way, confirmed or not.
    Ending,
    Withdrawn,
}

/// How a request of a claim begins.
#[derive(Debug)]
pub(super) enum Begun {
    /// The claim holds already, with this token. Nothing was entered.
    Holds(FencingToken),
    /// The claim lost its hold, whose lease may run for this long. Nothing was entered.
    Lost(Duration),
    /// A new attempt was entered. It replaces this one, whose votes have to be taken back.
    Asks(Option<(OwnerToken, VoteSet)>),
}

impl Book {
    /// Enters a new attempt of a claim, unless the claim holds.
    pub(super) fn begin(
        &mut self,
        claim: &Claim,
        attempt: OwnerToken,
        votes: VoteSet,
        now: &Stamp,
    ) -> Result<Begun, Error> {
        self.sweep(now);
        if let Some((_, token)) = self.holding(claim, now) {
            return Ok(Begun::Holds(token));
        }
        let entry = BookEntry {
            attempt,
            votes,
            stage: Stage::Asking,
            kept_until: kept(now, claim.ttl),
        };
        match self.entries.get(&claim.owner) {
            Some(BookEntry {
                stage: Stage::Withdrawn,
                ..
            }) => Err(Error::invalid(format!(
                "this claim was withdrawn: key={}; make a new claim",
                claim.key
            ))),
            Some(BookEntry {
                stage: Stage::Lost { ends },
                ..
            }) if !ends.since(now).is_zero() => Ok(Begun::Lost(ends.since(now))),
            _ => {
                let replaced = self.entries.insert(claim.owner, entry);
                Ok(Begun::Asks(replaced.map(|old| (old.attempt, old.votes))))
            }
        }
    }

    /// The attempt won. False if it was withdrawn or replaced meanwhile: then it is lost.
    pub(super) fn win(
        &mut self,
        claim: &Claim,
        attempt: OwnerToken,
        token: FencingToken,
        ends: Stamp,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(&claim.owner) else {
            return false;
        };
        if entry.attempt != attempt || !matches!(entry.stage, Stage::Asking) {
            return false;
        }
        entry.stage = Stage::Won { token, ends };
        entry.kept_until = kept(&ends, claim.ttl);
        true
    }

    /// The attempt that holds for a claim, and its token. A hold that ran out by our clock is over
    /// for good (I2).
    pub(super) fn holding(&self, claim: &Claim, now: &Stamp) -> Option<(OwnerToken, FencingToken)> {
        let entry = self.entries.get(&claim.owner)?;
        match entry.stage {
            Stage::Won { token, ends } if !ends.since(now).is_zero() => {
                Some((entry.attempt, token))
            }
            _ => None,
        }
    }

    /// Where the votes of an attempt may be, if it is the claim's last.
    pub(super) fn votes(&self, claim: &Claim, attempt: OwnerToken) -> Option<VoteSet> {
        let entry = self.entries.get(&claim.owner)?;
        (entry.attempt == attempt).then(|| entry.votes.clone())
    }

    /// A renewal of an attempt was proven until `until`. False if the attempt does not hold any
    /// more: an answer that comes when the hold is over does not bring it back (I2).
    #[must_use]
    pub(super) fn extend(
        &mut self,
        claim: &Claim,
        renewed: OwnerToken,
        until: Stamp,
        now: &Stamp,
    ) -> bool {
        let held = self.holding(claim, now);
        if held.is_none_or(|(holding, _)| holding != renewed) {
            return false;
        }
        if let Some(entry) = self.entries.get_mut(&claim.owner)
            && let Stage::Won { ends, .. } = &mut entry.stage
        {
            // Two renewals may be answered out of order.
            if !until.since(ends).is_zero() {
                *ends = until;
                entry.kept_until = kept(&until, claim.ttl);
            }
        }
        true
    }

    /// No majority holds the votes of an attempt any more.
    pub(super) fn lose(&mut self, claim: &Claim, attempt: OwnerToken) {
        if let Some(entry) = self.entries.get_mut(&claim.owner)
            && entry.attempt == attempt
            && let Stage::Won { ends, .. } = entry.stage
        {
            entry.stage = Stage::Lost { ends };
        }
    }

    /// What held for this claim holds no more, before any member is asked to release it. Returns
    /// the claim's last attempt, over or not, and where its votes may be.
    pub(super) fn end(&mut self, claim: &Claim) -> Option<(OwnerToken, VoteSet)> {
        let entry = self.entries.get_mut(&claim.owner)?;
        if matches!(entry.stage, Stage::Won { .. } | Stage::Lost { .. }) {
            entry.stage = Stage::Ending;
        }
        Some((entry.attempt, entry.votes.clone()))
    }

    /// Strikes an attempt out, unless its claim was withdrawn: that must be remembered.
    pub(super) fn strike(&mut self, claim: &Claim, attempt: OwnerToken) {
        if let Some(entry) = self.entries.get(&claim.owner)
            && entry.attempt == attempt
            && !matches!(entry.stage, Stage::Withdrawn)
        {
            self.entries.remove(&claim.owner);
        }
    }

    /// Remembers that a claim was withdrawn; returns its last attempt, and where the votes of that
    /// may be.
    pub(super) fn withdraw(
        &mut self,
        claim: &Claim,
        unused: OwnerToken,
        now: &Stamp,
    ) -> Option<(OwnerToken, VoteSet)> {
        self.sweep(now);
        let last = |entry: &BookEntry| (entry.attempt, entry.votes.clone());
        let before = self.entries.get(&claim.owner).map(last);
        let (attempt, votes) = before.clone().unwrap_or((unused, VoteSet::default()));
        let entry = BookEntry {
            attempt,
            votes,
            stage: Stage::Withdrawn,
            kept_until: kept(now, claim.ttl),
        };
        self.entries.insert(claim.owner, entry);
        before
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Drops what is over, each time the book has doubled.
    fn sweep(&mut self, now: &Stamp) {
        if self.entries.len() < self.sweep_at.max(SWEEP_FLOOR) {
            return;
        }
        self.entries
            .retain(|_, entry| !entry.kept_until.since(now).is_zero());
        self.sweep_at = 2 * self.entries.len();
    }
}

/// One TTL more, so that a late release or withdrawal still finds the attempt.
fn kept(from: &Stamp, ttl: Duration) -> Stamp {
    from.plus(ttl).plus(ttl)
}
