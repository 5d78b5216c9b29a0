//! When to renew, when to retry, when to give up: a pure function of state, event and time.
//!
//! The engine knows no store, no lease and no clock: `now` is always an argument, in nanoseconds of
//! the boot clock, and it returns what to do as [`Orders`]. Therefore all of it runs in a
//! simulator. It decides when a renewal is *tried*. It never decides whether a lease is live: only
//! the lease does.

use std::time::Duration;

use super::wheel::{Link, Links, Wheel};
use crate::model::error::Ended;
use crate::model::random::Jitter;
use crate::model::span::nanos;

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
    /// The interval that the store asks for instead.
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

/// Whether the last renewal of a hold failed: before an answer, and with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Heard {
    pub(crate) was_failing: bool,
    pub(crate) is_failing: bool,
}

impl Heard {
    /// Whether renewals fail now, if that has changed.
    pub(crate) fn turned(self) -> Option<bool> {
        (self.was_failing != self.is_failing).then_some(self.is_failing)
    }
}

/// What to do now.
#[derive(Default, Debug)]
pub(crate) struct Orders {
    /// Holds to renew in one call, within the ordinary time limit.
    pub(crate) renew: Vec<HoldId>,
    /// Holds without enough time for an ordinary try and a second one, in a call of their own.
    pub(crate) urgent: UrgentRenewals,
    /// Holds whose renewal has failed before, in a call of their own.
    pub(crate) failing: UrgentRenewals,
    /// Holds that are lost; they have left the engine.
    pub(crate) lost: Vec<(HoldId, Ended)>,
    /// Holds that nobody claimed; they have left the engine.
    pub(crate) unclaimed: Vec<HoldId>,
}

/// Holds to renew in one call, within half of the shortest time that one of them has left.
#[derive(Default, Debug)]
pub(crate) struct UrgentRenewals {
    pub(crate) holds: Vec<HoldId>,
    pub(crate) limit: Duration,
}

impl UrgentRenewals {
    fn add(&mut self, id: HoldId, left: u64, most: Duration) {
        if self.holds.is_empty() {
            self.limit = most;
        }
        self.holds.push(id);
        let half = Duration::from_nanos((left / 2).max(LEAST_RETRY));
        self.limit = self.limit.min(half);
    }
}

/// A retry follows after this part of the remaining time, so that retries come faster near the
/// deadline.
const RETRY_PART: u64 = 4;
const LEAST_RETRY: u64 = 5_000_000;
/// A hold that ends within this time sends no renewal, though it was granted for a moment only.
const SOON: u64 = 5_000_000;
const NEVER: u64 = u64::MAX;
/// Renewals are due on a grid of this part of their interval, so that many are due together: with
/// many holds half of the cost of a renewal is the wake-up for it. Each manager has a grid of its
/// own, so that not all managers of a machine ask at once.
const GRID_PART: u64 = 10;

/// One cache line: with many holds the cost of a round is the cost of fetching these.
#[derive(Debug)]
#[repr(align(64))]
struct HoldEntry {
    generation: u32,
    is_used: bool,
    link: Link,
    state: HoldState,
}

#[derive(Clone, Copy, Debug)]
struct HoldState {
    interval: u64,
    /// When to renew; [`NEVER`] while a renewal is in progress.
    renew_at: u64,
    deadline: u64,
    /// When `max_hold` is over, or the time in which the hold has to be claimed.
    last: u64,
    failures: u32,
    claimed: Claimed,
}

/// Whether the caller of a hold has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claimed {
    Yes,
    /// Its caller acquires more before it has it: the hold is renewed, and ends if that takes too
    /// long.
    NotYet,
    /// It was handed off to a caller that may never come: it is not renewed before.
    HandedOff,
}

impl HoldState {
    fn next(&self) -> u64 {
        let ends = self.deadline.min(self.last);
        if self.claimed == Claimed::HandedOff {
            ends
        } else {
            ends.min(self.renew_at)
        }
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
    jitter: Jitter,
}

#[derive(Debug, Default)]
struct Entries(Vec<HoldEntry>);

impl Entries {
    /// Grows by a quarter, not by half: unused room counts as the cost of a hold.
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
            jitter: Jitter::new(seed),
        }
    }

    /// How many holds there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.0.len() - self.free.len()
    }

    /// Adds a new hold. `max_hold` counts from `granted_at`, when the grant was asked for.
    pub(crate) fn adopt(
        &mut self,
        proven: Proven,
        granted_at: u64,
        max_hold: Option<Duration>,
    ) -> HoldId {
        let interval = self.interval(proven);
        let state = HoldState {
            interval,
            renew_at: self.renewal(proven.sent_at, interval),
            deadline: proven.deadline,
            last: end_of(max_hold, granted_at),
            failures: 0,
            claimed: Claimed::Yes,
        };
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.entries.make_room();
                self.entries.0.push(HoldEntry {
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

    /// Puts a new hold with the same grant in the place of an old one: with its deadline, its next
    /// renewal and its end of `max_hold`. A renewal in progress is the old hold's; the new one
    /// begins its own. If there is a time in which the new hold has to be [claimed](Self::claim),
    /// it is not renewed before. `None` if the old one has left.
    pub(crate) fn transfer(
        &mut self,
        id: HoldId,
        now: u64,
        claim_within: Option<Duration>,
    ) -> Option<HoldId> {
        let entry = self.entry(id)?;
        if let Some(span) = claim_within {
            entry.state.last = now.saturating_add(nanos(span));
            entry.state.claimed = Claimed::HandedOff;
        }
        entry.generation = entry.generation.wrapping_add(1);
        if entry.state.renew_at == NEVER {
            entry.state.renew_at = now;
        }
        let (generation, due) = (entry.generation, entry.state.next());
        self.wheel.put(&mut self.entries, id.index, due);
        Some(HoldId { generation, ..id })
    }

    /// Renews a new hold soon after `now`, not after its interval.
    pub(crate) fn hurry(&mut self, id: HoldId, now: u64) {
        if let Some(entry) = self.entry(id) {
            entry.state.renew_at = now.saturating_add(SOON);
            let due = entry.state.next();
            self.wheel.put(&mut self.entries, id.index, due);
        }
    }

    /// A hold ends at `until`, unless its caller has [claimed](Self::claim) it before.
    pub(crate) fn expect(&mut self, id: HoldId, until: u64) {
        if let Some(entry) = self.entry(id) {
            entry.state.last = entry.state.last.min(until);
            entry.state.claimed = Claimed::NotYet;
            let due = entry.state.next();
            self.wheel.put(&mut self.entries, id.index, due);
        }
    }

    /// The caller of a hold has it, and keeps it from `now` on for at most `max_hold`. False if the
    /// hold has left.
    pub(crate) fn claim(&mut self, id: HoldId, now: u64, max_hold: Option<Duration>) -> bool {
        let Some(entry) = self.entry(id) else {
            return false;
        };
        entry.state.claimed = Claimed::Yes;
        entry.state.last = end_of(max_hold, now);
        let due = entry.state.next();
        self.wheel.put(&mut self.entries, id.index, due);
        true
    }

    /// Whether the last renewal of a hold failed.
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

    /// A renewal ended, with a proof or without: then a retry may get one. `None` if the hold has
    /// left.
    pub(crate) fn answered(
        &mut self,
        id: HoldId,
        proven: Option<Proven>,
        now: u64,
    ) -> Option<Heard> {
        let mut state = self.entry(id)?.state;
        let was_failing = state.failures > 0;
        match proven {
            Some(proven) => {
                state.interval = self.interval(proven);
                state.renew_at = self.renewal(proven.sent_at, state.interval);
                state.deadline = state.deadline.max(proven.deadline);
                state.failures = 0;
            }
            None => {
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
        // In the order in which they were added, which is mostly that of their places in memory.
        due.sort_unstable();
        let ordinary = self.pace.request_timeout;
        for &index in &due {
            let entry = &mut self.entries.0[index as usize];
            let id = HoldId {
                index,
                generation: entry.generation,
            };
            let state = &mut entry.state;
            if state.claimed != Claimed::Yes && now >= state.deadline.min(state.last) {
                entry.is_used = false;
                self.free.push(index);
                orders.unclaimed.push(id);
                continue;
            }
            if now >= state.deadline || now >= state.last {
                let lapsed = now >= state.deadline;
                let reason = if lapsed {
                    Ended::Lapsed
                } else {
                    Ended::MaxHold
                };
                entry.is_used = false;
                self.free.push(index);
                orders.lost.push((id, reason));
                continue;
            }
            if state.renew_at <= now && state.claimed != Claimed::HandedOff {
                state.renew_at = NEVER;
                let left = state.deadline - now;
                if state.failures > 0 {
                    orders.failing.add(id, left, ordinary);
                } else if left / 2 < nanos(ordinary) {
                    orders.urgent.add(id, left, ordinary);
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

    fn entry(&mut self, id: HoldId) -> Option<&mut HoldEntry> {
        self.entries
            .0
            .get_mut(id.index as usize)
            .filter(|entry| entry.is_used && entry.generation == id.generation)
    }

    /// As often as the settings or the store ask for; at least twice in the usable part of the
    /// lease.
    fn interval(&self, proven: Proven) -> u64 {
        let of_ttl = || proven.ttl / self.pace.renewals_per_ttl.max(1);
        let asked_for = nanos(self.pace.heartbeat.unwrap_or_else(of_ttl));
        let usable = proven.deadline.saturating_sub(proven.sent_at);
        asked_for.min((usable / 2).max(LEAST_RETRY))
    }

    /// 0.8 to 1.0 of an interval after `sent_at`, and then back to the grid: early rather than
    /// late.
    fn renewal(&self, sent_at: u64, interval: u64) -> u64 {
        let early = self.jitter.below(interval / 5 + 1);
        let due = sent_at.saturating_add(interval - early);
        let grid = (interval / GRID_PART).max(1);
        let past = due.wrapping_add(self.phase) % grid;
        due.saturating_sub(past).max(sent_at)
    }
}

/// When a hold that began at `began` has lasted for as long as it may.
fn end_of(max_hold: Option<Duration>, began: u64) -> u64 {
    max_hold.map_or(NEVER, |most| began.saturating_add(nanos(most)))
}
