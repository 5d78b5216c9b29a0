//! The network: requests and answers that are lost, doubled, slow or cut off, each on its own.
//!
//! A lost message is silence: its sender never learns of it. The far end executes a request when it
//! arrives, whether or not the caller still waits.

use std::future::pending;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::setup::Fault;
use crate::state::{Shared, State};

/// What the network does next.
pub(crate) enum Event {
    Arrive(Arc<Request>),
    /// An answer or a wake-up reaches a node.
    Answer {
        node: usize,
        life: u64,
        deliver: Box<dyn FnOnce() + Send>,
    },
    Resume(usize),
    Restart(usize),
    ServerUp(usize),
    Nemesis(usize),
    CutEnds(usize),
    BeCalm,
    End,
    /// Time for the judges to look: nothing else happens.
    Look,
    /// Something within the servers of a world of zookeeper or redis.
    #[cfg(any(feature = "redis-worlds", feature = "zookeeper"))]
    Do(Box<dyn FnOnce(&mut State) + Send>),
}

/// Where a request goes: to a member of the store, or to the resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    Server(usize),
    Resource,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Op {
    Acquire,
    Renew,
    Release,
    Withdraw,
    Subscribe,
    Downgrade,
    Inspect,
    Raise,
    Revoke,
    Fence,
    Step,
    Undo,
    Commit,
    Resolve,
}

impl Op {
    pub(crate) const ALL: [Self; 14] = [
        Self::Acquire,
        Self::Renew,
        Self::Release,
        Self::Withdraw,
        Self::Subscribe,
        Self::Downgrade,
        Self::Inspect,
        Self::Raise,
        Self::Revoke,
        Self::Fence,
        Self::Step,
        Self::Undo,
        Self::Commit,
        Self::Resolve,
    ];
}

type Execute = dyn Fn(&mut State) -> Box<dyn FnOnce() + Send> + Send + Sync;

pub(crate) struct Request {
    pub(crate) node: usize,
    pub(crate) life: u64,
    pub(crate) to: To,
    pub(crate) op: Op,
    /// Not before its process has stalled.
    leaves_at: u64,
    execute: Box<Execute>,
}

/// What is cut, in each direction.
pub(crate) struct Links {
    out: Vec<bool>,
    back: Vec<bool>,
    /// Of one node to one server.
    pub(crate) single: Option<(usize, usize)>,
    pub(crate) down: Vec<bool>,
}

impl Links {
    pub(crate) fn new(nodes: usize, servers: usize) -> Self {
        Self {
            out: vec![false; nodes],
            back: vec![false; nodes],
            single: None,
            down: vec![false; servers],
        }
    }

    pub(crate) fn cut(&mut self, node: usize, out: bool, back: bool) {
        (self.out[node], self.back[node]) = (out, back);
    }

    /// Whether nothing comes through, one way or both, or to one server.
    pub(crate) fn is_cut(&self, node: usize) -> bool {
        let is_single = self.single.is_some_and(|(single, _)| single == node);
        self.out[node] || self.back[node] || is_single
    }

    pub(crate) fn passes_out(&self, node: usize, to: To) -> bool {
        !self.out[node] && self.is_open(node, to)
    }

    pub(crate) fn passes_back(&self, node: usize, to: To) -> bool {
        !self.back[node] && self.is_open(node, to)
    }

    fn is_open(&self, node: usize, to: To) -> bool {
        match to {
            To::Server(server) => self.single != Some((node, server)),
            To::Resource => true,
        }
    }
}

/// The end of the network in one life of one node.
#[derive(Clone)]
pub(crate) struct Net {
    pub(crate) shared: Shared,
    pub(crate) node: usize,
    pub(crate) life: u64,
}

impl Net {
    /// This process asks to become a reader.
    pub(crate) fn downgrades(&self, grant: &leasehold::store::Grant) {
        let mut state = self.shared.lock();
        if state.lives[self.node] == self.life {
            crate::judge::downgrades(&mut state, self.node, grant);
        }
    }

    /// Sends a request, and waits for its answer for ever.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        to: To,
        op: Op,
        execute: impl Fn(&mut State) -> T + Send + Sync + 'static,
    ) -> T {
        let answer = self.send(to, op, execute);
        match answer.await {
            Ok(answer) => answer,
            Err(_) => pending().await,
        }
    }

    pub(crate) fn send<T: Send + 'static>(
        &self,
        to: To,
        op: Op,
        execute: impl Fn(&mut State) -> T + Send + Sync + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, answered) = oneshot::channel();
        // The first answer counts; a doubled request has two.
        let answer = Arc::new(Mutex::new(Some(answer)));
        let execute = move |state: &mut State| -> Box<dyn FnOnce() + Send> {
            let done = execute(state);
            let answer = Arc::clone(&answer);
            Box::new(move || {
                let waiting = answer.lock().take();
                if let Some(waiting) = waiting {
                    let _ = waiting.send(done);
                }
            })
        };
        let mut state = self.shared.lock();
        if state.lives[self.node] == self.life {
            let leaves_at = state.now.max(state.stalled[self.node]);
            state.send(Request {
                node: self.node,
                life: self.life,
                to,
                op,
                leaves_at,
                execute: Box::new(execute),
            });
        }
        answered
    }
}

/// The fate of one message. Every die is thrown for every message, so that one fault switched off
/// shifts no other.
pub(crate) struct Fate {
    pub(crate) delay: u64,
    pub(crate) lost: bool,
    doubled: Option<u64>,
}

impl State {
    pub(crate) fn fate(&mut self, lost: f64, may_double: bool) -> Fate {
        let rates = self.setup.rates.clone();
        let dice = &mut self.dice;
        let base = dice.ms(0.2, 4.0);
        let slow = dice.falls(rates.slow).then_some(());
        let by = dice.ms(0.0, 3_500.0);
        let is_lost = dice.falls(lost);
        let doubled = dice.falls(rates.doubled);
        let second = dice.ms(0.5, 800.0);
        let quiet = self.is_calm;
        Fate {
            delay: base + if slow.is_some() && !quiet { by } else { 0 },
            lost: is_lost && !quiet,
            doubled: (doubled && may_double && !quiet).then_some(second),
        }
    }

    fn send(&mut self, request: Request) {
        let (node, to, op) = (request.node, request.to, request.op);
        // A transport does not double a commit: it knows its connection.
        let mut fate = self.fate(self.setup.rates.lost, to != To::Resource);
        let is_slow = fate.delay > 10_000_000;
        fate.delay += request.leaves_at - self.now;
        self.log
            .note(self.now, "send", [node as u64, op as u64, fate.delay]);
        if fate.lost || !self.links.passes_out(node, to) {
            self.coverage.hit(self.target_fault(fate.lost), op);
            return;
        }
        let request = Arc::new(request);
        let now = self.now;
        if let Some(second) = fate.doubled {
            self.coverage.hit(Fault::Doubled, op);
            self.at(
                now + fate.delay + second,
                Event::Arrive(Arc::clone(&request)),
            );
        }
        if is_slow {
            self.coverage.hit(Fault::Slow, op);
        }
        self.at(now + fate.delay, Event::Arrive(request));
    }

    /// Takes out what a process would have sent after its stall, had it not died. To be dropped
    /// outside of the lock.
    pub(crate) fn take_unsent(&mut self, node: usize) -> Vec<Event> {
        let now = self.now;
        let is_unsent = |event: &Event| matches!(event, Event::Arrive(request) if request.node == node && request.leaves_at > now);
        let all = self.queue.iter().filter(|(_, event)| is_unsent(event));
        let unsent: Vec<_> = all.map(|(place, _)| *place).collect();
        let take = |place| self.queue.remove(&place);
        unsent.into_iter().filter_map(take).collect()
    }

    fn target_fault(&self, lost: bool) -> Fault {
        if lost { Fault::Lost } else { Fault::Cut }
    }

    /// A request reaches its far end.
    pub(crate) fn arrive(&mut self, request: &Request) {
        let Request { node, to, op, .. } = *request;
        if let To::Server(server) = to
            && self.links.down[server]
        {
            self.coverage.hit(Fault::Outage, op);
            return;
        }
        self.log
            .note(self.now, "arrive", [node as u64, op as u64, 0]);
        let deliver = (request.execute)(self);
        let fate = self.fate(self.setup.rates.answer_lost, false);
        self.aim(node, op);
        if fate.lost || !self.links.passes_back(node, to) {
            if fate.lost {
                self.coverage.hit(Fault::AnswerLost, op);
            }
            return;
        }
        self.answer(node, request.life, fate.delay, deliver);
    }

    pub(crate) fn answer(
        &mut self,
        node: usize,
        life: u64,
        delay: u64,
        deliver: Box<dyn FnOnce() + Send>,
    ) {
        let when = self.now + delay;
        let answer = Event::Answer {
            node,
            life,
            deliver,
        };
        self.at(when, answer);
    }

    /// A wake-up is a message of its own.
    pub(crate) fn wake(&mut self, node: usize, life: u64, deliver: Box<dyn FnOnce() + Send>) {
        let fate = self.fate(self.setup.rates.answer_lost, false);
        let passes = self.links.passes_back(node, To::Resource);
        if !fate.lost && passes {
            self.answer(node, life, fate.delay, deliver);
        }
    }

    /// An aimed pause: the process stops right after the server executed what it asked for.
    pub(crate) fn aim(&mut self, node: usize, op: Op) {
        let (hit, span, with_cut) = {
            let dice = &mut self.dice;
            // There are few of these.
            let is_effect = matches!(op, Op::Commit | Op::Step);
            let often = if is_effect { 0.2 } else { 0.04 };
            (dice.falls(often), dice.ms(100.0, 6_000.0), dice.falls(0.5))
        };
        let worth_it = matches!(
            op,
            Op::Acquire | Op::Renew | Op::Commit | Op::Step | Op::Release
        );
        if !hit || !worth_it || self.is_calm || !self.setup.has(Fault::AimedPause) {
            return;
        }
        self.coverage.hit(Fault::AimedPause, op);
        self.pause(node, span);
        if with_cut && self.setup.has(Fault::Cut) {
            self.links.cut(node, true, true);
            let end = self.now + span;
            self.at(end, Event::CutEnds(node));
        }
    }

    /// A paused node takes no turns; its clock goes on.
    pub(crate) fn pause(&mut self, node: usize, span: u64) {
        if !self.paused[node] {
            self.paused[node] = true;
            self.log.note(self.now, "pause", [node as u64, span, 0]);
            let end = self.now + span;
            self.at(end, Event::Resume(node));
        }
    }
}
