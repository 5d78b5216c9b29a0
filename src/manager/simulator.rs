//! The engine against a simulated store that answers late, not at all, or well, in simulated time.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::engine::{Engine, HoldId, Orders, Pace, Proven};
use crate::model::error::Ended;
use crate::model::span::nanos;

const TTL: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_millis(500);
const START: u64 = 1_000_000_000_000;

/// What the store does with one renewal.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Proven after this long, if that is within the limit.
    Answered(Duration),
    Silent,
}

#[derive(Debug)]
struct Simulated {
    deadline: u64,
    granted_at: u64,
    /// The renewal under way: when its fate is known, and the proof if there is one.
    asked: Option<(u64, Option<Proven>)>,
    asks: Vec<u64>,
    lost: Option<(u64, Ended)>,
}

struct World {
    engine: Engine,
    now: u64,
    holds: BTreeMap<usize, (HoldId, Simulated)>,
    fates: Vec<Fate>,
    next_fate: usize,
}

fn pace() -> Pace {
    Pace {
        renewals_per_ttl: 3,
        heartbeat: None,
        request_timeout: LIMIT,
    }
}

impl World {
    fn new(holds: usize, fates: Vec<Fate>, max_hold: Option<Duration>) -> Self {
        let mut engine = Engine::new(pace(), START, 7);
        let adopt = |_| {
            let proven = proof(START);
            let id = engine.adopt(proven, START, max_hold);
            let hold = Simulated {
                deadline: proven.deadline,
                granted_at: START,
                asked: None,
                asks: Vec::new(),
                lost: None,
            };
            (id.index(), (id, hold))
        };
        let holds = (0..holds).map(adopt).collect();
        Self {
            engine,
            now: START,
            holds,
            fates,
            next_fate: 0,
        }
    }

    fn fate(&mut self) -> Fate {
        let fate = self.fates[self.next_fate % self.fates.len()];
        self.next_fate += 1;
        fate
    }

    /// Moves from one event to the next until `end`, and checks each order against what is allowed.
    fn run_until(&mut self, end: u64) {
        while self.now < end {
            let answers = self
                .holds
                .values()
                .filter_map(|(_, hold)| hold.asked)
                .map(|(at, _)| at);
            let next = answers.chain(self.engine.next_tick()).min().unwrap_or(end);
            self.now = next.clamp(self.now + 1, end);
            self.answer();
            self.tick();
        }
    }

    fn answer(&mut self) {
        for (id, hold) in self.holds.values_mut() {
            let Some((at, proof)) = hold.asked.filter(|(at, _)| *at <= self.now) else {
                continue;
            };
            hold.asked = None;
            // The lease itself refuses what comes after its deadline; the manager then forgets the
            // hold.
            if at >= hold.deadline || hold.lost.is_some() {
                continue;
            }
            let heard = self.engine.answered(*id, proof, self.now);
            assert_eq!(
                heard.map(|heard| heard.is_failing),
                Some(proof.is_none()),
                "an answer for a live hold is heard"
            );
            if let Some(proof) = proof {
                hold.deadline = hold.deadline.max(proof.deadline);
            }
        }
    }

    fn tick(&mut self) {
        let mut orders = Orders::default();
        self.engine.tick(self.now, &mut orders);
        let limits = [
            (orders.renew, LIMIT),
            (orders.urgent.holds, orders.urgent.limit),
            (orders.failing.holds, orders.failing.limit),
        ];
        for (ids, limit) in limits {
            for id in ids {
                assert!(limit <= LIMIT && !limit.is_zero());
                let fate = self.fate();
                let now = self.now;
                let (_, hold) = self
                    .holds
                    .get_mut(&id.index())
                    .expect("only holds are renewed");
                assert!(hold.lost.is_none(), "a lost hold is renewed");
                assert!(
                    hold.asked.is_none(),
                    "two renewals of one hold are under way"
                );
                assert!(now < hold.deadline, "a lapsed hold is renewed");
                hold.asks.push(now);
                hold.asked = Some(match fate {
                    Fate::Answered(after) if after <= limit => {
                        (now + nanos(after), Some(proof(now)))
                    }
                    _ => (now + nanos(limit), None),
                });
            }
        }
        for (id, reason) in orders.lost {
            let (_, hold) = self
                .holds
                .get_mut(&id.index())
                .expect("only holds are lost");
            assert!(hold.lost.is_none(), "a hold is lost twice");
            if reason == Ended::Lapsed {
                assert!(self.now >= hold.deadline, "lost before its deadline");
                assert!(self.now <= hold.deadline + 2_000_000, "reported late");
            }
            hold.lost = Some((self.now, reason));
        }
    }
}

fn proof(sent_at: u64) -> Proven {
    Proven {
        sent_at,
        ttl: TTL,
        deadline: sent_at + nanos(TTL) * 9 / 10,
    }
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        3 => (0..600_u64).prop_map(|ms| Fate::Answered(Duration::from_millis(ms))),
        1 => Just(Fate::Silent),
    ]
}

proptest! {
    #[test]
    fn every_order_is_allowed_whatever_the_store_does(
        holds in 1..40_usize,
        fates in proptest::collection::vec(fate(), 1..50),
    ) {
        let mut world = World::new(holds, fates, None);
        world.run_until(START + nanos(TTL) * 10);
        for (_, hold) in world.holds.values() {
            let is_told = hold.lost.is_some();
            prop_assert!(is_told || world.now < hold.deadline + 2_000_000, "a lapse is reported");
            prop_assert!(!is_told || world.now >= hold.deadline, "nothing else is reported");
        }
    }

    #[test]
    fn a_store_that_answers_in_time_keeps_every_hold(ms in 0..400_u64, holds in 1..40_usize) {
        let fates = vec![Fate::Answered(Duration::from_millis(ms))];
        let mut world = World::new(holds, fates, None);
        world.run_until(START + nanos(TTL) * 20);
        prop_assert!(world.holds.values().all(|(_, hold)| hold.lost.is_none()));
    }
}

#[test]
fn retries_come_faster_as_the_deadline_comes_near() {
    let mut world = World::new(1, vec![Fate::Silent], None);
    world.run_until(START + nanos(TTL));
    let (_, hold) = world.holds.values().next().expect("one hold");
    let pauses: Vec<_> = hold.asks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() >= 4, "{pauses:?}");
    assert!(
        pauses.windows(2).all(|pair| pair[1] <= pair[0]),
        "{pauses:?}"
    );
}

#[test]
fn a_hold_is_renewed_three_times_in_a_ttl() {
    let mut world = World::new(1, vec![Fate::Answered(Duration::ZERO)], None);
    world.run_until(START + nanos(TTL) * 10);
    let (_, hold) = world.holds.values().next().expect("one hold");
    assert!(
        (30..=39).contains(&hold.asks.len()),
        "{} in ten ttls",
        hold.asks.len()
    );
}

#[test]
fn max_hold_ends_a_hold_that_is_renewed_well() {
    let max_hold = Duration::from_secs(10);
    let mut world = World::new(3, vec![Fate::Answered(Duration::ZERO)], Some(max_hold));
    world.run_until(START + nanos(TTL) * 10);
    for (_, hold) in world.holds.values() {
        let (at, reason) = hold.lost.expect("lost");
        assert_eq!(reason, Ended::MaxHold);
        assert!(
            at >= hold.granted_at + nanos(max_hold)
                && at <= hold.granted_at + nanos(max_hold) + 2_000_000
        );
    }
}

#[test]
fn a_forgotten_hold_is_never_ordered_again_though_its_place_is_used_again() {
    let mut engine = Engine::new(pace(), START, 7);
    let first = engine.adopt(proof(START), START, None);
    assert!(engine.forget(first));
    assert!(!engine.forget(first));
    let second = engine.adopt(proof(START), START, None);
    assert_eq!(first.index(), second.index());
    assert_eq!(engine.answered(first, None, START), None);
    let mut orders = Orders::default();
    engine.tick(START + nanos(TTL) / 3, &mut orders);
    assert_eq!(orders.renew, [second]);
    assert_eq!(engine.len(), 1);
}

/// When an engine asks for renewals of 1,000 holds that began within a millisecond, and of how
/// many, until all were asked for.
fn first_round(seed: u64) -> BTreeMap<u64, usize> {
    let mut engine = Engine::new(pace(), START, seed);
    for spread in 0..1_000 {
        engine.adopt(proof(START + spread * 1_000), START, None);
    }
    let mut now = START;
    let mut calls = BTreeMap::new();
    while let Some(next) = engine
        .next_tick()
        .filter(|next| *next < START + nanos(TTL) / 2)
    {
        now = next.max(now + 1);
        let mut orders = Orders::default();
        engine.tick(now, &mut orders);
        if !orders.renew.is_empty() {
            calls.insert(now, orders.renew.len());
        }
    }
    calls
}

#[test]
fn what_falls_due_together_is_renewed_together() {
    let calls = first_round(7);
    assert_eq!(calls.values().sum::<usize>(), 1_000);
    assert!(
        calls.len() <= 4,
        "{} calls for one round of 1,000 holds",
        calls.len()
    );
}

#[test]
fn managers_of_one_machine_renew_at_instants_of_their_own() {
    let (one, other) = (first_round(7), first_round(7 + 50_000_000));
    assert!(
        one.keys().all(|at| !other.contains_key(at)),
        "{one:?} {other:?}"
    );
}
