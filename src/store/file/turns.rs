//! [`Turns`]: the requests of this process to one key take turns.
//!
//! `flock` lets in whoever tries at the right moment. Some of hundreds of requests of one process
//! would try in vain for all of their time, and report that another process stays in its own. So a
//! thread first waits for the others of its process. No request keeps its turn while it is not
//! polled: a step is one call.
//!
//! One request of a process at a time tries again and again because another process is in its step,
//! and the others, which have tried once, are in line behind it. If it is not polled, they try too,
//! now and then.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::model::key::Key;
use crate::model::room::make_room;

/// What the requests of this process to one key share.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Whoever has this is in a step.
    pub(super) step: Mutex<()>,
    /// Whoever has this may try again at once.
    pub(super) tries: tokio::sync::Mutex<()>,
    /// Of the waiters, the one that has this checks for all of them whether somebody died.
    pub(super) watch: tokio::sync::Mutex<()>,
    /// When one of them has done so last.
    watched: Mutex<Duration>,
}

impl Turn {
    /// Whether no waiter has checked for so long. Then the caller does.
    pub(super) fn begins_check(&self, now: Duration, after: Duration) -> bool {
        let mut watched = self.watched.lock();
        let is_due = now.saturating_sub(*watched) >= after;
        if is_due {
            *watched = now;
        }
        is_due
    }
}

/// The keys that are asked for.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Key, Weak<Turn>>>);

impl Turns {
    pub(super) fn of(&self, key: &Key) -> Arc<Turn> {
        let mut turns = self.0.lock();
        if let Some(turn) = turns.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        make_room(&mut turns, |turn| turn.strong_count() > 0);
        let turn = Arc::default();
        turns.insert(key.clone(), Arc::downgrade(&turn));
        turn
    }
}
