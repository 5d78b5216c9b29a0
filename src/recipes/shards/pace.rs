//! [`Pace`]: how many shards move at once, so that each of them is without an owner for a short
//! time only.
//!
//! A store takes its time for each release and each grant. Of shards that are all released at one
//! time the last would wait for the others. So a member asks the work of a few to end, and of the
//! next ones when another member has taken these.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How many shards move at first.
const FIRST_WINDOW: usize = 2;
/// Work that has not ended by then is slow. The others do not wait for it, and twice as many move
/// from then on.
const PROMPT: Duration = Duration::from_millis(20);
/// For how long a shard that was released is expected to be taken.
pub(super) const TAKEN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Pace {
    /// What is to move, in this order.
    waiting: VecDeque<u32>,
    moving: BTreeMap<u32, Moving>,
    window: usize,
}

#[derive(Debug)]
struct Moving {
    /// It counts until then.
    until: Duration,
    /// Its work has ended.
    is_released: bool,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            moving: BTreeMap::new(),
            window: FIRST_WINDOW,
        }
    }

    /// The shard is to move.
    pub(super) fn push(&mut self, shard: u32) {
        self.waiting.push_back(shard);
    }

    /// A shard whose work is to end now.
    pub(super) fn pop(&mut self, now: Duration) -> Option<u32> {
        let before = self.moving.len();
        let mut is_slow = false;
        self.moving.retain(|_, moving| {
            let counts = moving.until > now;
            is_slow |= !counts && !moving.is_released;
            counts
        });
        if is_slow {
            self.window = self.window.max(before).saturating_mul(2);
        }
        if self.waiting.is_empty() && self.moving.is_empty() {
            self.window = FIRST_WINDOW;
        }
        if self.moving.len() >= self.window {
            return None;
        }
        self.waiting.pop_front()
    }

    /// The work of the shard was asked to end.
    pub(super) fn begin(&mut self, shard: u32, now: Duration) {
        let moving = Moving {
            until: now.saturating_add(PROMPT),
            is_released: false,
        };
        self.moving.insert(shard, moving);
    }

    /// The shard was released. True if it is to be checked whether another member has
    /// [taken](Self::taken) it.
    pub(super) fn released(&mut self, shard: u32, now: Duration) -> bool {
        let Some(moving) = self
            .moving
            .get_mut(&shard)
            .filter(|_| !self.waiting.is_empty())
        else {
            self.moving.remove(&shard);
            return false;
        };
        *moving = Moving {
            until: now.saturating_add(TAKEN),
            is_released: true,
        };
        true
    }

    /// Another member has the shard, or nobody knows.
    pub(super) fn taken(&mut self, shard: u32) {
        if self
            .moving
            .get(&shard)
            .is_some_and(|moving| moving.is_released)
        {
            self.moving.remove(&shard);
        }
    }

    /// When to ask for a shard again, if nothing happens before.
    pub(super) fn next_at(&self) -> Option<Duration> {
        let ends = self.moving.values().map(|moving| moving.until);
        ends.min().filter(|_| !self.waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn popped(pace: &mut Pace, now: Duration) -> Vec<u32> {
        let mut all = Vec::new();
        while let Some(shard) = pace.pop(now) {
            pace.begin(shard, now);
            all.push(shard);
        }
        all
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_next_shard_moves_when_one_was_taken() {
        let mut pace = Pace::new();
        (0..5).for_each(|shard| pace.push(shard));
        assert_eq!(popped(&mut pace, millis(0)), [0, 1]);
        assert!(pace.released(1, millis(1)));
        assert!(popped(&mut pace, millis(2)).is_empty(), "nobody has it yet");
        pace.taken(0);
        assert!(
            popped(&mut pace, millis(2)).is_empty(),
            "it was not released"
        );
        pace.taken(1);
        assert_eq!(popped(&mut pace, millis(2)), [2]);
        assert!(pace.released(0, millis(3)) && pace.released(2, millis(3)));
        assert_eq!(pace.next_at(), Some(millis(3) + TAKEN));
        assert_eq!(popped(&mut pace, millis(3) + TAKEN), [3, 4], "nobody came");
        assert!(!pace.released(3, millis(504)), "no other waits for that");
        assert_eq!(pace.next_at(), None);
    }

    #[test]
    fn slow_work_delays_no_other() {
        let mut pace = Pace::new();
        (0..1000).for_each(|shard| pace.push(shard));
        let (mut now, mut all) = (millis(0), 0);
        for _ in 0..9 {
            all += popped(&mut pace, now).len();
            now += PROMPT;
        }
        assert_eq!(all, 1000);
        for shard in 0..1000 {
            assert!(!pace.released(shard, now));
        }
        pace.push(7);
        pace.push(8);
        pace.push(9);
        assert_eq!(popped(&mut pace, now + PROMPT).len(), 3);
        assert!(popped(&mut pace, now + 2 * PROMPT).is_empty());
        (0..3).for_each(|shard| pace.push(shard));
        assert_eq!(popped(&mut pace, now + 2 * PROMPT).len(), 2, "few again");
    }
}
