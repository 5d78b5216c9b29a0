//! [`Record`]: what a register keeps for one key.

use std::time::Duration;

use crate::model::error::Error;
use crate::model::holder::{Label, OwnerToken, hex};
use crate::model::random::random_bytes;
use crate::store::Claim;

/// What a register keeps for one key. No time is in it: whoever reads it counts by its own clock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    /// Whether somebody holds the key.
    pub state: State,
    /// Who holds it; `None` if nobody does, or somebody who does not use this store and shares
    /// its records.
    pub owner: Option<OwnerToken>,
    /// The token of the latest grant: it only grows.
    pub token: u64,
    /// For how long the record keeps others out, counted from when they first see this version.
    /// Zero if the key is free.
    pub ttl: Duration,
    /// Random in every write, so that no two records of a key are equal: 32 hexadecimal digits.
    /// Empty if somebody else wrote the record. It is no secret.
    pub beat: String,
    /// The holder's name and purpose, for people.
    pub label: Option<Label>,
}

/// Whether somebody holds a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Nobody does: whoever swaps first is granted it.
    Free,
    /// The owner does, until an observer has seen the same version for the whole TTL.
    Held,
    /// Nobody does, but a revoked hold's lease may last: nobody is granted the key until an
    /// observer has seen the same version for the whole TTL.
    Barred,
}

impl Record {
    /// A record of a hold under `token`, in the words of a claim.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the system gives no random bytes.
    pub(super) fn held(claim: &Claim, token: u64) -> Result<Self, Error> {
        Ok(Self {
            state: State::Held,
            owner: Some(claim.owner),
            token,
            ttl: claim.ttl,
            beat: beat()?,
            label: Some(claim.label.clone()),
        })
    }

    /// A record of a key that nobody holds.
    ///
    /// # Errors
    ///
    /// As [`held`](Self::held).
    pub(super) fn free(token: u64) -> Result<Self, Error> {
        Ok(Self {
            state: State::Free,
            owner: None,
            token,
            ttl: Duration::ZERO,
            beat: beat()?,
            label: None,
        })
    }

    /// A record that keeps everybody out for as long as the revoked one could.
    ///
    /// # Errors
    ///
    /// As [`held`](Self::held).
    pub(super) fn barred(revoked: &Self) -> Result<Self, Error> {
        Ok(Self {
            state: State::Barred,
            ttl: revoked.ttl,
            ..Self::free(revoked.token)?
        })
    }

    /// Whether this claim holds.
    pub(super) fn is_of(&self, claim: &Claim) -> bool {
        self.state == State::Held && self.owner == Some(claim.owner)
    }
}

fn beat() -> Result<String, Error> {
    Ok(hex(random_bytes()?))
}
