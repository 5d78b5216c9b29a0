//! What happens to the server: paused, killed and restarted, its connections ended, its scripts or
//! its data removed. Nothing of it in the calm.

use std::collections::VecDeque;

use super::Redis;
use super::keys::Keys;
use crate::dice::Dice;
use crate::state::State;

/// What a server keeps when it dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Disk {
    Nothing,
    /// All keys as they were some seconds ago; those of now if it was ended in peace.
    Snapshot,
    /// `appendfsync everysec`: up to two seconds are lost.
    EverySecond,
    /// `appendfsync always`.
    Always,
}

impl Disk {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        dice.pick(&[
            Self::Nothing,
            Self::Snapshot,
            Self::EverySecond,
            Self::Always,
        ])
    }
}

/// Which faults of the server a world has. Each is off in half of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Menu {
    pauses: bool,
    kills: bool,
    /// Connections are ended.
    resets: bool,
    /// The scripts are removed.
    script_flushes: bool,
    /// All data are removed by an operator.
    flushes: bool,
}

#[derive(Clone, Copy)]
enum Strike {
    Pause,
    Kill,
    Reset,
    FlushScripts,
    FlushAll,
}

impl Menu {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let mut is_on = || dice.falls(0.5);
        let (pauses, kills, resets) = (is_on(), is_on(), is_on());
        let script_flushes = is_on();
        Self {
            pauses,
            kills,
            resets,
            script_flushes,
            // A flush is noticed by a new process only if the scripts stay.
            flushes: is_on() && !script_flushes,
        }
    }

    fn strikes(self) -> Vec<Strike> {
        let all = [
            (self.pauses, Strike::Pause),
            (self.kills, Strike::Kill),
            (self.resets, Strike::Reset),
            (self.script_flushes, Strike::FlushScripts),
            (self.flushes, Strike::FlushAll),
        ];
        let on = all.into_iter().filter(|(is_on, _)| *is_on);
        on.map(|(_, strike)| strike).collect()
    }
}

impl Redis {
    /// What the next process finds. What was written after it is gone.
    fn found_on_disk(&mut self, in_peace: bool) -> Keys {
        let present = self.server.database.keys.clone();
        let age = self.dice.below(self.written.len());
        let mut written = self.written.iter().rev();
        match self.disk {
            Disk::Nothing => Keys::default(),
            Disk::Always => present,
            Disk::Snapshot if in_peace => present,
            Disk::Snapshot => written.next().cloned().unwrap_or_default(),
            Disk::EverySecond => written.nth(age).cloned().unwrap_or_default(),
        }
    }
}

impl State {
    /// One fault of the server, and the next one later.
    pub(super) fn strike_redis(&mut self) {
        let redis = self.redis();
        let pause = redis.dice.ms(500.0, 8_000.0);
        let strikes = redis.menu.strikes();
        let (is_silent, in_peace, is_one) = (
            redis.dice.falls(0.5),
            redis.dice.falls(0.3),
            redis.dice.falls(0.5),
        );
        let span = if redis.dice.falls(0.7) {
            redis.dice.ms(20.0, 1_500.0)
        } else {
            redis.dice.ms(20.0, 5_000.0)
        };
        let which = redis.dice.below(strikes.len());
        let victim = redis.dice.below(redis.connections.len());
        if self.is_calm {
            return;
        }
        self.soon(pause, Self::strike_redis);
        let Some(strike) = strikes.get(which).filter(|_| self.redis().is_up) else {
            return;
        };
        match strike {
            Strike::Pause => self.pause_redis(span),
            Strike::Kill => self.kill_redis(is_silent, in_peace, span),
            Strike::Reset => {
                self.coverage.sometimes("the server ended connections");
                let one = self.redis().connections.keys().nth(victim).copied();
                self.disconnect_redis(|number| !is_one || Some(number) == one, is_silent);
            }
            Strike::FlushScripts => {
                self.coverage.sometimes("the scripts were removed");
                self.redis().server.forget_scripts();
            }
            Strike::FlushAll => self.flush_redis(),
        }
    }

    fn pause_redis(&mut self, span: u64) {
        let now = self.now;
        self.log.note(now, "server paused", [span, 0, 0]);
        self.coverage.sometimes("the server was paused");
        self.redis().is_paused = true;
        self.soon(span, Self::resume_redis);
    }

    fn resume_redis(&mut self) {
        let redis = self.redis();
        redis.is_paused = false;
        for (number, part) in std::mem::take(&mut redis.backlog) {
            self.serve(number, part);
        }
    }

    fn kill_redis(&mut self, is_silent: bool, in_peace: bool, span: u64) {
        let now = self.now;
        self.log
            .note(now, "server killed", [span, u64::from(in_peace), 0]);
        let disk = self.redis().disk;
        self.coverage.sometimes(match disk {
            Disk::Nothing => "the server was restarted without data",
            Disk::Snapshot => "the server was restarted with a snapshot",
            Disk::EverySecond => "the server was restarted with a log of each second",
            Disk::Always => "the server was restarted with all data",
        });
        self.disconnect_redis(|_| true, is_silent);
        let redis = self.redis();
        let found = redis.found_on_disk(in_peace);
        let has_lost = redis.lose(now, |redis| redis.server.database.keys = found);
        redis.is_up = false;
        redis.is_paused = false;
        if has_lost {
            self.coverage.sometimes("a hold was forgotten");
        }
        self.soon(span, Self::start_redis);
    }

    fn start_redis(&mut self) {
        let now = self.now;
        let redis = self.redis();
        if redis.is_up {
            return;
        }
        let keys = std::mem::take(&mut redis.server.database.keys);
        redis.written = VecDeque::from([keys.clone()]);
        redis.begin(now, keys);
        redis.is_up = true;
        self.log.note(now, "server started", [0; 3]);
    }

    fn flush_redis(&mut self) {
        let now = self.now;
        self.log.note(now, "flushed", [0; 3]);
        self.coverage.sometimes("the data were removed");
        let has_lost = self.redis().lose(now, |redis| {
            redis.server.database.keys = Keys::default();
        });
        if has_lost {
            self.coverage.sometimes("a hold was forgotten");
        }
    }

    /// What is on disk from now on, for a server that writes now and then.
    pub(super) fn write_to_disk(&mut self) {
        if self.is_calm {
            return;
        }
        let redis = self.redis();
        let (often, seldom) = (250_000_000, redis.dice.ms(1_000.0, 10_000.0));
        if redis.is_up && !redis.is_paused {
            redis.written.push_back(redis.server.database.keys.clone());
        }
        let (kept, wait) = match redis.disk {
            // Two seconds.
            Disk::EverySecond => (8, often),
            _ => (1, seldom),
        };
        while redis.written.len() > kept {
            redis.written.pop_front();
        }
        self.soon(wait, Self::write_to_disk);
    }

    /// Nothing fails any more.
    pub(crate) fn calm_redis(&mut self) {
        self.start_redis();
        self.resume_redis();
    }
}
