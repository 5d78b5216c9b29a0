//! [`Options`]: what the command line asks for.

use crate::setup::{Fault, SECOND, Setup};

/// What a series of worlds is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Store {
    /// The memory store, and quorums of it.
    Memory,
    /// The shipped store for ZooKeeper, over a model of an ensemble.
    ZooKeeper,
    /// The shipped store for Redis, over a simulated server.
    Redis,
    /// The shipped store that observes its holders, over a register.
    Register,
    /// Members that share the work of one name, on the memory store.
    Shards,
}

impl Store {
    /// The same world on this store.
    pub(crate) fn world(self, setup: Setup) -> Result<Setup, String> {
        match self {
            Self::Memory => Ok(setup),
            Self::Register => Ok(setup.on_register()),
            Self::Shards => Ok(setup.on_shards()),
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper => Ok(setup.on_zookeeper()),
            #[cfg(not(feature = "zookeeper"))]
            Self::ZooKeeper => Err("built without the feature zookeeper".to_owned()),
            #[cfg(feature = "redis-worlds")]
            Self::Redis => Ok(setup.on_redis()),
            #[cfg(not(feature = "redis-worlds"))]
            Self::Redis => Err("built without the feature redis-worlds".to_owned()),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) first: u64,
    pub(crate) seeds: u64,
    pub(crate) threads: usize,
    pub(crate) check_every: u64,
    pub(crate) stops: bool,
    pub(crate) shows_coverage: bool,
    /// Only worlds on this store.
    pub(crate) only: Option<Store>,
    /// Looks for a smaller world that fails in the same way.
    pub(crate) shrinks: bool,
    pub(crate) replay: Option<Setup>,
    /// Where to write the histories of the worlds, and nothing else is done.
    pub(crate) history: Option<String>,
    /// Stopped processes do not notice the time.
    pub(crate) is_unsound: bool,
}

impl Options {
    /// Words of the form `name=value`; any other word is a filter of `cargo test`, and none of our
    /// names has it.
    pub(crate) fn read(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            first: 0,
            seeds: 60,
            threads: 1,
            check_every: 100,
            stops: false,
            shows_coverage: false,
            only: None,
            shrinks: false,
            replay: None,
            history: None,
            is_unsound: false,
        };
        for word in words {
            let Some((name, value)) = word.split_once('=') else {
                if word == "coverage" {
                    options.shows_coverage = true;
                } else if word == "zookeeper" {
                    options.only = Some(Store::ZooKeeper);
                } else if word == "redis" {
                    options.only = Some(Store::Redis);
                } else if word == "register" {
                    options.only = Some(Store::Register);
                } else if word == "shards" {
                    options.only = Some(Store::Shards);
                } else if word == "unsound" {
                    options.is_unsound = true;
                } else if word == "shrink" {
                    options.shrinks = true;
                } else if word == "stop" {
                    options.stops = true;
                } else if !word.starts_with('-') && !"sim".contains(word.as_str()) {
                    options.seeds = 0;
                }
                continue;
            };
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("{word} needs a number"))
            };
            match name {
                "first" => options.first = number()?,
                "seeds" => options.seeds = number()?,
                "threads" => options.threads = number()?.max(1) as usize,
                "check" => options.check_every = number()?.max(1),
                "history" => options.history = Some(value.to_owned()),
                "replay" => options.replay = Some(replayed(value)?),
                _ => {}
            }
        }
        Ok(options)
    }
}

/// `SEED/without=dup,crash/skip=4,9/until=12.4s`, with the seed in hexadecimal.
pub(crate) fn replayed(line: &str) -> Result<Setup, String> {
    let mut parts = line.split('/');
    let seed = parts.next().unwrap_or_default();
    let seed =
        u64::from_str_radix(seed, 16).map_err(|_| format!("{seed} is no seed in hexadecimal"))?;
    let mut setup = Setup::draw(seed);
    for part in parts {
        if part == "unsound" {
            setup.is_unsound = true;
            continue;
        }
        if part == "zookeeper" {
            setup = Store::ZooKeeper.world(setup)?;
            continue;
        }
        if part == "redis" {
            setup = Store::Redis.world(setup)?;
            continue;
        }
        if part == "register" {
            setup = Store::Register.world(setup)?;
            continue;
        }
        if part == "shards" {
            setup = Store::Shards.world(setup)?;
            continue;
        }
        let (name, values) = part
            .split_once('=')
            .ok_or_else(|| format!("{part} is not understood"))?;
        match name {
            "without" => {
                for name in values.split(',') {
                    let fault = Fault::ALL.into_iter().find(|fault| fault.name() == name);
                    setup.without(fault.ok_or_else(|| format!("there is no fault {name}"))?);
                }
            }
            "skip" => {
                for number in values.split(',') {
                    setup.skip.push(
                        number
                            .parse()
                            .map_err(|_| format!("{number} is no number"))?,
                    );
                }
            }
            "until" => {
                let seconds: f64 = values
                    .trim_end_matches('s')
                    .parse()
                    .map_err(|_| format!("{values} is no time"))?;
                setup.until = (seconds * SECOND as f64) as u64;
            }
            _ => return Err(format!("{name} is not understood")),
        }
    }
    Ok(setup)
}
