//! What a member does about each shard: a state machine that is pure. The time is an argument, and
//! it answers with [`Order`]s. [`serve`](super::serve) obeys them and reports what happened.
//!
//! ```text
//!        Ask             granted             Leave, or the work ended
//! wanted ──────▶ asking ─────────▶ owned ───────────────▶ free, or rests
//!   ▲              │ not wanted:     │ not wanted: Look, until
//!   │              ▼ Withdraw        ▼ another member waits
//!   └──────────── free            Leave
//! ```
//!
//! A shard that is not wanted any more is kept until another member waits for it. So a shard that
//! nobody can take over yet still has an owner, and the release hands it over in one step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::pace::Pace;

/// How many shards are asked for at once before their first answer. Those that others own have had
/// one, and wait beside these. So few that each gets its answer in time from a store that needs
/// some milliseconds for each.
const MOST_STARTS: usize = 8;
/// How many checks for a waiting member are in progress at once. A release waits behind them.
const MOST_LOOKS: usize = 8;
/// The first pause between two such checks, and the first rest. Each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Ask for a shard. The answer names the round.
    Ask(u32, u64),
    /// Stop asking for it.
    Withdraw(u32),
    /// Check whether another member waits for it.
    Look(u32),
    /// Let its work end.
    Leave(u32),
    /// Check whether the member that waited for it has it now.
    Follow(u32),
}

/// How the work of a shard ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WorkEnd {
    /// It was asked to leave.
    Left,
    /// Without being asked, and without a failure.
    Finished,
    /// With an error or a panic, or its lease was lost.
    Failed,
}

#[derive(Debug)]
enum State {
    Asking {
        round: u64,
        is_first: bool,
    },
    Owned {
        since: Duration,
        /// The pause before the next check for another member, while it is not wanted.
        pause: Option<Duration>,
        is_leaving: bool,
    },
    Resting {
        until: Duration,
    },
}

/// All shards of one member.
#[derive(Debug)]
pub(super) struct Plan {
    ttl: Duration,
    target: BTreeSet<u32>,
    shards: BTreeMap<u32, State>,
    /// Wanted, and not asked for yet.
    ready: BTreeSet<u32>,
    /// When the next check of a shard that is not wanted is due, and when a rest is over.
    due: BTreeSet<(Duration, u32)>,
    /// Checks that are due.
    looks: VecDeque<u32>,
    /// What others wait for.
    pace: Pace,
    /// How often in a row a shard was not owned for a whole TTL.
    failures: BTreeMap<u32, u32>,
    starting: usize,
    looking: usize,
    rounds: u64,
    /// This member leaves, and until when it keeps what nobody waits for.
    leaves_at: Option<Duration>,
}

impl Plan {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            target: BTreeSet::new(),
            shards: BTreeMap::new(),
            ready: BTreeSet::new(),
            due: BTreeSet::new(),
            looks: VecDeque::new(),
            pace: Pace::new(),
            failures: BTreeMap::new(),
            starting: 0,
            looking: 0,
            rounds: 0,
            leaves_at: None,
        }
    }

    /// From now on these are wanted, and no others.
    pub(super) fn want(&mut self, target: BTreeSet<u32>, now: Duration) -> Vec<Order> {
        if self.leaves_at.is_some() {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.target, target);
        let added: Vec<u32> = self.target.difference(&before).copied().collect();
        for shard in added {
            self.wanted(shard);
        }
        let removed: Vec<u32> = before.difference(&self.target).copied().collect();
        let mut orders = Vec::new();
        for shard in removed {
            orders.extend(self.unwanted(shard, now));
        }
        orders
    }

    fn wanted(&mut self, shard: u32) {
        match self.shards.get_mut(&shard) {
            None => {
                self.ready.insert(shard);
            }
            Some(State::Owned {
                pause, is_leaving, ..
            }) if !*is_leaving => *pause = None,
            Some(_) => {}
        }
    }

    fn unwanted(&mut self, shard: u32, now: Duration) -> Option<Order> {
        self.ready.remove(&shard);
        match self.shards.get_mut(&shard)? {
            State::Asking { is_first, .. } => {
                self.starting -= usize::from(*is_first);
                self.shards.remove(&shard);
                return Some(Order::Withdraw(shard));
            }
            State::Owned { pause, .. } => {
                *pause = Some(FIRST_PAUSE);
                self.due.insert((now, shard));
            }
            State::Resting { .. } => {}
        }
        None
    }

    /// This member leaves: it asks for nothing more, and keeps what it owns until others wait for
    /// it, for one TTL at most.
    pub(super) fn leave(&mut self, now: Duration) -> Vec<Order> {
        let orders = self.want(BTreeSet::new(), now);
        self.leaves_at.get_or_insert(now.saturating_add(self.ttl));
        orders
    }

    /// There is no other member that a member that leaves could wait for.
    pub(super) fn is_alone(&mut self, now: Duration) {
        self.leaves_at = self.leaves_at.map(|at| at.min(now));
    }

    /// Whether a member that leaves has left.
    pub(super) fn is_done(&self) -> bool {
        let is_busy = |state: &State| !matches!(state, State::Resting { .. });
        self.leaves_at.is_some() && !self.shards.values().any(is_busy)
    }

    /// When to ask for orders again, if nothing happens before.
    pub(super) fn next_at(&self) -> Option<Duration> {
        let due = self.due.first().map(|&(at, _)| at);
        let leaves_at = self
            .leaves_at
            .filter(|_| self.has_stayed().next().is_some());
        let paced = self.pace.next_at();
        due.into_iter().chain(leaves_at).chain(paced).min()
    }

    /// What is owned and not asked to leave.
    fn has_stayed(&self) -> impl Iterator<Item = u32> {
        let stays = |(&shard, state): (&u32, &State)| {
            matches!(
                state,
                State::Owned {
                    is_leaving: false,
                    ..
                }
            )
            .then_some(shard)
        };
        self.shards.iter().filter_map(stays)
    }

    /// What is to be done now.
    pub(super) fn orders(&mut self, now: Duration) -> Vec<Order> {
        let mut orders = Vec::new();
        while let Some(&(at, shard)) = self.due.first().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, shard));
            match self.shards.get(&shard) {
                Some(State::Owned { pause: Some(_), .. }) => self.looks.push_back(shard),
                Some(State::Resting { until }) if *until <= now => {
                    self.shards.remove(&shard);
                    self.ready_again(shard);
                }
                _ => {}
            }
        }
        if self.leaves_at.is_some_and(|at| at <= now) {
            let stayed: Vec<u32> = self.has_stayed().collect();
            orders.extend(stayed.into_iter().filter_map(|shard| self.leaving(shard)));
        }
        while let Some(shard) = self.pace.pop(now) {
            if self.is_to_move(shard).is_some() {
                self.pace.begin(shard, now);
                orders.extend(self.leaving(shard));
            }
        }
        while self.looking < MOST_LOOKS
            && let Some(shard) = self.looks.pop_front()
        {
            if self.is_to_move(shard).is_some() {
                self.looking += 1;
                orders.push(Order::Look(shard));
            }
        }
        while self.starting < MOST_STARTS
            && let Some(shard) = self.ready.pop_first()
        {
            self.starting += 1;
            self.rounds += 1;
            let round = self.rounds;
            let is_first = true;
            self.shards.insert(shard, State::Asking { round, is_first });
            orders.push(Order::Ask(shard, round));
        }
        orders
    }

    fn ready_again(&mut self, shard: u32) {
        if self.target.contains(&shard) {
            self.ready.insert(shard);
        }
    }

    /// The pause of a shard that is owned, not wanted, and not asked to leave.
    fn is_to_move(&mut self, shard: u32) -> Option<&mut Duration> {
        match self.shards.get_mut(&shard) {
            Some(State::Owned {
                pause: Some(pause),
                is_leaving: false,
                ..
            }) => Some(pause),
            _ => None,
        }
    }

    fn leaving(&mut self, shard: u32) -> Option<Order> {
        let Some(State::Owned { is_leaving, .. }) = self.shards.get_mut(&shard) else {
            return None;
        };
        (!std::mem::replace(is_leaving, true)).then_some(Order::Leave(shard))
    }

    /// Another member owns the shard: this one waits for it, and others may be asked for. False if
    /// it is not asked for any more.
    pub(super) fn waits(&mut self, shard: u32, round: u64) -> bool {
        match self.shards.get_mut(&shard) {
            Some(State::Asking {
                round: asked,
                is_first,
            }) if *asked == round => {
                self.starting -= usize::from(std::mem::take(is_first));
                true
            }
            _ => false,
        }
    }

    /// The shard was granted. False if it is not asked for any more: then it is released.
    pub(super) fn granted(&mut self, shard: u32, round: u64, now: Duration) -> bool {
        let is_asked = self.waits(shard, round);
        if is_asked {
            let owned = State::Owned {
                since: now,
                pause: None,
                is_leaving: false,
            };
            self.shards.insert(shard, owned);
        }
        is_asked
    }

    /// The shard could not be asked for. It is asked for again after a rest. Whether this is its
    /// first failure in a row.
    pub(super) fn failed(&mut self, shard: u32, round: u64, now: Duration) -> bool {
        let is_first = !self.failures.contains_key(&shard);
        if self.waits(shard, round) {
            let pause = self.pause(shard);
            self.rest(shard, now.saturating_add(pause));
        }
        is_first
    }

    /// The answer to a check whether another member waits for the shard.
    pub(super) fn looked(&mut self, shard: u32, is_waited_for: bool, now: Duration) {
        self.looking -= 1;
        let most = self.ttl / 6;
        let Some(pause) = self.is_to_move(shard) else {
            return;
        };
        if is_waited_for {
            return self.pace.push(shard);
        }
        let at = now.saturating_add(*pause);
        *pause = (2 * *pause).min(most.max(FIRST_PAUSE));
        self.due.insert((at, shard));
    }

    /// The member that waited for a shard has it now, or did not take it for a while.
    pub(super) fn followed(&mut self, shard: u32) {
        self.pace.taken(shard);
    }

    /// The work of a shard has ended, and the shard was released.
    pub(super) fn ended(&mut self, shard: u32, how: WorkEnd, now: Duration) -> Option<Order> {
        let Some(State::Owned { since, .. }) = self.shards.remove(&shard) else {
            return None;
        };
        let follows = self.pace.released(shard, now);
        if how == WorkEnd::Left || now.saturating_sub(since) >= self.ttl {
            self.failures.remove(&shard);
        }
        match how {
            WorkEnd::Left => self.ready_again(shard),
            WorkEnd::Finished => self.rest(shard, now.saturating_add(self.ttl)),
            WorkEnd::Failed => {
                let pause = self.pause(shard);
                self.rest(shard, now.saturating_add(pause));
            }
        }
        follows.then_some(Order::Follow(shard))
    }

    /// The pause after one more failure.
    fn pause(&mut self, shard: u32) -> Duration {
        let failures = self.failures.entry(shard).or_default();
        let pause = FIRST_PAUSE.saturating_mul(1 << (*failures).min(16));
        *failures += 1;
        pause.min(self.ttl.max(FIRST_PAUSE))
    }

    fn rest(&mut self, shard: u32, until: Duration) {
        self.shards.insert(shard, State::Resting { until });
        self.due.insert((until, shard));
    }
}

#[cfg(test)]
mod tests;
