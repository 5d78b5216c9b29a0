//! [`Setup`]: everything that is drawn from a seed before the world begins, and what a replay line
//! may switch off.

use std::time::Duration;

use leasehold::Settings;

use crate::dice::Dice;

pub(crate) const SECOND: u64 = 1_000_000_000;
/// The first part of a world has faults.
pub(crate) const STORM: u64 = 25 * SECOND;
/// Then nothing fails any more.
pub(crate) const CALM: u64 = 25 * SECOND;

/// A line of the menu of faults. Each is off in half of the seeds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Fault {
    Lost,
    AnswerLost,
    Doubled,
    Slow,
    Cut,
    Pause,
    AimedPause,
    Crash,
    Restart,
    Outage,
    Drift,
    Late,
    ClockBack,
    Suspend,
    Revoke,
    Stall,
}

impl Fault {
    pub(crate) const ALL: [Self; 16] = [
        Self::Lost,
        Self::AnswerLost,
        Self::Doubled,
        Self::Slow,
        Self::Cut,
        Self::Pause,
        Self::AimedPause,
        Self::Crash,
        Self::Restart,
        Self::Outage,
        Self::Drift,
        Self::Late,
        Self::ClockBack,
        Self::Suspend,
        Self::Revoke,
        Self::Stall,
    ];

    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// How often each fault of the network happens to one message.
#[derive(Clone, Debug)]
pub(crate) struct Rates {
    pub(crate) lost: f64,
    pub(crate) answer_lost: f64,
    pub(crate) doubled: f64,
    pub(crate) slow: f64,
}

/// What one seed stands for.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    /// Members of a quorum; 1 is a store without a quorum.
    pub(crate) members: usize,
    pub(crate) nodes: usize,
    pub(crate) workers: usize,
    pub(crate) keys: usize,
    pub(crate) fenced: bool,
    /// Every hold is of all keys at once, or of the last one alone, so that a run under several
    /// locks may lose any of them.
    pub(crate) is_joint: bool,
    /// The locks of the first worker of each process refuse handoffs, in both directions.
    pub(crate) refuses_handoffs: bool,
    /// Whoever downgrades a lock has it as a writer for a while.
    pub(crate) writes_first: bool,
    pub(crate) handlers: bool,
    pub(crate) observed: bool,
    pub(crate) settings: Settings,
    pub(crate) faults: Vec<Fault>,
    pub(crate) rates: Rates,
    /// How fast the clock of each node and of each server runs, in parts per million more than true
    /// time.
    pub(crate) node_ppm: Vec<i64>,
    pub(crate) server_ppm: Vec<i64>,
    /// The store is the shipped one for ZooKeeper, over a model of an ensemble.
    pub(crate) is_zookeeper: bool,
    /// The store is the shipped one for Redis, over a simulated server.
    pub(crate) is_redis: bool,
    /// The store is the shipped one that observes its holders, over a register.
    pub(crate) is_register: bool,
    /// Processes divide so many shards among themselves, and ask for no other lock; 0: they do not.
    pub(crate) shards: u32,
    /// That of the ensemble, in nanoseconds.
    #[cfg(feature = "zookeeper")]
    pub(crate) tick: u64,
    /// A paused process does not notice: its clock stops too. No lock survives that, so the judges
    /// must see it fail.
    pub(crate) is_unsound: bool,
    /// Numbers of nemesis events that do not happen: the shrinker leaves out what a failure does
    /// not need.
    pub(crate) skip: Vec<usize>,
    pub(crate) until: u64,
}

impl Setup {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 1);
        let members = if dice.falls(0.35) {
            dice.pick(&[3, 3, 5])
        } else {
            1
        };
        let nodes = 2 + dice.below(3);
        let workers = 1 + dice.below(3);
        let keys = 1 + dice.below(3);
        let faults: Vec<_> = Fault::ALL.into_iter().filter(|_| dice.falls(0.5)).collect();
        let has = |fault| faults.contains(&fault);
        let mut rate = |fault| {
            let rate = dice.log(-3.0, -0.8);
            if has(fault) { rate } else { 0.0 }
        };
        let rates = Rates {
            lost: rate(Fault::Lost),
            answer_lost: rate(Fault::AnswerLost),
            doubled: rate(Fault::Doubled),
            slow: rate(Fault::Slow),
        };
        let mut ppm = |most: i64, signed: bool| {
            // As often as not a clock is as wrong as it may be.
            let drawn = ((dice.part() * 2.0).min(1.0) * most as f64) as i64;
            let drawn = if signed && dice.falls(0.5) {
                -drawn
            } else {
                drawn
            };
            if has(Fault::Drift) { drawn } else { 0 }
        };
        let node_ppm = (0..nodes).map(|_| ppm(500, true)).collect();
        // Votes count while the members' clocks are within a second of each other, also at the end
        // of a world.
        let most = if members == 1 { 83_300 } else { 8_000 };
        let server_ppm = (0..members).map(|_| ppm(most, false)).collect();
        let settings = settings(&mut dice);
        let fenced = dice.falls(0.5);
        let mut of_locks = Dice::new(seed, 8);
        let (is_joint, refuses_handoffs) = (of_locks.falls(0.5), of_locks.falls(0.15));
        Self {
            seed,
            members,
            nodes,
            workers,
            keys,
            fenced,
            is_joint: is_joint && fenced && keys > 1,
            refuses_handoffs,
            writes_first: Dice::new(seed, 54).falls(0.3),
            handlers: dice.falls(0.2),
            observed: dice.falls(0.6),
            settings,
            faults,
            rates,
            node_ppm,
            server_ppm,
            is_zookeeper: false,
            is_redis: false,
            is_register: false,
            shards: 0,
            #[cfg(feature = "zookeeper")]
            tick: 0,
            is_unsound: false,
            skip: Vec::new(),
            until: STORM + CALM,
        }
    }

    /// The same world on a model of a ZooKeeper ensemble.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn on_zookeeper(mut self) -> Self {
        let mut dice = Dice::new(self.seed, 6);
        let ms = Duration::from_millis;
        let (tick, ticks) = (dice.pick(&[250, 250, 500]), dice.pick(&[4, 5, 6, 8]));
        let settings = &mut self.settings;
        settings.ttl = ms(tick * ticks);
        settings.lock_delay = Duration::ZERO;
        settings.max_hold = settings.max_hold.map(|_| ms(tick * ticks + 1_000));
        settings.request_timeout = ms(dice.pick(&[200, 300, 500]));
        self.is_zookeeper = true;
        self.tick = tick * 1_000_000;
        self.members = 1;
        self.server_ppm = vec![0];
        self
    }

    /// The same world on a simulated Redis server.
    #[cfg(feature = "redis-worlds")]
    pub(crate) fn on_redis(mut self) -> Self {
        let mut dice = Dice::new(self.seed, 7);
        let fast = ((dice.part() * 2.0).min(1.0) * 83_300.0) as i64;
        self.is_redis = true;
        self.members = 1;
        self.server_ppm = vec![if self.has(Fault::Drift) { fast } else { 0 }];
        self
    }

    /// The same world on a register without a clock.
    pub(crate) fn on_register(mut self) -> Self {
        let mut dice = Dice::new(self.seed, 10);
        self.is_register = true;
        self.members = 1;
        self.server_ppm = vec![0];
        // Whoever observes is to the holder what a server is elsewhere: its clock may be as fast.
        let is_off = !self.has(Fault::Drift);
        for ppm in &mut self.node_ppm {
            let fast = ((dice.part() * 2.0).min(1.0) * 83_300.0) as i64;
            if dice.falls(0.5) && !is_off {
                *ppm = fast;
            }
        }
        self
    }

    /// The same world with members that share the work of one name.
    pub(crate) fn on_shards(mut self) -> Self {
        let mut dice = Dice::new(self.seed, 9);
        self.shards = dice.pick(&[3, 6, 12]);
        // Members of one process, one for each worker.
        self.workers = dice.pick(&[1, 1, 1, 2]);
        self.members = 1;
        self.server_ppm.truncate(1);
        self.is_joint = false;
        // No shard would stay where it is.
        self.settings.max_hold = None;
        self
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// The line that repeats this world.
    pub(crate) fn replay(&self) -> String {
        let mut line = format!("{:x}", self.seed);
        if self.is_zookeeper {
            line += "/zookeeper";
        }
        if self.is_redis {
            line += "/redis";
        }
        if self.is_register {
            line += "/register";
        }
        if self.shards > 0 {
            line += "/shards";
        }
        let drawn = Self::draw(self.seed).faults;
        let gone = drawn.iter().filter(|fault| !self.has(**fault));
        let gone: Vec<_> = gone.map(|fault| fault.name()).collect();
        if !gone.is_empty() {
            line += &format!("/without={}", gone.join(","));
        }
        if !self.skip.is_empty() {
            let numbers: Vec<_> = self.skip.iter().map(usize::to_string).collect();
            line += &format!("/skip={}", numbers.join(","));
        }
        if self.is_unsound {
            line += "/unsound";
        }
        line
    }

    /// Switches a line of the menu off, and changes nothing else.
    pub(crate) fn without(&mut self, fault: Fault) {
        self.faults.retain(|&known| known != fault);
        match fault {
            Fault::Lost => self.rates.lost = 0.0,
            Fault::AnswerLost => self.rates.answer_lost = 0.0,
            Fault::Doubled => self.rates.doubled = 0.0,
            Fault::Slow => self.rates.slow = 0.0,
            Fault::Drift => {
                self.node_ppm.fill(0);
                self.server_ppm.fill(0);
            }
            _ => {}
        }
    }

    pub(crate) fn max_ttl(&self) -> u64 {
        self.settings.max_ttl.as_nanos() as u64
    }
}

fn settings(dice: &mut Dice) -> Settings {
    let ms = Duration::from_millis;
    let mut settings = Settings::default();
    settings.ttl = ms(dice.pick(&[500, 1_000, 1_000, 3_000, 3_000, 5_000]));
    settings.max_ttl = ms(6_000);
    settings.renewals_per_ttl = 2 + dice.below(4) as u32;
    settings.wait = ms(12_000);
    settings.retry_delay = ms(5 + dice.below(20) as u64);
    settings.retry_jitter = ms(dice.below(20) as u64);
    settings.max_poll_interval = ms(100 + dice.below(900) as u64);
    settings.request_timeout = ms(dice.pick(&[100, 300, 500]));
    settings.commit_budget = ms(dice.pick(&[1, 10, 50]));
    settings.min_usable = settings.commit_budget.max(ms(50));
    settings.max_hold = dice
        .falls(0.3)
        .then(|| settings.ttl + ms(dice.below(3_000) as u64));
    if dice.falls(0.3) {
        settings.margin = Duration::ZERO;
    }
    settings.lock_delay = if dice.falls(0.15) {
        ms(dice.below(700) as u64)
    } else {
        Duration::ZERO
    };
    settings.handoff_count = dice.pick(&[0, 1, 4, 64, 64, 64]);
    settings.handoff_time = ms(dice.pick(&[0, 200, 2_000, 5_000]));
    settings
}
