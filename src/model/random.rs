//! Random bytes for the names that nobody may guess, and [`Jitter`], which keeps no secret. Tests
//! may seed both.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::model::error::Error;
use crate::model::span::nanos;

/// 128 bits from the operating system's generator; in a test that called `seed_random`, from its
/// seed.
pub(crate) fn random_bytes() -> Result<[u8; 16], Error> {
    #[cfg(feature = "testing")]
    if let Some(bytes) = seeded::random_bytes() {
        return Ok(bytes);
    }
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::unavailable(format!(
            "the operating system gave no random bytes: {e}; nothing was asked of the store"
        ))
    })?;
    Ok(bytes)
}

/// Random numbers that spread requests over time: splitmix64 over a counter that threads share.
#[derive(Debug)]
pub(crate) struct Jitter(AtomicU64);

impl Jitter {
    /// The same seed gives the same numbers.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Without random bytes, the numbers are always the same.
    pub(crate) fn seeded() -> Self {
        Self::new(random_bytes().map_or(0, |bytes| u128::from_le_bytes(bytes) as u64))
    }

    /// A number below `limit`, which is not zero.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    /// A part of `span`, from nothing to the whole.
    pub(crate) fn up_to(&self, span: Duration) -> Duration {
        Duration::from_nanos(self.below(nanos(span).saturating_add(1)))
    }
}

#[cfg(feature = "testing")]
pub(crate) mod seeded {
    use std::cell::RefCell;

    thread_local! {
        static DICE: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) };
    }

    /// Takes every owner token, run identifier and jitter that **this thread** makes from `seed`,
    /// until it is called again; with `None` from the operating system again (feature `testing`).
    ///
    /// Owner tokens are then no secret. With a [`ManualClock`](crate::clock::ManualClock) and a
    /// manager [in a simulation](crate::LockManagerBuilder::in_simulation), a test that runs on one
    /// thread repeats exactly.
    pub fn seed_random(seed: Option<u64>) {
        DICE.set(seed.map(fastrand::Rng::with_seed));
    }

    pub(super) fn random_bytes() -> Option<[u8; 16]> {
        DICE.with_borrow_mut(|dice| dice.as_mut().map(|dice| dice.u128(..).to_be_bytes()))
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_the_jitter_too() {
        let draw = |seed| {
            seeded::seed_random(Some(seed));
            let jitter = Jitter::seeded();
            [0; 4].map(|_: u64| jitter.below(1_000_000))
        };
        let first = draw(7);
        assert_eq!(draw(7), first);
        assert_ne!(draw(8), first);
        seeded::seed_random(None);
    }

    #[test]
    fn a_seed_repeats_what_one_thread_draws() {
        let draw = |seed| {
            seeded::seed_random(Some(seed));
            [random_bytes().unwrap(), random_bytes().unwrap()]
        };
        let first = draw(7);
        assert_ne!(first[0], first[1]);
        assert_eq!(draw(7), first);
        assert_ne!(draw(8), first);
        let elsewhere = std::thread::spawn(|| random_bytes().unwrap());
        assert!(!first.contains(&elsewhere.join().unwrap()));
        seeded::seed_random(None);
        assert!(!first.contains(&random_bytes().unwrap()));
    }
}
