//! The lease word: one deadline for each clock; 0 means lost.
//!
//! # Rules
//!
//! 1. A lapse is final (I2). A reader that finds a word passed or 0 swaps *all* words to 0 before
//!    it returns, so no later check, on any clock, finds the lease live. Because every reader
//!    helps, three words act as one.
//! 2. A renewal compares and exchanges from a live word, never from 0, and never moves a deadline
//!    back. If it finds a lost word after it moved another, rule 1 reverts the moved one.
//! 3. Revocation is a swap. The value that the swap of the first word returns identifies the one
//!    caller that ended the lease, so its end is reported once.
//! 4. Renewals may be visible on one clock before another: the word that has not moved yet is the
//!    earlier one, which is safe.
//!
//! The live path only reads.

use super::atomics::{AtomicU64, Ordering};

const LOST: u64 = 0;

/// Not live any more. `first` is true for exactly one caller in the life of a lease: the caller
/// that ended it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Over {
    pub(crate) first: bool,
}

#[derive(Debug)]
pub(crate) struct Words([AtomicU64; 3]);

impl Words {
    pub(crate) fn new(deadlines: [u64; 3]) -> Self {
        // A deadline of 0 has passed too, but its end must be reported like any other.
        Self(deadlines.map(|deadline| AtomicU64::new(deadline.max(1))))
    }

    /// The remaining time on one clock that shows `now`. Live while `now < deadline`, strictly
    /// (I1).
    #[inline]
    pub(crate) fn look(&self, lane: usize, now: u64) -> Result<u64, Over> {
        let deadline = self.0[lane].load(Ordering::Acquire);
        if now < deadline {
            Ok(deadline - now)
        } else {
            Err(self.revoke())
        }
    }

    /// Moves the deadlines forward if the lease is live at `now` on every clock.
    pub(crate) fn renew(&self, now: [u64; 3], deadlines: [u64; 3]) -> Result<(), Over> {
        for lane in 0..3 {
            let word = &self.0[lane];
            let mut seen = word.load(Ordering::Acquire);
            loop {
                if now[lane] >= seen {
                    return Err(self.revoke());
                }
                let next = seen.max(deadlines[lane]);
                match word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(newer) => seen = newer,
                }
            }
        }
        Ok(())
    }

    /// Ends the lease for good and returns its deadlines for another lease; `None` if any word was
    /// already lost.
    pub(crate) fn take(&self) -> (Over, Option<[u64; 3]>) {
        let taken = [0, 1, 2].map(|lane: usize| self.0[lane].swap(LOST, Ordering::AcqRel));
        let ended = Over {
            first: taken[0] != LOST,
        };
        (ended, (!taken.contains(&LOST)).then_some(taken))
    }

    /// The deadlines as they are, without a comparison and without a mark.
    #[allow(dead_code, reason = "the models of the lease word include this file")]
    pub(crate) fn peek(&self) -> [u64; 3] {
        [0, 1, 2].map(|lane: usize| self.0[lane].load(Ordering::Acquire))
    }

    /// Ends the lease for good.
    #[cold]
    pub(crate) fn revoke(&self) -> Over {
        let before = self.0[0].swap(LOST, Ordering::AcqRel);
        for word in &self.0[1..] {
            word.swap(LOST, Ordering::AcqRel);
        }
        Over {
            first: before != LOST,
        }
    }
}
