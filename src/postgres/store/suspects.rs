//! [`Suspects`]: the keys that other calls hold up.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::clock::Stamp;
use crate::model::key::Key;

/// For how long a key is not asked for after other calls about it took too long; twice as long each
/// further time.
const PAUSE: Duration = Duration::from_millis(300);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// A key that was held up may be held up again for this long.
const SUSPECT_FOR: Duration = Duration::from_secs(30);

/// The keys about which other calls took too long lately. All of them together have one request on
/// its way.
pub(super) struct Suspects {
    keys: Mutex<HashMap<Key, HeldUp>>,
    turn: Semaphore,
}

#[derive(Clone, Copy)]
struct HeldUp {
    since: Stamp,
    pause: Duration,
}

impl Default for Suspects {
    fn default() -> Self {
        Self {
            keys: Mutex::default(),
            turn: Semaphore::new(1),
        }
    }
}

impl Suspects {
    /// Waits for the requests about other such keys, if this is one.
    pub(super) async fn turn(&self, key: &Key) -> Option<SemaphorePermit<'_>> {
        let is_one = self.keys.lock().contains_key(key);
        match is_one {
            // An error says that it was closed, which nobody does.
            true => self.turn.acquire().await.ok(),
            false => None,
        }
    }

    /// Whether the key may not be asked for yet.
    pub(super) fn pauses(&self, key: &Key, now: &Stamp) -> bool {
        let mut keys = self.keys.lock();
        keys.retain(|_, held_up| now.since(&held_up.since) < SUSPECT_FOR);
        keys.get(key)
            .is_some_and(|held_up| now.since(&held_up.since) < held_up.pause)
    }

    /// Other calls about the key took too long.
    pub(super) fn add(&self, key: &Key, since: Stamp) {
        let mut keys = self.keys.lock();
        let last = keys.get(key).map(|held_up| 2 * held_up.pause);
        let pause = last.unwrap_or(PAUSE).min(LONGEST_PAUSE);
        keys.insert(key.clone(), HeldUp { since, pause });
    }

    /// A call about the key went through.
    pub(super) fn remove(&self, key: &Key) {
        self.keys.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    fn at(ms: u64) -> Stamp {
        Stamp::from_nanos([ms * 1_000_000; 3])
    }

    #[test]
    fn a_key_that_is_held_up_again_and_again_is_asked_for_less_and_less_often() {
        let (suspects, key) = (Suspects::default(), "a".parse().unwrap());
        let mut now = 1_000;
        for pause in [300, 600, 1_200, 2_400, 3_000, 3_000] {
            assert!(!suspects.pauses(&key, &at(now)));
            suspects.add(&key, at(now));
            now += pause;
            assert!(suspects.pauses(&key, &at(now - 1)), "{pause}");
        }
        suspects.remove(&key);
        suspects.add(&key, at(now));
        assert!(!suspects.pauses(&key, &at(now + 300)), "it begins anew");
    }

    #[test]
    fn only_keys_that_were_held_up_lately_wait_for_each_other() {
        let suspects = Suspects::default();
        let key = |name: &str| name.parse::<Key>().unwrap();
        for name in ["a", "b"] {
            suspects.add(&key(name), at(1_000));
        }
        let a = suspects.turn(&key("a")).now_or_never().unwrap();
        let (free, b) = (key("free"), key("b"));
        assert!(suspects.turn(&free).now_or_never().unwrap().is_none());
        let mut waits = pin!(suspects.turn(&b));
        assert!(waits.as_mut().now_or_never().is_none());
        drop(a.expect("it is one"));
        assert!(waits.now_or_never().unwrap().is_some());
        assert!(!suspects.pauses(&b, &at(31_000)));
        assert!(suspects.turn(&b).now_or_never().unwrap().is_none());
    }
}
