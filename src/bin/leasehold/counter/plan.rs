//! [`Plan`]: what a counting process is told.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::resource::Place;
use crate::args::{CounterArgs, CounterMode};

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct Plan {
    pub(super) store: String,
    pub(super) lock: String,
    pub(super) label: String,
    /// The process with which it ends.
    pub(super) parent: u32,
    pub(super) tasks: u32,
    pub(super) rounds: u32,
    pub(super) ttl: Option<Duration>,
    pub(super) wait: Duration,
    pub(super) hold: Duration,
    pub(super) mode: CounterMode,
    pub(super) counter: Place,
}

impl Plan {
    pub(super) fn of(
        args: &CounterArgs,
        store: &str,
        ttl: Option<Duration>,
        counter: Place,
    ) -> Self {
        Self {
            store: store.to_owned(),
            lock: args.lock.to_string(),
            label: String::new(),
            parent: std::process::id(),
            tasks: args.tasks,
            rounds: args.rounds,
            ttl,
            wait: args.wait,
            hold: args.hold,
            mode: args.mode,
            counter,
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
