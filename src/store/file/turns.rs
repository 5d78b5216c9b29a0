//! [`Turns`]: the requests of this process to one key take turns.
//!
//! `flock` lets in whoever tries at the right moment. Some of hundreds of requests of one process would try in vain for all of their time,
//! and report that another process stays in its own. So a thread first waits for the others of its process. No request keeps
//! its turn while it is not polled: a step is one call.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::model::key::Key;
use crate::model::room::make_room;

/// The keys that are in a step.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Key, Weak<Mutex<()>>>>);

impl Turns {
    /// What a step locks before the file of the key.
    pub(super) fn of(&self, key: &Key) -> Arc<Mutex<()>> {
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
