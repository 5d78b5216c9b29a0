//! [`CountPlan`]: the plan of a counting process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::resource::ResourcePlace;
use crate::args::{CounterArgs, CounterMode};

/// How many rounds a task takes by default.
const ROUNDS: u32 = 100;

/// When a task has counted enough. Each takes one round at least.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Until {
    Rounds(u32),
    Time(Duration),
}

impl Until {
    pub(super) fn of(args: &CounterArgs) -> Self {
        match (args.time, args.rounds) {
            (Some(time), _) => Self::Time(time),
            (None, rounds) => Self::Rounds(rounds.unwrap_or(ROUNDS)),
        }
    }

    /// Whether a task that took so many rounds, since so long, has counted enough.
    pub(super) fn is_reached(self, rounds: u32, since: Duration) -> bool {
        match self {
            Self::Rounds(enough) => rounds >= enough,
            Self::Time(enough) => since >= enough,
        }
    }
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct CountPlan {
    pub(super) store: String,
    pub(super) lock: String,
    pub(super) label: String,
    /// The process with which it ends.
    pub(super) parent: u32,
    pub(super) tasks: u32,
    pub(super) until: Until,
    pub(super) ttl: Option<Duration>,
    pub(super) wait: Duration,
    pub(super) hold: Duration,
    pub(super) mode: CounterMode,
    pub(super) counter: ResourcePlace,
    /// The format of its log.
    pub(super) json: bool,
}

impl CountPlan {
    pub(super) fn of(
        args: &CounterArgs,
        store: &str,
        ttl: Option<Duration>,
        counter: ResourcePlace,
        json: bool,
    ) -> Self {
        Self {
            store: store.to_owned(),
            lock: args.lock.to_string(),
            label: String::new(),
            parent: std::process::id(),
            tasks: args.tasks,
            until: Until::of(args),
            ttl,
            wait: args.wait,
            hold: args.hold,
            mode: args.mode,
            counter,
            json,
        }
    }

    /// The plan of one process.
    pub(super) fn to_line(&self, process: usize) -> Vec<u8> {
        let plan = Self {
            label: format!("counter-{process}"),
            ..self.clone()
        };
        let mut line = serde_json::to_vec(&plan).unwrap_or_default();
        line.push(b'\n');
        line
    }
}
