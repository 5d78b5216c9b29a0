//! The nemesis: the faults of processes, servers and clocks, numbered, at times that are drawn
//! before the world begins.

use std::time::Duration;

use leasehold::clock::ClockKind;
use leasehold::store::quorum::MAX_SKEW;

use crate::dice::Dice;
use crate::net::Event;
use crate::setup::{Fault, SECOND, STORM, Setup};
use crate::state::State;
use crate::world::World;

/// One fault at one time.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    pub(crate) at: u64,
    pub(crate) deed: Deed,
}

#[derive(Clone, Debug)]
pub(crate) enum Deed {
    Cut {
        node: usize,
        out: bool,
        back: bool,
        span: u64,
    },
    CutOne {
        node: usize,
        server: usize,
        span: u64,
    },
    Pause {
        node: usize,
        span: u64,
    },
    /// Right before the deadline of a lease that the node believes in.
    PauseBeforeDeadline {
        node: usize,
        before: u64,
        span: u64,
    },
    Crash {
        node: usize,
        span: u64,
        at_a_holder: bool,
    },
    /// A server forgets everything, and grants nothing for as long as it must.
    Restart {
        server: usize,
        span: u64,
    },
    /// A server stops, and remembers.
    Outage {
        server: usize,
        span: u64,
    },
    ClockBack {
        node: usize,
        by: u64,
    },
    Suspend {
        node: usize,
        by: u64,
    },
    /// Late turns for a while.
    Late {
        node: usize,
        span: u64,
    },
}

impl Deed {
    pub(crate) fn fault(&self) -> Fault {
        match self {
            Self::Cut { .. } | Self::CutOne { .. } => Fault::Cut,
            Self::Pause { .. } => Fault::Pause,
            Self::PauseBeforeDeadline { .. } => Fault::AimedPause,
            Self::Crash { .. } => Fault::Crash,
            Self::Restart { .. } => Fault::Restart,
            Self::Outage { .. } => Fault::Outage,
            Self::ClockBack { .. } => Fault::ClockBack,
            Self::Suspend { .. } => Fault::Suspend,
            Self::Late { .. } => Fault::Late,
        }
    }
}

/// Draws every act. All lines are drawn for every seed, so that one switched off shifts no other.
pub(crate) fn acts(setup: &Setup) -> Vec<Act> {
    let mut acts = Vec::new();
    for (line, fault) in Fault::ALL.into_iter().enumerate() {
        let mut dice = Dice::new(setup.seed, 100 + line as u64);
        let mut at = dice.ms(100.0, 4_000.0);
        while at < STORM {
            let (deed, pause) = draw(fault, setup, &mut dice);
            acts.extend(deed.map(|deed| Act { at, deed }));
            at += pause;
        }
    }
    acts.sort_by_key(|act| act.at);
    acts
}

fn draw(fault: Fault, setup: &Setup, dice: &mut Dice) -> (Option<Deed>, u64) {
    let node = dice.below(setup.nodes);
    let server = dice.below(setup.members);
    let (out, back) = dice.pick(&[(true, true), (true, false), (false, true), (true, true)]);
    let span = if dice.falls(0.6) {
        dice.ms(200.0, 2_800.0)
    } else {
        dice.ms(0.0, 6_000.0)
    };
    let before = dice.ms(0.0, 400.0);
    let at_a_holder = dice.falls(0.6);
    let one = dice.falls(0.4) && setup.members > 1;
    let often = dice.ms(500.0, 6_000.0);
    let seldom = dice.ms(4_000.0, 20_000.0);
    match fault {
        Fault::Cut if one => (Some(Deed::CutOne { node, server, span }), often),
        Fault::Cut => (
            Some(Deed::Cut {
                node,
                out,
                back,
                span: span.min(3_200_000_000),
            }),
            often,
        ),
        Fault::Pause => (Some(Deed::Pause { node, span }), often),
        Fault::AimedPause => (
            Some(Deed::PauseBeforeDeadline { node, before, span }),
            often,
        ),
        Fault::Crash => (
            Some(Deed::Crash {
                node,
                span: span.min(5 * SECOND),
                at_a_holder,
            }),
            seldom / 2,
        ),
        Fault::Restart => (
            Some(Deed::Restart {
                server,
                span: span.min(2 * SECOND),
            }),
            seldom,
        ),
        Fault::Outage => (
            Some(Deed::Outage {
                server,
                span: span.min(2 * SECOND),
            }),
            seldom / 2,
        ),
        Fault::ClockBack => (
            Some(Deed::ClockBack {
                node,
                by: if one || at_a_holder {
                    600_000_000 + span
                } else {
                    before.max(1_000_000)
                },
            }),
            seldom,
        ),
        Fault::Suspend => (
            Some(Deed::Suspend {
                node,
                by: 600_000_000 + span,
            }),
            seldom,
        ),
        Fault::Late => (
            Some(Deed::Late {
                node,
                span: before / 2,
            }),
            often / 4,
        ),
        _ => (None, SECOND * 60),
    }
}

impl World {
    pub(crate) fn strike(&mut self, number: usize) {
        let act = self.acts[number].deed.clone();
        let (is_off, members) = {
            let state = self.shared.lock();
            let setup = &state.setup;
            (
                state.is_calm || !setup.has(act.fault()) || setup.skip.contains(&number),
                setup.members,
            )
        };
        if is_off {
            return;
        }
        let mut state = self.shared.lock();
        let now = state.now;
        state
            .log
            .note(now, "nemesis", [number as u64, act.fault() as u64, 0]);
        state.log.say(now, || format!("nemesis {number}: {act:?}"));
        match act {
            Deed::Cut {
                node,
                out,
                back,
                span,
            } => {
                state.meets(Fault::Cut, node);
                state.links.cut(node, out, back);
                state.at(now + span, Event::CutEnds(node));
            }
            Deed::CutOne { node, server, span } => {
                state.meets(Fault::Cut, node);
                state.links.single = Some((node, server));
                state.at(now + span, Event::CutEnds(node));
            }
            Deed::Pause { node, span } => {
                state.meets(Fault::Pause, node);
                state.pause(node, span);
            }
            Deed::Late { node, span } => {
                state.meets(Fault::Late, node);
                state.pause(node, span);
            }
            Deed::PauseBeforeDeadline { node, before, span } => {
                if let Some(left) = state.longest_lease(node) {
                    // Struck again at the right time, as a plain pause.
                    let at = now + left.saturating_sub(before);
                    self.acts.push(Act {
                        at,
                        deed: Deed::Pause { node, span },
                    });
                    let number = self.acts.len() - 1;
                    state.meets(Fault::AimedPause, node);
                    state.at(at, Event::Nemesis(number));
                }
            }
            Deed::Crash {
                node,
                span,
                at_a_holder,
            } => {
                let holder = state.holder().filter(|_| at_a_holder);
                let node = holder.unwrap_or(node);
                if self.nodes[node].is_alive() {
                    state.meets(Fault::Crash, node);
                    state.at(now + span, Event::Restart(node));
                    drop(state);
                    self.nodes[node].crash();
                }
            }
            Deed::Restart { server, span }
                if !state.setup.is_register && self.may_lose(&state, members) =>
            {
                state.coverage.sometimes("a server forgot everything");
                let quarantine = state.setup.settings.max_ttl + MAX_SKEW;
                let store = state.truth.servers[server].store.clone();
                store.restart(quarantine);
                state.links.down[server] = true;
                state.at(now + span, Event::ServerUp(server));
            }
            Deed::Outage { server, span } if self.may_lose(&state, members) => {
                state.coverage.sometimes("a server was down");
                state.links.down[server] = true;
                state.at(now + span, Event::ServerUp(server));
            }
            Deed::Restart { .. } | Deed::Outage { .. } => {}
            Deed::ClockBack { node, by } => {
                state.meets(Fault::ClockBack, node);
                state.sketch_fault(node, "clock put back");
                state.clock_moves(node);
                // What is within the drift that is tolerated between two heartbeats cannot be seen,
                // and costs no safety: the other strict clock still ends the lease in time.
                if by > 550_000_000 {
                    state.clock_was_wrong(node);
                }
                self.nodes[node]
                    .clock()
                    .step_back(ClockKind::Raw, Duration::from_nanos(by));
            }
            Deed::Suspend { node, by } => {
                state.meets(Fault::Suspend, node);
                state.sketch_fault(node, "suspended");
                state.clock_moves(node);
                state.clock_was_wrong(node);
                self.nodes[node]
                    .clock()
                    .advance_only(ClockKind::Boot, Duration::from_nanos(by));
                state.touched.insert(node);
            }
        }
    }

    /// Of a quorum at most a minority is down at once.
    fn may_lose(&self, state: &State, members: usize) -> bool {
        let down = state.links.down.iter().filter(|down| **down).count();
        // Models of servers have faults of their own.
        !state.setup.is_zookeeper
            && !state.setup.is_redis
            && (members == 1 && down == 0 || down < members / 2)
    }
}

impl State {
    /// A fault meets what the workers of a node are doing.
    fn meets(&mut self, fault: Fault, node: usize) {
        let doing: Vec<_> = (self.doing.iter())
            .filter(|((known, _), _)| *known == node)
            .map(|(_, doing)| *doing)
            .collect();
        for doing in doing {
            self.coverage.met(fault, doing);
        }
    }

    fn sketch_fault(&mut self, node: usize, what: &'static str) {
        let now = self.now;
        if let Some(picture) = &mut self.picture {
            picture.struck(now, node, what);
        }
    }

    fn longest_lease(&self, node: usize) -> Option<u64> {
        let known = self.leases.all.iter().rev().take(40);
        known
            .filter(|known| known.node == node)
            .filter_map(|known| known.left())
            .max()
    }

    fn holder(&self) -> Option<usize> {
        let known = self.leases.all.iter().rev().take(40);
        known
            .filter(|known| known.left().is_some())
            .map(|known| known.node)
            .next()
    }
}
