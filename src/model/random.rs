//! Random bytes for the names that nobody may guess. Tests may seed them.

use crate::model::error::Error;

/// 128 bits from the operating system's generator; in a test that called `seed_random`, from its seed.
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

#[cfg(feature = "testing")]
pub(crate) mod seeded {
    use std::cell::RefCell;

    thread_local! {
        static DICE: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) };
    }

    /// Takes every owner token, run identifier and jitter that **this thread** makes from `seed`, until it is called again;
    /// with `None` from the operating system again (feature `testing`).
    ///
    /// Owner tokens are then no secret. With a [`ManualClock`](crate::clock::ManualClock) and a manager
    /// [in a simulation](crate::LockManagerBuilder::in_simulation), a test that runs on one thread repeats exactly.
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
