//! [`World`]: the one loop of true time. There are no ticks: time moves to the next thing that can
//! happen.

use crate::dice::Dice;
use crate::history::History;
use crate::nemesis::{Act, acts};
use crate::net::Event;
use crate::node::Node;
use crate::picture::Picture;
use crate::setup::{SECOND, STORM, Setup};
use crate::state::Shared;
use crate::store::Hints;
use crate::svg::draw;
use crate::truth::outlived;

/// Some twenty times what a busy world needs.
const MOST_STEPS: u64 = 400_000;

pub(crate) struct World {
    pub(crate) shared: Shared,
    pub(crate) nodes: Vec<Node>,
    pub(crate) acts: Vec<Act>,
    hints: Hints,
    dice: Dice,
    setup: Setup,
    /// The next timer of each node, in true time.
    timers: Vec<Option<u64>>,
    steps: u64,
}

/// What one world came to.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) failure: Option<String>,
    pub(crate) digest: u64,
    pub(crate) steps: u64,
    pub(crate) grants: u64,
    pub(crate) runs: usize,
    pub(crate) virtual_ns: u64,
    pub(crate) coverage: crate::coverage::Coverage,
    pub(crate) lines: Vec<String>,
    /// For other judges.
    pub(crate) history: Option<String>,
    /// As SVG.
    pub(crate) drawing: Option<String>,
}

/// What a report has beside the verdict.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted {
    pub(crate) lines: bool,
    /// It takes as long as some worlds.
    pub(crate) drawing: bool,
    /// Others judge the world, so that it goes on where a judge of its own objects.
    pub(crate) history: bool,
}

/// Runs the world of a setup to its end, or to its first failure.
pub(crate) fn simulate(setup: &Setup, wanted: Wanted) -> Report {
    leasehold::testing::seed_random(Some(setup.seed ^ 0x5eed));
    let mut world = World::new(setup);
    {
        let mut state = world.shared.lock();
        state.log.lines = wanted.lines.then(Vec::new);
        state.picture = wanted.drawing.then(Picture::default);
        state.history = wanted.history.then(History::default);
    }
    world.run();
    let report = world.report();
    leasehold::testing::seed_random(None);
    report
}

impl World {
    fn new(setup: &Setup) -> Self {
        let shared = Shared::new(setup);
        let hints = Hints::default();
        let nodes = (0..setup.nodes)
            .map(|node| Node::new(node, &shared, &hints, setup))
            .collect();
        Self {
            nodes,
            acts: acts(setup),
            hints,
            dice: Dice::new(setup.seed, 3),
            setup: setup.clone(),
            timers: vec![None; setup.nodes],
            steps: 0,
            shared,
        }
    }

    fn run(&mut self) {
        {
            let mut state = self.shared.lock();
            for (number, act) in self.acts.iter().enumerate() {
                state.at(act.at, Event::Nemesis(number));
            }
            state.at(STORM, Event::BeCalm);
            state.at(self.setup.until, Event::End);
            #[cfg(feature = "zookeeper")]
            if state.ensemble.is_some() {
                state.begin_zookeeper();
            }
            #[cfg(feature = "redis-worlds")]
            if state.redis.is_some() {
                state.begin_redis();
            }
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].start(&self.setup);
            self.shared.lock().touched.insert(node);
        }
        self.turn_all();
        let most = self.setup.until + 120 * SECOND;
        while self.step(most) {}
        if self.shared.lock().failure.is_none() && self.shared.lock().now >= self.setup.until {
            self.judge_the_end();
        }
        // Their code may call back as it is dropped.
        for node in &mut self.nodes {
            node.crash();
        }
    }

    /// Moves to the next thing that can happen. False if nothing can, or a judge has found a fault.
    fn step(&mut self, most: u64) -> bool {
        let (now, queued) = {
            let state = self.shared.lock();
            if state.failure.is_some() && state.history.is_none() {
                return false;
            }
            (
                state.now,
                state.queue.first_key_value().map(|((when, _), _)| *when),
            )
        };
        for (node, timer) in self.nodes.iter().zip(&mut self.timers) {
            *timer = node.until_next().map(|left| now.saturating_add(left));
        }
        let runs = |number: &usize| !self.is_paused(*number);
        let timers = (0..self.nodes.len()).filter(runs);
        let timer = timers.filter_map(|number| self.timers[number]).min();
        let Some(next) = queued.into_iter().chain(timer).min() else {
            return false;
        };
        if next > most {
            self.shared.lock().fail("O10 leaks", || {
                "something still happens long after the end".to_owned()
            });
            return false;
        }
        self.steps += 1;
        if self.steps > MOST_STEPS {
            self.shared.lock().fail("O11 liveness", || {
                "more happens than processes that make progress can do".to_owned()
            });
            return false;
        }
        self.advance_to(next.max(now));
        self.deliver();
        self.turn_all();
        let mut state = self.shared.lock();
        state.judge_leases();
        state.judge_shards();
        drop(state);
        self.sketch();
        true
    }

    /// For a drawing, if somebody wants one.
    fn sketch(&self) {
        let mut state = self.shared.lock();
        if let Some(mut picture) = state.picture.take() {
            let alive: Vec<_> = self.nodes.iter().map(Node::is_alive).collect();
            picture.look(&state, &alive);
            state.picture = Some(picture);
        }
    }

    fn is_paused(&self, node: usize) -> bool {
        self.shared.lock().paused[node]
    }

    fn advance_to(&mut self, now: u64) {
        let mut state = self.shared.lock();
        let span = now - state.now;
        for node in 0..self.nodes.len() {
            if state.paused[node] {
                state.paused_for[node] += span;
            }
        }
        state.now = now;
        state.truth.advance_to(now);
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let has_ended = node.advance_to(now, self.setup.is_unsound && state.paused[number]);
            // It has woken a task. What is left of it was rounded up, so it may end with another
            // event, a nanosecond before.
            if has_ended || self.timers[number].is_some_and(|timer| timer <= now) {
                state.touched.insert(number);
            }
        }
    }

    /// Everything that the network and the nemesis have for this instant.
    fn deliver(&mut self) {
        loop {
            let event = {
                let mut state = self.shared.lock();
                let now = state.now;
                match state.queue.first_entry() {
                    Some(first) if first.key().0 <= now => first.remove(),
                    _ => break,
                }
            };
            self.happen(event);
        }
        self.hints.look(&self.shared);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(request) => {
                self.shared.lock().arrive(&request);
                self.hints.look(&self.shared);
            }
            Event::Answer {
                node,
                life,
                deliver,
            } => {
                let is_there = self.shared.lock().lives[node] == life;
                if is_there {
                    deliver();
                    self.shared.lock().touched.insert(node);
                }
            }
            Event::Resume(node) => {
                let mut state = self.shared.lock();
                state.paused[node] = state.stalled[node] > state.now;
                state.touched.insert(node);
            }
            Event::Restart(node) => {
                if !self.nodes[node].is_alive() {
                    self.nodes[node].start(&self.setup);
                    self.shared.lock().touched.insert(node);
                }
            }
            Event::ServerUp(server) => self.shared.lock().links.down[server] = false,
            Event::Nemesis(number) => self.strike(number),
            Event::CutEnds(node) => {
                let links = &mut self.shared.lock().links;
                links.cut(node, false, false);
                links.single = None;
            }
            Event::BeCalm => self.be_calm(),
            Event::End => self.end(),
            Event::Look => {}
            #[cfg(any(feature = "redis-worlds", feature = "zookeeper"))]
            Event::Do(deed) => deed(&mut self.shared.lock()),
        }
    }

    fn be_calm(&mut self) {
        let mut state = self.shared.lock();
        state.is_calm = true;
        for node in 0..self.setup.nodes {
            state.links.cut(node, false, false);
            state.paused[node] = state.stalled[node] > state.now;
            state.touched.insert(node);
        }
        state.links.single = None;
        state.links.down.fill(false);
        #[cfg(feature = "zookeeper")]
        if state.ensemble.is_some() {
            state.calm_zookeeper();
        }
        #[cfg(feature = "redis-worlds")]
        if state.redis.is_some() {
            state.calm_redis();
        }
    }

    fn end(&mut self) {
        {
            let mut state = self.shared.lock();
            state.is_over = true;
            let now = state.now;
            // A look after everything that was held or forgotten has ended.
            let last = now + 20 * SECOND + outlived(&state.setup);
            state.at(last, Event::Look);
            #[cfg(feature = "zookeeper")]
            if let Some(zookeeper) = &mut state.ensemble {
                zookeeper.stops_at = last;
            }
        }
        for (number, node) in self.nodes.iter().enumerate() {
            let at_once = self.dice.falls(0.4);
            node.shut_down(at_once);
            self.shared.lock().touched.insert(number);
        }
    }

    fn turn_all(&mut self) {
        let touched = std::mem::take(&mut self.shared.lock().touched);
        let mut order: Vec<_> = touched.into_iter().collect();
        self.dice.shuffle(&mut order);
        for node in order {
            if self.is_paused(node) {
                self.shared.lock().touched.insert(node);
            } else {
                self.nodes[node].turn();
            }
        }
    }

    fn report(self) -> Report {
        let mut state = self.shared.lock();
        let drawing = state.picture.take().map(|picture| {
            let failure = state.failure.as_deref().map(|text| (state.failed_at, text));
            let title = format!("replay={}", self.setup.replay());
            draw(&picture, &title, failure, state.now)
        });
        let history = state.history();
        Report {
            history,
            drawing,
            failure: state.failure.clone(),
            digest: state.log.digest(),
            steps: self.steps,
            grants: state.truth.grants,
            runs: state.runs.all.len(),
            virtual_ns: state.now,
            coverage: std::mem::take(&mut state.coverage),
            lines: state.log.lines.take().unwrap_or_default(),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Leases keep clocks, messages keep clients: taken out, so that nothing is dropped under
        // the lock.
        let mut state = self.shared.lock();
        let (queue, leases) = (
            std::mem::take(&mut state.queue),
            std::mem::take(&mut state.leases),
        );
        drop(state);
        drop((queue, leases));
    }
}
