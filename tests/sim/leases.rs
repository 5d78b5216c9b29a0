//! [`Leases`]: every lease that a worker ever got, and the judges that look at all of them after
//! every step.
//!
//! They use [`Lease::peek`] only: a check would mark what it finds lapsed, and so change what it
//! judges.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::clock::{ClockKind, ManualClock, Stamp};
use leasehold::{Ended, Key, Lease, LeaseError};

use crate::setup::{SECOND, STORM};
use crate::state::State;
use crate::truth::{in_truth, stamp};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Alone,
    Reader,
    Writer,
    /// So many of so many permits.
    Share(u32, u32),
}

/// How a worker ended its hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Given {
    Dropped,
    Released,
}

pub(crate) struct Known {
    pub(crate) lease: Lease,
    pub(crate) node: usize,
    pub(crate) life: u64,
    pub(crate) key: Key,
    pub(crate) token: u64,
    pub(crate) mode: Mode,
    clock: ManualClock,
    ppm: i64,
    since: u64,
    /// When the holder before it in this process began to give it on, by the process's clock;
    /// `None` for a lease from the store.
    handed_off_at: Option<Stamp>,
    last: [u64; 3],
    /// A look found it past a deadline, or marked: it is over for good.
    is_over: bool,
    pub(crate) refuses_handoffs: bool,
    /// Runs in turn whose work is in progress.
    pub(crate) in_turn: u32,
    /// From here on no run begins and none commits.
    pub(crate) given: Option<Given>,
    /// When its release was called, by the process's clock: from then on it may be handed off.
    ends_at: Option<Stamp>,
    born_at: Stamp,
    /// A commit or a step under it is in doubt.
    pub(crate) is_in_doubt: bool,
    /// A clock was wrong: at this time the lease must be over.
    over_by: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Leases {
    pub(crate) all: Vec<Known>,
    active: Vec<usize>,
    /// One of those that are over is looked at in each step.
    turn: usize,
    /// When a clock of each node was moved last, by how long its process had run.
    moved_clocks: BTreeMap<usize, u64>,
    /// The last lease under which a run began, for each node and key.
    pub(crate) last_run: BTreeMap<(usize, Key), usize>,
}

/// What a worker knows about its new lease.
pub(crate) struct Born<'a> {
    pub(crate) lease: &'a Lease,
    pub(crate) node: usize,
    pub(crate) life: u64,
    pub(crate) mode: Mode,
    pub(crate) clock: &'a ManualClock,
    /// When its caller asked for it.
    pub(crate) asked_at: u64,
    /// It has a fence or a fair order, or its lock says so.
    pub(crate) refuses_handoffs: bool,
}

impl Leases {
    /// Whether a process may still act on it.
    pub(crate) fn is_active(&self, number: usize) -> bool {
        self.active.contains(&number)
    }
}

impl Known {
    /// What is left by the strict clocks; `None` if it is not believed.
    pub(crate) fn left(&self) -> Option<u64> {
        left(&self.lease, &self.clock)
    }

    /// The true time that a span of its clock takes.
    pub(crate) fn in_truth(&self, span: u64) -> u64 {
        in_truth(span, self.ppm)
    }

    /// How long its holder had it, if it came from another one in this process, and `max_hold` has
    /// just ended it.
    fn ended_by_max_hold(&self, words: [u64; 3]) -> Option<Duration> {
        let begun = (self.handed_off_at).filter(|_| self.ends_for(Ended::MaxHold, words))?;
        Some(stamp(&self.clock).since(&begun))
    }

    /// Whether it is marked as over since the last look, and for this reason.
    fn ends_for(&self, reason: Ended, words: [u64; 3]) -> bool {
        words == [0; 3] && self.last != words && self.lease.lost_reason() == Some(reason)
    }
}

fn left(lease: &Lease, clock: &ManualClock) -> Option<u64> {
    let (now, words) = (stamp(clock), lease.peek());
    let left = |clock: ClockKind| {
        let word = words[clock as usize];
        word.checked_sub(now.on(clock)).filter(|&left| left > 0)
    };
    Some(left(ClockKind::Boot)?.min(left(ClockKind::Raw)?))
}

impl State {
    /// A worker got a lease. Returns its number.
    pub(crate) fn lease_born(&mut self, born: &Born<'_>) -> usize {
        let Born { lease, node, .. } = *born;
        let number = self.leases.all.len();
        let (key, token) = (lease.key().clone(), lease.token().number());
        self.log
            .note(self.now, "held", [node as u64, token, number as u64]);
        self.judge_tokens(born, &key, token);
        let mut of_token = self.leases.all.iter().rev();
        let before = of_token.find(|known| known.key == key && known.token == token);
        let handed_off_at = before.and_then(|known| known.ends_at);
        self.leases.all.push(Known {
            lease: lease.clone(),
            node,
            life: born.life,
            key,
            token,
            mode: born.mode,
            clock: born.clock.clone(),
            ppm: self.setup.node_ppm[node],
            since: self.now,
            handed_off_at,
            last: lease.peek(),
            is_over: false,
            refuses_handoffs: born.refuses_handoffs,
            in_turn: 0,
            given: None,
            ends_at: None,
            born_at: stamp(born.clock),
            is_in_doubt: false,
            over_by: None,
        });
        self.leases.active.push(number);
        self.records_hold(number, born.asked_at);
        number
    }

    /// O9: a new hold has a larger token than every hold before; the same token is a handoff, and
    /// keeps its rules.
    fn judge_tokens(&mut self, born: &Born<'_>, key: &Key, token: u64) {
        if born.mode != Mode::Alone {
            return;
        }
        if left(born.lease, born.clock).is_none() {
            // The process stopped after the grant, while it raised its fence: another may hold by
            // now.
            self.coverage.sometimes("a guard arrived after its lease");
            return;
        }
        let of_key = || self.leases.all.iter().filter(|known| known.key == *key);
        let largest = of_key().map(|known| known.token).max().unwrap_or_default();
        let same: Vec<_> = of_key().filter(|known| known.token == token).collect();
        let wrong = if token < largest {
            format!("{key} was held under {token} after {largest}")
        } else if same.is_empty() {
            return;
        } else if same
            .iter()
            .any(|known| (known.node, known.life) != (born.node, born.life))
        {
            format!("two processes held {key} under {token}")
        } else if born.refuses_handoffs || same.iter().any(|known| known.refuses_handoffs) {
            format!("{key} was handed off under {token} by a lock or to one that refuses it")
        } else if same.len() as u32 > self.setup.settings.handoff_count {
            format!("{key} was handed off {} times under {token}", same.len())
        } else if same.iter().any(|known| known.given == Some(Given::Dropped)) {
            format!("{key} was handed off under {token} after its guard was dropped")
        } else if same.iter().any(|known| known.is_in_doubt) {
            format!("{key} was handed off under {token} with an effect in doubt")
        } else {
            self.coverage.sometimes("handed off");
            // The grant is older than the first lease's birth here, and the handoff later than the
            // begin of the last one's end.
            let ends_at = same.last().and_then(|last| last.ends_at);
            let held_for = ends_at.map(|end| end.since(&same[0].born_at));
            if held_for.is_none_or(|span| span < self.setup.settings.handoff_time) {
                return;
            }
            format!("{key} was handed off under {token} after {held_for:?}")
        };
        self.fail("O9 tokens and handoffs", || wrong);
    }

    /// A caller is about to end its hold.
    pub(crate) fn ends(&mut self, leases: &[usize]) {
        for &number in leases {
            let known = &mut self.leases.all[number];
            known.ends_at = Some(stamp(&known.clock));
        }
        self.records_release(leases);
    }

    /// A clock of a node was wrong: every lease of that process must be over soon.
    pub(crate) fn clock_was_wrong(&mut self, node: usize) {
        // A process that has stalled is ahead of true time: what it does next may have been decided
        // before.
        let by = self.now.max(self.stalled[node])
            + self.setup.settings.ttl.as_nanos() as u64
            + self.setup.settings.lock_delay.as_nanos() as u64;
        for &number in &self.leases.active {
            let known = &mut self.leases.all[number];
            if known.node == node && known.left().is_some() {
                known.over_by = Some(by);
            }
        }
    }

    /// A clock of a node is moved, by so little or so much: the next comparison of its clocks may
    /// end what it holds.
    pub(crate) fn clock_moves(&mut self, node: usize) {
        self.leases.moved_clocks.insert(node, self.awake(node));
    }

    /// Whether a clock of a node was moved so lately that no heartbeat after it need have compared
    /// its clocks before now.
    fn has_moved_a_clock(&self, node: usize) -> bool {
        let window = self.setup.settings.ttl + self.setup.settings.lock_delay;
        let moved_at = self.leases.moved_clocks.get(&node);
        moved_at.is_some_and(|at| self.awake(node) - at <= window.as_nanos() as u64)
    }

    /// Whether a clock of a node was ever moved.
    pub(crate) fn has_moved_clocks(&self, node: usize) -> bool {
        self.leases.moved_clocks.contains_key(&node)
    }

    /// Whether a lease was lost because a clock of its process was wrong, as one was.
    pub(crate) fn is_lost_to_a_clock(&self, number: usize) -> bool {
        let known = &self.leases.all[number];
        known.lease.lost_reason() == Some(Ended::ClockFault) && self.has_moved_a_clock(known.node)
    }

    /// A process died: nobody acts on its leases.
    pub(crate) fn leases_died(&mut self, node: usize, life: u64) {
        self.records_death(node, life);
        let all = &self.leases.all;
        let dead = |number: &usize| all[*number].node == node && all[*number].life == life;
        self.leases.active.retain(|number| !dead(number));
    }

    /// The lock delay, as a server whose clock is as fast as it may be counts it.
    pub(crate) fn delay(&self) -> u64 {
        self.setup.settings.lock_delay.as_nanos() as u64 * 12 / 13
    }

    pub(crate) fn judge_leases(&mut self) {
        self.records_looks();
        let mut believed: Vec<(Key, Mode, u64)> = Vec::new();
        let mut wrong = None;
        let mut ended = false;
        let mut lost_to_a_clock = None;
        let delay = self.delay();
        for &number in &self.leases.active {
            let known = &mut self.leases.all[number];
            let (words, left) = (known.lease.peek(), known.left());
            if words != [0; 3] && (0..3).any(|lane| words[lane] < known.last[lane]) {
                wrong = Some((
                    "O8 finality",
                    format!(
                        "a deadline of {} moved back: {:?} to {words:?}",
                        known.key, known.last
                    ),
                ));
            }
            if let (Some(had), Some(max_hold)) =
                (known.ended_by_max_hold(words), self.setup.settings.max_hold)
            {
                self.coverage
                    .sometimes("max_hold ended a lease that was handed off");
                if had < max_hold {
                    wrong = Some((
                        "O9 max_hold",
                        format!(
                            "the lease {number} of {} was handed off, and ended by max_hold after {had:?}",
                            known.key
                        ),
                    ));
                }
            }
            if known.ends_for(Ended::ClockFault, words) {
                lost_to_a_clock = Some(number);
            }
            known.last = words;
            let Some(left) = left else {
                known.is_over = true;
                ended = true;
                continue;
            };
            if known.is_over {
                wrong = Some((
                    "O8 finality",
                    format!(
                        "the lease {number} of {} under {} is live again",
                        known.key, known.token
                    ),
                ));
            }
            if known.over_by.is_some_and(|by| self.now > by) {
                wrong = Some((
                    "O8 clock fault",
                    format!(
                        "the lease {number} of {} outlived a clock that was wrong",
                        known.key
                    ),
                ));
            }
            if let Some(max_hold) = self.setup.settings.max_hold {
                let most = max_hold + self.setup.settings.ttl + self.setup.settings.lock_delay;
                if self.now - known.since > most.as_nanos() as u64 {
                    wrong = Some((
                        "O9 max_hold",
                        format!("the lease {number} of {} is older than max_hold", known.key),
                    ));
                }
            }
            let left = in_truth(left, known.ppm) + delay;
            let kept = match &self.observed {
                Some(observed) => observed.kept(&known.key, known.token, self.now),
                None => self.truth.left(&known.key, known.token),
            };
            #[cfg(feature = "zookeeper")]
            let kept = match &self.ensemble {
                Some(zookeeper) => zookeeper.kept(known.token, self.now),
                None => kept,
            };
            #[cfg(feature = "redis-worlds")]
            let kept = match &self.redis {
                Some(redis) => redis.kept(&known.key, known.token, self.now),
                None => kept,
            };
            if left > kept {
                wrong = Some((
                    "O1 kept by the store",
                    format!(
                        "node {} believes in {} under {} for {left} ns more, and the store keeps it for {kept} ns",
                        known.node, known.key, known.token
                    ),
                ));
            }
            let alone = |mode: Mode| !matches!(mode, Mode::Reader | Mode::Share(..));
            let other = believed
                .iter()
                .find(|(key, mode, _)| *key == known.key && (alone(*mode) || alone(known.mode)));
            if let Some((key, _, token)) = other {
                wrong = Some((
                    "O2 exclusion",
                    format!("{key} is believed held under {token} and {}", known.token),
                ));
            }
            believed.push((known.key.clone(), known.mode, known.token));
            if let Mode::Share(ours, of) = known.mode {
                let permits = |(key, mode, _): &(Key, Mode, u64)| match mode {
                    Mode::Share(permits, _) if *key == known.key => *permits,
                    _ => 0,
                };
                let taken: u32 = believed.iter().map(permits).sum();
                if ours < taken {
                    self.coverage.sometimes("two held permits");
                }
                if taken > of {
                    wrong = Some((
                        "O2 exclusion",
                        format!(
                            "{taken} permits of {} are believed held, of {of}",
                            known.key
                        ),
                    ));
                }
            }
        }
        if let Some((oracle, what)) = wrong {
            self.fail(oracle, || what);
        }
        if let Some(number) = lost_to_a_clock {
            self.coverage
                .sometimes("a clock that was wrong ended a lease");
            if !self.is_lost_to_a_clock(number) {
                self.fail("O8 clock fault", || {
                    format!("the lease {number} was ended for a clock, and no clock of its process was moved")
                });
            }
        }
        if ended {
            // What was found over stays in the list until it is marked, since only the mark is
            // final for its readers.
            let all = &self.leases.all;
            self.leases
                .active
                .retain(|&number| all[number].last != [0; 3]);
        }
        self.judge_one_that_is_over();
        self.judge_what_is_forgotten();
    }

    /// O10: while nothing fails, no hold stays whose caller has gone. A process that stalls
    /// withdraws nothing, and a stall that began in the storm may outlast it. What was sent until
    /// then may be slow and doubled, and a second copy is granted for a TTL.
    fn judge_what_is_forgotten(&mut self) {
        let stalled = self.stalled.iter().max().copied().unwrap_or(0);
        let begin = STORM.max(stalled) + self.setup.max_ttl() + 5 * SECOND;
        if !(begin..self.setup.until).contains(&self.now) || !self.leases.turn.is_multiple_of(8) {
            return;
        }
        // A caller of several locks gets its guards together, however long the last of them takes.
        let known = |key: &Key, token: u64| {
            // What a member of shards holds beside its shards has no guard.
            if key.as_str().starts_with('x') || key.as_str().ends_with("/shard-members") {
                return true;
            }
            let mut all = self.leases.all.iter().rev();
            all.any(|known| known.token == token && known.key == *key)
        };
        let forgotten = self.truth.forgotten(known).cloned();
        #[cfg(feature = "redis-worlds")]
        let forgotten = forgotten.or_else(|| self.redis.as_ref()?.unclaimed(self.now, known));
        if let Some(key) = forgotten {
            self.fail("O10 leaks", || {
                format!("a hold of {key} stays, and nobody got its guard")
            });
        }
    }

    fn judge_one_that_is_over(&mut self) {
        let leases = &mut self.leases;
        if leases.all.is_empty() {
            return;
        }
        leases.turn = (leases.turn + 1) % leases.all.len();
        let known = &leases.all[leases.turn];
        if !known.is_over || known.last != [0; 3] {
            return;
        }
        if known.lease.peek() != [0; 3] {
            let what = format!(
                "a lease of {} was marked as over, and is not any more",
                known.key
            );
            return self.fail("O8 finality", || what);
        }
        // It is marked already, so that a check changes nothing.
        let heard = known.lease.lost().now_or_never();
        let checked = match known.lease.ensure(Duration::ZERO) {
            Err(LeaseError::Lost(reason)) => Some(reason),
            _ => None,
        };
        if heard.is_none() || heard != checked {
            let what = format!(
                "a lease of {} is over; who waits for its end hears {heard:?}, and a check says {checked:?}",
                known.key
            );
            self.fail("O8 news", || what);
        }
    }

    pub(crate) fn is_believed(&self, number: usize) -> bool {
        self.leases.all[number].left().is_some()
    }
}
