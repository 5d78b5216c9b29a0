//! When to renew, when to worry, when to give up: a pure function of state, event and time.
//!
//! The engine knows no store, no lease and no clock: `now` is always an argument, in nanoseconds of the boot lane, and what
//! is to be done comes back as [`Orders`]. So the whole of it runs in a simulator. It decides when things are *tried*;
//! whether a lease is live it never decides: that is the lease's own word.

use std::time::Duration;

use super::wheel::{Link, Links, Wheel};
use crate::model::error::LostReason;

/// A hold's place in the engine. A place is used again, with another generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct HoldId {
    index: u32,
    generation: u32,
}

impl HoldId {
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }
}

/// What the settings say about renewals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How many times in a TTL.
    pub(crate) renewals_per_ttl: u32,
    /// What the store asks for in its place.
    pub(crate) heartbeat: Option<Duration>,
    /// The longest that one request may take.
    pub(crate) request_timeout: Duration,
}

/// Proof as the engine sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proven {
    /// When the request left.
    pub(crate) sent_at: u64,
    /// What the store granted.
    pub(crate) ttl: Duration,
    /// When the lease ends.
    pub(crate) deadline: u64,
}

/// How one renewal ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Proven(Proven),
    /// No proof; asking again may pay.
    Unknown,
}

/// Whether the last renewal of a hold proved nothing: before an answer, and with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Heard {
    pub(crate) was_failing: bool,
    pub(crate) is_failing: bool,
}

impl Heard {
    /// Whether they are failing now, if that is news.
    pub(crate) fn turned(self) -> Option<bool> {
        (self.was_failing != self.is_failing).then_some(self.is_failing)
    }
}

/// What is to be done now.
#[derive(Default, Debug)]
pub(crate) struct Orders {
    /// Holds to renew in one call, within the ordinary time limit.
    pub(crate) renew: Vec<HoldId>,
    /// Holds without time for an ordinary try and a second one, in a call of their own.
    pub(crate) pressed: Pressed,
    /// Holds whose renewal has failed before, in a call of their own.
    pub(crate) failing: Pressed,
    /// Holds that are lost; they have left the engine.
    pub(crate) lost: Vec<(HoldId, LostReason)>,
}

/// Holds to renew in one call, within half of what the most pressed of them has left.
#[derive(Default, Debug)]
pub(crate) struct Pressed {
    pub(crate) holds: Vec<HoldId>,
    pub(crate) limit: Duration,
}

impl Pressed {
    fn add(&mut self, id: HoldId, left: u64, most: Duration) {
        if self.holds.is_empty() {
            self.limit = most;
        }
        self.holds.push(id);
        let half = Duration::from_nanos((left / 2).max(LEAST_RETRY));
        self.limit = self.limit.min(half);
    }
}

/// A retry follows after this part of what is left, so that tries come faster as the deadline comes near.
const RETRY_PART: u64 = 4;
const LEAST_RETRY: u64 = 5_000_000;
const NEVER: u64 = u64::MAX;
/// Renewals fall on a grid of this part of their interval, so that many fall due together: with many holds half of what a
/// renewal costs is the waking up for it. Each manager has a grid of its own, so that not all of a machine ask at once.
const GRID_PART: u64 = 10;

/// One cache line: with many holds a round costs what it costs to fetch these.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    generation: u32,
    is_used: bool,
    link: Link,
    state: State,
}

#[derive(Clone, Copy, Debug)]
struct State {
    interval: u64,
    /// When to renew; [`NEVER`] while a renewal is under way.
    renew_at: u64,
    deadline: u64,
    /// When `max_hold` is over.
    last: u64,
    failures: u32,
}

impl State {
    fn next(&self) -> u64 {
        self.renew_at.min(self.deadline).min(self.last)
    }
}

#[derive(Debug)]
pub(crate) struct Engine {
    pace: Pace,
    wheel: Wheel,
    entries: Entries,
    free: Vec<u32>,
    due: Vec<u32>,
    /// Where the grid begins.
    phase: u64,
    random: u64,
}

#[derive(Debug, Default)]
struct Entries(Vec<Entry>);

impl Entries {
    /// By a quarter and not by as much again: what stands empty counts among what a hold costs.
    fn make_room(&mut self) {
        let count = self.0.len();
        if count == self.0.capacity() {
            self.0.reserve_exact(count / 4 + 4);
        }
    }
}

impl Links for Entries {
    fn link(&mut self, index: u32) -> &mut Link {
        &mut self.0[index as usize].link
    }
}

impl Engine {
    pub(crate) fn new(pace: Pace, now: u64, seed: u64) -> Self {
        Self {
            pace,
            wheel: Wheel::new(now),
            entries: Entries::default(),
            free: Vec::new(),
            due: Vec::new(),
            phase: seed,
            random: seed | 1,
        }
    }

    /// How many holds there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.0.len() - self.free.len()
    }

    /// Takes over a new hold. `granted_at` is when its first grant was sent for: `max_hold` counts from there.
    pub(crate) fn adopt(
        &mut self,
        proven: Proven,
        granted_at: u64,
        max_hold: Option<Duration>,
    ) -> HoldId {
        let interval = self.interval(proven);
        let state = State {
            interval,
            renew_at: self.jittered(proven.sent_at, interval),
            deadline: proven.deadline,
            last: max_hold.map_or(NEVER, |most| granted_at.saturating_add(nanos(most))),
            failures: 0,
        };
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.entries.make_room();
                self.entries.0.push(Entry {
                    generation: 0,
                    is_used: false,
                    link: Link::OUT,
                    state,
                });
                u32::try_from(self.entries.0.len() - 1)
                    .expect("fewer than 2^32 holds fit into memory")
            }
        };
        let entry = &mut self.entries.0[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.is_used = true;
        entry.state = state;
        let id = HoldId {
            index,
            generation: entry.generation,
        };
        self.wheel.put(&mut self.entries, index, state.next());
        id
    }

    /// Puts a new hold in the place of one whose grant goes on under it: with its deadline, and with what is left until the
    /// next renewal and of `max_hold`. A renewal that is under way is the old hold's; the new one begins its own. `None` if
    /// the old one has left.
    pub(crate) fn go_on(&mut self, id: HoldId, now: u64) -> Option<HoldId> {
        let entry = self.entry(id)?;
        entry.generation = entry.generation.wrapping_add(1);
        if entry.state.renew_at == NEVER {
            entry.state.renew_at = now;
        }
        let (generation, due) = (entry.generation, entry.state.next());
        self.wheel.put(&mut self.entries, id.index, due);
        Some(HoldId { generation, ..id })
    }

    /// Whether the last renewal of a hold proved nothing.
    pub(crate) fn is_failing(&mut self, id: HoldId) -> bool {
        self.entry(id).is_some_and(|entry| entry.state.failures > 0)
    }

    /// Forgets a hold; nothing if it has left already.
    pub(crate) fn forget(&mut self, id: HoldId) -> bool {
        let Some(entry) = self.entry(id) else {
            return false;
        };
        entry.is_used = false;
        self.wheel.take(&mut self.entries, id.index);
        self.free.push(id.index);
        true
    }

    /// A renewal ended. `None` if the hold has left.
    pub(crate) fn answered(&mut self, id: HoldId, answer: Answer, now: u64) -> Option<Heard> {
        let mut state = self.entry(id)?.state;
        let was_failing = state.failures > 0;
        match answer {
            Answer::Proven(proven) => {
                state.interval = self.interval(proven);
                state.renew_at = self.jittered(proven.sent_at, state.interval);
                state.deadline = state.deadline.max(proven.deadline);
                state.failures = 0;
            }
            Answer::Unknown => {
                let left = state.deadline.saturating_sub(now);
                let pause = (left / RETRY_PART).clamp(LEAST_RETRY, state.interval.max(LEAST_RETRY));
                state.renew_at = now.saturating_add(pause);
                state.failures = state.failures.saturating_add(1);
            }
        }
        self.entry(id)?.state = state;
        self.wheel.put(&mut self.entries, id.index, state.next());
        Some(Heard {
            was_failing,
            is_failing: state.failures > 0,
        })
    }

    /// What is due at `now`.
    pub(crate) fn tick(&mut self, now: u64, orders: &mut Orders) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(&mut self.entries, now, &mut due);
        // In the order in which they came, which is mostly that of their places in memory.
        due.sort_unstable();
        let ordinary = self.pace.request_timeout;
        for &index in &due {
            let entry = &mut self.entries.0[index as usize];
            let id = HoldId {
                index,
                generation: entry.generation,
            };
            let state = &mut entry.state;
            if now >= state.deadline || now >= state.last {
                let lapsed = now >= state.deadline;
                let reason = if lapsed {
                    LostReason::Lapsed
                } else {
                    LostReason::MaxHold
                };
                entry.is_used = false;
                self.free.push(index);
                orders.lost.push((id, reason));
                continue;
            }
            if state.renew_at <= now {
                state.renew_at = NEVER;
                let left = state.deadline - now;
                if state.failures > 0 {
                    orders.failing.add(id, left, ordinary);
                } else if left / 2 < nanos(ordinary) {
                    orders.pressed.add(id, left, ordinary);
                } else {
                    orders.renew.push(id);
                }
            }
            let next = state.next();
            self.wheel.put(&mut self.entries, index, next);
        }
        due.clear();
        self.due = due;
    }

    /// When to [`tick`](Self::tick) again at the latest; `None` if there is no hold.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        self.wheel.next_look()
    }

    fn entry(&mut self, id: HoldId) -> Option<&mut Entry> {
        self.entries
            .0
            .get_mut(id.index as usize)
            .filter(|entry| entry.is_used && entry.generation == id.generation)
    }

    /// As often as the settings or the store ask for; at least twice in what may be used of the lease.
    fn interval(&self, proven: Proven) -> u64 {
        let of_ttl = || proven.ttl / self.pace.renewals_per_ttl.max(1);
        let asked_for = nanos(self.pace.heartbeat.unwrap_or_else(of_ttl));
        let usable = proven.deadline.saturating_sub(proven.sent_at);
        asked_for.min((usable / 2).max(LEAST_RETRY))
    }

    /// 0.8 to 1.0 of an interval after `sent_at`, and then back to the grid: early rather than late.
    fn jittered(&mut self, sent_at: u64, interval: u64) -> u64 {
        let most = interval / 5;
        let due = sent_at.saturating_add(interval - self.below(most + 1));
        let grid = (interval / GRID_PART).max(1);
        let past = due.wrapping_add(self.phase) % grid;
        due.saturating_sub(past).max(sent_at)
    }

    /// xorshift: spread, not secrecy.
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
