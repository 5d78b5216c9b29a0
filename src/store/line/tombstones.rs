//! [`Tombstones`]: the claims that were withdrawn, so that an acquire that is executed later is
//! refused.

use std::collections::HashMap;
use std::time::Duration;

use super::requests::withdrawn;
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::store::Claim;

/// With fewer than this there is no sweep.
const SWEEP_FLOOR: usize = 1_000;

/// Withdrawn claims. Each is remembered for its TTL.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    until: HashMap<OwnerToken, Duration>,
    sweep_at: usize,
}

impl Tombstones {
    /// # Errors
    ///
    /// `Invalid` if the claim was withdrawn.
    pub(crate) fn check(&self, claim: &Claim) -> Result<(), Error> {
        if self.until.contains_key(&claim.owner) {
            return Err(withdrawn(&claim.key));
        }
        Ok(())
    }

    /// Remembers a claim. What is over is removed each time the number has doubled, so this costs
    /// O(1) on average.
    pub(crate) fn add(&mut self, claim: &Claim, now: Duration) {
        if self.until.len() >= self.sweep_at.max(SWEEP_FLOOR) {
            self.until.retain(|_, until| *until > now);
            self.sweep_at = 2 * self.until.len();
        }
        self.until
            .insert(claim.owner, now.saturating_add(claim.ttl));
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.until.len()
    }
}
