//! The local queue: callers of this process who want the same key wait here, first come, first served, so that at most one
//! of them asks the store.
//!
//! Claims that queue in the store, or that share a key, do not wait here: each gets a turn beside the queue.
//!
//! A [`Turn`] is the right to ask the store for a key, and then a part of the hold that came of it. It ends with the
//! hold, by whatever road, and passes to the next caller when it is dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::acquire::{Spans, Want};
use super::guard::LockGuard;
use crate::model::error::Error;
use crate::model::key::Key;

/// What the next caller gets.
#[derive(Debug)]
pub(super) enum Next {
    /// Ask the store.
    Turn(Turn),
    /// The hold itself, handed on.
    Guard(Box<LockGuard>),
}

/// A caller who waits.
#[derive(Debug)]
pub(super) struct Waiter {
    call: oneshot::Sender<Next>,
    pub(super) spans: Spans,
    /// Whether the caller may be handed the hold of another, with its token.
    pub(super) takes_over: bool,
}

impl Waiter {
    /// Gives the caller what it waits for. If it went away, what was given is dropped, and so passed on or released.
    pub(super) fn give(self, next: Next) {
        drop(self.call.send(next));
    }
}

/// All local queues of a manager. A key that nobody has a turn for has no queue.
#[derive(Debug)]
pub(super) struct Queues {
    keys: Mutex<HashMap<Key, VecDeque<Waiter>>>,
    /// Turns beside the queues.
    beside: AtomicUsize,
    waiting: Arc<AtomicUsize>,
    most: usize,
    emptied: Notify,
}

#[derive(Debug)]
pub(super) enum Entered {
    /// The turn; beside the queue, with what counts the caller among those who wait.
    Turn(Turn, Option<Waiting>),
    Place(Place),
}

impl Queues {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            keys: Mutex::default(),
            beside: AtomicUsize::new(0),
            waiting: Arc::default(),
            most,
            emptied: Notify::new(),
        })
    }

    /// Takes the turn if it is free, else, if `may_wait`, a place in the queue.
    ///
    /// # Errors
    ///
    /// `Contended` if as many callers wait as may.
    pub(super) fn enter(
        self: &Arc<Self>,
        want: &Want,
        may_wait: bool,
    ) -> Result<Option<Entered>, Error> {
        if want.goes_beside() {
            let waiting = may_wait.then(|| Waiting::begin(&self.waiting, self.most));
            let waiting = waiting.transpose()?;
            self.beside.fetch_add(1, Ordering::SeqCst);
            let turn = Turn {
                queues: Arc::clone(self),
                key: None,
                gives_way: false,
            };
            return Ok(Some(Entered::Turn(turn, waiting)));
        }
        let key = &want.key;
        let mut keys = self.keys.lock();
        let Some(queue) = keys.get_mut(key) else {
            keys.insert(key.clone(), VecDeque::new());
            return Ok(Some(Entered::Turn(Turn::of(self, key), None)));
        };
        if !may_wait {
            return Ok(None);
        }
        let waiting = Waiting::begin(&self.waiting, self.most)?;
        // Places that were given up stay behind until here, so that giving up costs no search.
        if queue.len() == queue.capacity() {
            queue.retain(|waiter| !waiter.call.is_closed());
        }
        let (call, called) = oneshot::channel();
        queue.push_back(Waiter {
            call,
            spans: want.spans,
            takes_over: want.takes_over,
        });
        Ok(Some(Entered::Place(Place {
            called,
            _waiting: waiting,
        })))
    }

    /// The first caller who still waits for the key, out of the queue.
    pub(super) fn next(&self, key: &Key) -> Option<Waiter> {
        let mut keys = self.keys.lock();
        let queue = keys.get_mut(key)?;
        std::iter::from_fn(|| queue.pop_front()).find(|waiter| !waiter.call.is_closed())
    }

    /// Puts a caller back where it was. If the turn has passed meanwhile and found nobody, it is this caller's.
    pub(super) fn put_back(self: &Arc<Self>, key: &Key, waiter: Waiter) {
        let mut keys = self.keys.lock();
        if let Some(queue) = keys.get_mut(key) {
            return queue.push_front(waiter);
        }
        keys.insert(key.clone(), VecDeque::new());
        drop(keys);
        waiter.give(Next::Turn(Turn::of(self, key)));
    }

    /// Sends everybody who waits away: they are told that the manager is closed.
    pub(super) fn close(&self) {
        for queue in self.keys.lock().values_mut() {
            queue.clear();
        }
    }

    /// Passes the turn of a key on; without a caller who waits the key's queue is gone.
    fn pass_on(self: &Arc<Self>, key: &Key, gives_way: bool) {
        let mut keys = self.keys.lock();
        let Some(queue) = keys.get_mut(key) else {
            return;
        };
        let waiter =
            std::iter::from_fn(|| queue.pop_front()).find(|waiter| !waiter.call.is_closed());
        match waiter {
            Some(waiter) => {
                drop(keys);
                let mut turn = Turn::of(self, key);
                turn.gives_way = gives_way;
                waiter.give(Next::Turn(turn));
            }
            None => {
                keys.remove(key);
                self.emptied.notify_waiters();
            }
        }
    }

    /// Completes when nobody has a turn.
    pub(super) async fn emptied(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            // Registered before the look, so that a turn which ends in between is not missed.
            emptied.as_mut().enable();
            if self.keys.lock().is_empty() && self.beside.load(Ordering::SeqCst) == 0 {
                return;
            }
            emptied.await;
        }
    }
}

/// The right to ask the store for a key; at most one for each key of a manager, but for those beside the queue.
#[derive(Debug)]
pub(super) struct Turn {
    queues: Arc<Queues>,
    /// `None` beside the queue.
    key: Option<Key>,
    /// This process had the key for as long as it may: others are to ask first.
    gives_way: bool,
}

impl Turn {
    fn of(queues: &Arc<Queues>, key: &Key) -> Self {
        Self {
            queues: Arc::clone(queues),
            key: Some(key.clone()),
            gives_way: false,
        }
    }

    /// Whoever has the turn next in this process lets the other processes ask first.
    pub(super) fn give_way(&mut self) {
        self.gives_way = true;
    }

    /// Whether it has to let them, once.
    pub(super) fn has_to_give_way(&mut self) -> bool {
        std::mem::take(&mut self.gives_way)
    }

    /// Whether others wait for this turn, so that what came of it may be handed on.
    pub(super) fn is_queued(&self) -> bool {
        self.key.is_some()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        match &self.key {
            Some(key) => self.queues.pass_on(key, self.gives_way),
            None => {
                self.queues.beside.fetch_sub(1, Ordering::SeqCst);
                self.queues.emptied.notify_waiters();
            }
        }
    }
}

/// A place in a local queue; given up when dropped.
#[derive(Debug)]
pub(super) struct Place {
    called: oneshot::Receiver<Next>,
    _waiting: Waiting,
}

impl Place {
    /// Completes when it is this caller's turn; `None` if the manager was shut down.
    pub(super) async fn called(&mut self) -> Option<Next> {
        (&mut self.called).await.ok()
    }
}

#[derive(Debug)]
pub(super) struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn begin(count: &Arc<AtomicUsize>, most: usize) -> Result<Self, Error> {
        let waiting = Self(Arc::clone(count));
        if count.fetch_add(1, Ordering::Relaxed) < most {
            return Ok(waiting);
        }
        Err(Error::contended(format!(
            "too many callers wait for locks of this manager: max_waiters={most}; try later, or raise max_waiters"
        )))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::LockMode;

    fn want() -> Want {
        Want {
            key: Key::parse("a").unwrap(),
            spans: Spans {
                ttl: Duration::from_secs(10),
                lock_delay: Duration::ZERO,
                max_hold: None,
            },
            mode: LockMode::Exclusive,
            is_fair: false,
            label: None,
            takes_over: true,
        }
    }

    #[tokio::test]
    async fn who_is_put_back_after_the_turn_has_passed_gets_the_turn() {
        let queues = Queues::new(10);
        let Ok(Some(Entered::Turn(turn, _))) = queues.enter(&want(), true) else {
            panic!("nobody is there");
        };
        let Ok(Some(Entered::Place(mut place))) = queues.enter(&want(), true) else {
            panic!("somebody has the turn");
        };
        let waiter = queues.next(&want().key).unwrap();
        drop(turn);
        queues.put_back(&want().key, waiter);
        assert!(matches!(place.called().await, Some(Next::Turn(_))));
    }
}
