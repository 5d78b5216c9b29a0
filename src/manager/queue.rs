//! The local queue: callers of this process that want the same key wait here, first come, first served, so that at most one
//! of them asks the store.
//!
//! Claims that queue in the store, or that share a key, do not wait here: each gets a turn that bypasses the queue.
//!
//! A [`Turn`] is the right to ask the store for a key, and then a part of the hold that the store granted. It ends with the
//! hold, however that ends, and passes to the next caller when it is dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::hold::Hold;
use super::request::{HoldTimes, LockRequest};
use crate::model::error::Error;
use crate::model::key::Key;

/// What a waiting caller gets.
#[derive(Debug)]
pub(super) enum Called {
    /// Ask the store.
    Turn(Turn),
    /// The hold itself, handed off.
    Hold(Arc<Hold>),
}

/// A caller that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    call: oneshot::Sender<Called>,
    pub(super) times: HoldTimes,
    pub(super) allows_handoff: bool,
}

impl Waiter {
    /// Gives the caller what it waits for.
    ///
    /// # Errors
    ///
    /// The same, if the caller has gone.
    pub(super) fn call(self, called: Called) -> Result<(), Called> {
        self.call.send(called)
    }
}

/// All local queues of a manager. A key without a turn has no queue.
#[derive(Debug)]
pub(super) struct Queues {
    keys: Mutex<HashMap<Key, VecDeque<Waiter>>>,
    /// How many turns of a key bypass its queue.
    bypassing: Mutex<HashMap<Key, usize>>,
    waiting: Arc<AtomicUsize>,
    max_waiters: usize,
    emptied: Notify,
}

#[derive(Debug)]
pub(super) enum Entered {
    /// The turn. One that bypasses the queue counts its caller among the waiters.
    Turn(Turn, Option<Counted>),
    Place(Place),
}

impl Queues {
    pub(super) fn new(max_waiters: usize) -> Arc<Self> {
        Arc::new(Self {
            keys: Mutex::default(),
            bypassing: Mutex::default(),
            waiting: Arc::default(),
            max_waiters,
            emptied: Notify::new(),
        })
    }

    /// Takes the turn if it is free, otherwise, if `may_wait`, a place in the queue.
    ///
    /// # Errors
    ///
    /// `Contended` if `max_waiters` callers wait already.
    pub(super) fn enter(
        self: &Arc<Self>,
        request: &LockRequest,
        may_wait: bool,
    ) -> Result<Option<Entered>, Error> {
        if request.bypasses_queue() {
            let counted = may_wait.then(|| Counted::new(&self.waiting, self.max_waiters));
            let counted = counted.transpose()?;
            *(self.bypassing.lock().entry(request.key.clone())).or_default() += 1;
            let turn = Turn::of(self, &request.key, false);
            return Ok(Some(Entered::Turn(turn, counted)));
        }
        let key = &request.key;
        let mut keys = self.keys.lock();
        let Some(queue) = keys.get_mut(key) else {
            keys.insert(key.clone(), VecDeque::new());
            return Ok(Some(Entered::Turn(Turn::of(self, key, true), None)));
        };
        if !may_wait {
            return Ok(None);
        }
        let counted = Counted::new(&self.waiting, self.max_waiters)?;
        // Abandoned places stay in the queue until here, so that leaving it needs no search.
        if queue.len() == queue.capacity() {
            queue.retain(|waiter| !waiter.call.is_closed());
        }
        let (call, called) = oneshot::channel();
        queue.push_back(Waiter {
            call,
            times: request.times,
            allows_handoff: request.allows_handoff,
        });
        Ok(Some(Entered::Place(Place {
            called,
            _counted: counted,
        })))
    }

    /// Whether the key may have a caller that waits.
    pub(super) fn is_waited_for(&self, key: &Key) -> bool {
        let keys = self.keys.lock();
        keys.get(key).is_some_and(|queue| !queue.is_empty())
    }

    /// Takes the first caller that still waits for the key out of the queue.
    pub(super) fn next(&self, key: &Key) -> Option<Waiter> {
        let mut keys = self.keys.lock();
        first(keys.get_mut(key)?)
    }

    /// Puts a caller back where it was. If the turn has passed meanwhile and found nobody, this caller gets it.
    pub(super) fn put_back(self: &Arc<Self>, key: &Key, waiter: Waiter) {
        let mut keys = self.keys.lock();
        if let Some(queue) = keys.get_mut(key) {
            return queue.push_front(waiter);
        }
        keys.insert(key.clone(), VecDeque::new());
        drop(keys);
        // A turn that nobody takes is dropped, and so passes on.
        drop(waiter.call(Called::Turn(Turn::of(self, key, true))));
    }

    /// Ends every wait: the callers learn that the manager is closed.
    pub(super) fn close(&self) {
        let mut keys = self.keys.lock();
        // In the order of the keys, so that a simulation repeats.
        let mut queues: Vec<_> = keys.iter_mut().collect();
        queues.sort_unstable_by_key(|(key, _)| *key);
        for (_, queue) in queues {
            queue.clear();
        }
    }

    /// Passes the turn of a key to the next caller. Without one, the key has no queue any more.
    fn pass_turn(self: &Arc<Self>, key: &Key, gives_way: bool) {
        let mut keys = self.keys.lock();
        let Some(queue) = keys.get_mut(key) else {
            return;
        };
        match first(queue) {
            Some(waiter) => {
                drop(keys);
                let mut turn = Turn::of(self, key, true);
                turn.gives_way = gives_way;
                drop(waiter.call(Called::Turn(turn)));
            }
            None => {
                keys.remove(key);
                self.emptied.notify_waiters();
            }
        }
    }

    /// A turn that bypassed the queue has ended.
    fn end_bypass(&self, key: &Key) {
        let mut bypassing = self.bypassing.lock();
        if let Some(turns) = bypassing.get_mut(key) {
            *turns -= 1;
            if *turns == 0 {
                bypassing.remove(key);
            }
        }
        drop(bypassing);
        self.emptied.notify_waiters();
    }

    /// Completes when nobody has a turn.
    pub(super) async fn emptied(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            // Registered before the look, so that a turn which ends in between is not missed.
            emptied.as_mut().enable();
            if self.keys.lock().is_empty() && self.bypassing.lock().is_empty() {
                return;
            }
            emptied.await;
        }
    }
}

fn first(queue: &mut VecDeque<Waiter>) -> Option<Waiter> {
    std::iter::from_fn(|| queue.pop_front()).find(|waiter| !waiter.call.is_closed())
}

/// The right to ask the store for a key. Each key of a manager has at most one, besides those that bypass the queue.
#[derive(Debug)]
pub(super) struct Turn {
    queues: Arc<Queues>,
    key: Key,
    /// Whether other callers may wait for it. Otherwise it bypasses the queue.
    is_queued: bool,
    /// This process had the key for as long as it may: other processes ask first.
    gives_way: bool,
}

impl Turn {
    fn of(queues: &Arc<Queues>, key: &Key, is_queued: bool) -> Self {
        Self {
            queues: Arc::clone(queues),
            key: key.clone(),
            is_queued,
            gives_way: false,
        }
    }

    /// The next local caller with this turn lets other processes ask first.
    pub(super) fn give_way(&mut self) {
        self.gives_way = true;
    }

    /// Whether this caller has to let other processes ask first; true once.
    pub(super) fn take_give_way(&mut self) -> bool {
        std::mem::take(&mut self.gives_way)
    }

    /// Whether other callers may wait for this turn, so that its hold may be handed off.
    pub(super) fn is_queued(&self) -> bool {
        self.is_queued
    }

    /// How many other turns this process has for the key, if this one bypasses the queue: each asks, waits or holds.
    pub(super) fn beside(&self) -> usize {
        if self.is_queued {
            return 0;
        }
        let bypassing = self.queues.bypassing.lock().get(&self.key).copied();
        let queued = self.queues.keys.lock().contains_key(&self.key);
        bypassing.unwrap_or_default().saturating_sub(1) + usize::from(queued)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_queued {
            self.queues.pass_turn(&self.key, self.gives_way);
        } else {
            self.queues.end_bypass(&self.key);
        }
    }
}

/// A place in a local queue.
#[derive(Debug)]
pub(super) struct Place {
    called: oneshot::Receiver<Called>,
    _counted: Counted,
}

impl Place {
    /// Completes when it is this caller's turn; `None` if the manager was shut down.
    pub(super) async fn called(&mut self) -> Option<Called> {
        (&mut self.called).await.ok()
    }

    /// Leaves the queue. Gives what the caller was called with and did not take.
    pub(super) fn leave(&mut self) -> Option<Called> {
        self.called.close();
        self.called.try_recv().ok()
    }
}

/// One of the `max_waiters` callers that may wait, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(waiting: &Arc<AtomicUsize>, max_waiters: usize) -> Result<Self, Error> {
        let counted = Self(Arc::clone(waiting));
        if waiting.fetch_add(1, Ordering::Relaxed) < max_waiters {
            return Ok(counted);
        }
        Err(Error::contended(format!(
            "too many callers wait for locks of this manager: max_waiters={max_waiters}; try later, or raise max_waiters"
        )))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::LockMode;

    fn request() -> LockRequest {
        LockRequest {
            key: Key::parse("a").unwrap(),
            times: HoldTimes {
                ttl: Duration::from_secs(10),
                lock_delay: Duration::ZERO,
                max_hold: None,
                at_least: None,
            },
            mode: LockMode::Exclusive,
            is_fair: false,
            label: None,
            allows_handoff: true,
        }
    }

    #[tokio::test]
    async fn a_caller_put_back_after_the_turn_has_passed_gets_the_turn() {
        let queues = Queues::new(10);
        let Ok(Some(Entered::Turn(turn, _))) = queues.enter(&request(), true) else {
            panic!("nobody is there");
        };
        let Ok(Some(Entered::Place(mut place))) = queues.enter(&request(), true) else {
            panic!("somebody has the turn");
        };
        let waiter = queues.next(&request().key).unwrap();
        drop(turn);
        queues.put_back(&request().key, waiter);
        assert!(matches!(place.called().await, Some(Called::Turn(_))));
    }
}
