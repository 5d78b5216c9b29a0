//! The local queue: callers of this process that want the same key wait here, first come, first served, so that at most one
//! of them asks the store.
//!
//! Claims that queue in the store, or that share a key, do not wait here: each gets a turn that bypasses the queue.
//!
//! A [`Turn`] is the right to ask the store for a key, and then a part of the hold that the store granted. It ends with the
//! hold, however that ends, and passes to the next caller when it is dropped. A caller that has it and holds nothing shows itself
//! now and then. If it does not, because nobody polls it, the turn passes to the next caller, and the one that comes late bypasses
//! the queue: the store decides between the two.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::hold::Hold;
use super::place::{Counted, Place};
use super::wish::{HoldTimes, Wish};
use crate::clock::Clock;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::span::nanos;
use crate::settings::Settings;

/// What a waiting caller gets.
#[derive(Debug)]
pub(super) enum Passed {
    /// Ask the store.
    Turn(Turn),
    /// The hold itself, handed off.
    Hold(Arc<Hold>),
}

/// A caller that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    call: oneshot::Sender<Passed>,
    pub(super) times: HoldTimes,
    pub(super) allows_handoff: bool,
}

impl Waiter {
    /// Gives the caller what it waits for. The error is the same again, if the caller has gone.
    pub(super) fn call(self, called: Passed) -> Result<(), Passed> {
        self.call.send(called)
    }
}

/// All local queues of a manager.
#[derive(Debug)]
pub(super) struct Queues {
    lines: Mutex<Lines>,
    /// How many turns of a key bypass its queue.
    bypassing: Mutex<HashMap<Key, usize>>,
    waiting: Arc<AtomicUsize>,
    max_waiters: usize,
    clock: Clock,
    /// How long a caller that is called has until it shows itself.
    call_time: Duration,
    /// How long a caller may be busy with the store until it shows itself again: it asks, subscribes and asks once more.
    ask_time: Duration,
    emptied: Notify,
    /// Wakes the task when a turn may have to pass before its next look.
    wake: Notify,
}

#[derive(Debug)]
struct Lines {
    /// A key without a turn has no line.
    keys: HashMap<Key, Line>,
    last_turn: u64,
    /// The lines in which callers wait for one that has to show itself, by the time of the next look at each.
    watched: BTreeSet<(u64, Key)>,
    /// When the task looks next, in nanoseconds of the boot clock.
    next_look: u64,
}

/// The queue of one key.
#[derive(Debug)]
struct Line {
    /// The turn that the others wait for. One with another number bypasses them.
    turn: u64,
    /// When the turn passes on unless its caller shows itself before, in nanoseconds of the boot clock; never while a hold has it.
    passes_at: u64,
    waiting: VecDeque<Waiter>,
    watched_at: Option<u64>,
}

impl Line {
    fn new(turn: u64, passes_at: u64, waiting: VecDeque<Waiter>) -> Self {
        Self {
            turn,
            passes_at,
            waiting,
            watched_at: None,
        }
    }
}

const NEVER: u64 = u64::MAX;
/// The number of a turn that bypasses the queue from its start.
const BYPASSES: u64 = 0;

#[derive(Debug)]
pub(super) enum Entered {
    /// The turn. One that bypasses the queue counts its caller among the waiters.
    Turn(Turn, Option<Counted>),
    Place(Place<Passed>),
}

impl Queues {
    pub(super) fn new(settings: &Settings, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            lines: Mutex::new(Lines {
                keys: HashMap::new(),
                last_turn: BYPASSES,
                watched: BTreeSet::new(),
                next_look: NEVER,
            }),
            bypassing: Mutex::default(),
            waiting: Arc::default(),
            max_waiters: settings.max_waiters,
            clock,
            call_time: settings.call_time(),
            ask_time: 3 * settings.request_timeout + settings.call_time(),
            emptied: Notify::new(),
            wake: Notify::new(),
        })
    }

    /// Takes the turn if it is free, otherwise, if `may_wait`, a place in the queue. `now` is by the boot clock.
    ///
    /// # Errors
    ///
    /// `Contended` if `max_waiters` callers wait already.
    pub(super) fn enter(
        self: &Arc<Self>,
        wish: &Wish,
        may_wait: bool,
        now: u64,
    ) -> Result<Option<Entered>, Error> {
        if wish.bypasses_queue() {
            let counted = (may_wait && !wish.is_counted).then(|| self.counted());
            let counted = counted.transpose()?;
            return Ok(Some(Entered::Turn(self.bypass(&wish.key), counted)));
        }
        let key = &wish.key;
        let passes_at = now.saturating_add(nanos(self.ask_time));
        let mut lines = self.lines.lock();
        let Lines {
            keys, last_turn, ..
        } = &mut *lines;
        let Some(line) = keys.get_mut(key) else {
            *last_turn += 1;
            let waiting = VecDeque::new();
            keys.insert(key.clone(), Line::new(*last_turn, passes_at, waiting));
            return Ok(Some(Entered::Turn(Turn::of(self, key, *last_turn), None)));
        };
        if line.passes_at <= now && line.waiting.is_empty() {
            // Whoever has it bypasses this caller from now on.
            *last_turn += 1;
            (line.turn, line.passes_at) = (*last_turn, passes_at);
            self.begin_bypass(key);
            return Ok(Some(Entered::Turn(Turn::of(self, key, line.turn), None)));
        }
        if !may_wait {
            return Ok(None);
        }
        let counted = (!wish.is_counted).then(|| self.counted()).transpose()?;
        // Abandoned places stay in the queue until here, so that leaving it needs no search.
        let queue = &mut line.waiting;
        if queue.len() == queue.capacity() {
            queue.retain(|waiter| !waiter.call.is_closed());
        }
        let (call, called) = oneshot::channel();
        queue.push_back(Waiter {
            call,
            times: wish.times,
            allows_handoff: wish.allows_handoff(),
        });
        self.watch(&mut lines, key);
        Ok(Some(Entered::Place(Place::new(called, counted))))
    }

    /// A turn that bypasses the queue.
    pub(super) fn bypass(self: &Arc<Self>, key: &Key) -> Turn {
        self.begin_bypass(key);
        Turn::of(self, key, BYPASSES)
    }

    fn begin_bypass(&self, key: &Key) {
        *self.bypassing.lock().entry(key.clone()).or_default() += 1;
    }

    /// Counts a caller among those that wait.
    ///
    /// # Errors
    ///
    /// `Contended` if `max_waiters` callers wait already.
    pub(super) fn counted(&self) -> Result<Counted, Error> {
        Counted::new(&self.waiting, self.max_waiters)
    }

    /// Whether the key may have a caller that waits.
    pub(super) fn is_waited_for(&self, key: &Key) -> bool {
        let lines = self.lines.lock();
        (lines.keys.get(key)).is_some_and(|line| !line.waiting.is_empty())
    }

    /// Takes the first caller that still waits for the key out of the queue.
    pub(super) fn next(&self, key: &Key) -> Option<Waiter> {
        first(&mut self.lines.lock().keys.get_mut(key)?.waiting)
    }

    /// Puts a caller back where it was. If the turn has passed meanwhile and found nobody, this caller gets it.
    pub(super) fn put_back(self: &Arc<Self>, key: &Key, waiter: Waiter) {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.keys.get_mut(key) {
            line.waiting.push_front(waiter);
            return self.watch(&mut lines, key);
        }
        let line = Line::new(BYPASSES, NEVER, VecDeque::from([waiter]));
        lines.keys.insert(key.clone(), line);
        let called = self.call_next(&mut lines, key, false);
        if called.is_none() {
            lines.keys.remove(key);
        }
        drop(lines);
        give(called);
    }

    /// Ends every wait: the callers learn that the manager is closed.
    pub(super) fn close(&self) {
        let mut lines = self.lines.lock();
        // In the order of the keys, so that a simulation repeats.
        let mut keys: Vec<_> = lines.keys.iter_mut().collect();
        keys.sort_unstable_by_key(|(key, _)| *key);
        for (_, line) in keys {
            line.waiting.clear();
        }
    }

    /// Passes every turn whose caller did not show itself in time, if others wait for it.
    pub(super) fn pass_unclaimed(self: &Arc<Self>, now: u64) {
        let mut lines = self.lines.lock();
        let mut called = Vec::new();
        while let Some((at, _)) = lines.watched.first()
            && *at <= now
            && let Some((_, key)) = lines.watched.pop_first()
        {
            let Some(line) = lines.keys.get_mut(&key) else {
                continue;
            };
            line.watched_at = None;
            if line.passes_at <= now {
                // Whoever has it bypasses the queue from now on.
                let next = self.call_next(&mut lines, &key, false);
                if next.is_some() {
                    self.begin_bypass(&key);
                }
                called.push(next);
            }
            self.watch(&mut lines, &key);
        }
        drop(lines);
        called.into_iter().for_each(give);
    }

    /// When to look at the turns again, by the boot clock; `None` if nobody waits for one that may have to pass.
    pub(super) fn plan(&self) -> Option<u64> {
        let mut lines = self.lines.lock();
        let next = lines.watched.first().map(|(at, _)| *at);
        lines.next_look = next.unwrap_or(NEVER);
        next
    }

    /// Completes when a turn may have to pass before the next look.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Looks at a line when its turn may have to pass, if anybody waits for that. A planned look moves to an earlier time only.
    fn watch(&self, lines: &mut Lines, key: &Key) {
        let Some(line) = lines.keys.get_mut(key) else {
            return;
        };
        let at = line.passes_at;
        let is_planned = line.watched_at.is_some_and(|planned| planned <= at);
        if at == NEVER || line.waiting.is_empty() || is_planned {
            return;
        }
        if let Some(later) = line.watched_at.replace(at) {
            lines.watched.remove(&(later, key.clone()));
        }
        lines.watched.insert((at, key.clone()));
        if at < lines.next_look {
            lines.next_look = at;
            self.wake.notify_one();
        }
    }

    /// Gives the turn of a key a new number, and the first caller that waits for it. `None` if nobody does: nothing was changed.
    fn call_next(
        self: &Arc<Self>,
        lines: &mut Lines,
        key: &Key,
        gives_way: bool,
    ) -> Option<(Waiter, Turn)> {
        let Lines {
            keys, last_turn, ..
        } = lines;
        let line = keys.get_mut(key)?;
        let waiter = first(&mut line.waiting)?;
        *last_turn += 1;
        line.turn = *last_turn;
        line.passes_at = self.clock.boot().saturating_add(nanos(self.call_time));
        let mut turn = Turn::of(self, key, line.turn);
        turn.gives_way = gives_way;
        self.watch(lines, key);
        Some((waiter, turn))
    }

    /// A turn has ended: it passes to the next caller. Without one, the key has no line any more.
    fn end_turn(self: &Arc<Self>, turn: &Turn) {
        let (key, mut lines) = (&turn.key, self.lines.lock());
        if !turn.is_of(lines.keys.get(key)) {
            drop(lines);
            return self.end_bypass(key);
        }
        let called = self.call_next(&mut lines, key, turn.gives_way);
        if called.is_none() {
            let ended = lines.keys.remove(key);
            if let Some(at) = ended.and_then(|line| line.watched_at) {
                lines.watched.remove(&(at, key.clone()));
            }
            self.emptied.notify_waiters();
        }
        drop(lines);
        give(called);
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
            if self.lines.lock().keys.is_empty() && self.bypassing.lock().is_empty() {
                return;
            }
            emptied.await;
        }
    }
}

fn first(queue: &mut VecDeque<Waiter>) -> Option<Waiter> {
    std::iter::from_fn(|| queue.pop_front()).find(|waiter| !waiter.call.is_closed())
}

/// Outside of the lock, because a turn that nobody takes is dropped, and so passes on.
fn give(called: Option<(Waiter, Turn)>) {
    if let Some((waiter, turn)) = called {
        drop(waiter.call(Passed::Turn(turn)));
    }
}

/// The right to ask the store for a key. Each key of a manager has at most one, besides those that bypass the queue.
#[derive(Debug)]
pub(super) struct Turn {
    queues: Arc<Queues>,
    key: Key,
    number: u64,
    /// This process had the key for as long as it may: other processes ask first.
    gives_way: bool,
}

impl Turn {
    fn of(queues: &Arc<Queues>, key: &Key, number: u64) -> Self {
        Self {
            queues: Arc::clone(queues),
            key: key.clone(),
            number,
            gives_way: false,
        }
    }

    /// Whether the callers of a line wait for this turn.
    fn is_of(&self, line: Option<&Line>) -> bool {
        self.number != BYPASSES && line.is_some_and(|line| line.turn == self.number)
    }

    fn passes_at(&self, at: u64) {
        if self.number == BYPASSES {
            return;
        }
        let mut lines = self.queues.lines.lock();
        if let Some(line) = lines.keys.get_mut(&self.key)
            && self.is_of(Some(line))
        {
            line.passes_at = at;
        }
    }

    /// The caller lives: it comes back from the store, which it asks after `pause`, or shows itself again before.
    pub(super) fn show(&self, pause: Duration) {
        let queues = &self.queues;
        let span = nanos(pause.saturating_add(queues.ask_time));
        self.passes_at(queues.clock.boot().saturating_add(span));
    }

    /// Whether others may wait for its caller to show itself.
    pub(super) fn is_shown(&self) -> bool {
        self.number != BYPASSES
    }

    /// A hold has it now: it ends with the hold.
    pub(super) fn keep(&self) {
        self.passes_at(NEVER);
    }

    /// The next local caller with this turn lets other processes ask first.
    pub(super) fn give_way(&mut self) {
        self.gives_way = true;
    }

    /// Whether this caller has to let other processes ask first; true once.
    pub(super) fn take_give_way(&mut self) -> bool {
        std::mem::take(&mut self.gives_way)
    }

    /// Whether other callers wait for this turn: then its hold may be handed off.
    pub(super) fn is_queued(&self) -> bool {
        self.number != BYPASSES && self.is_of(self.queues.lines.lock().keys.get(&self.key))
    }

    /// How many other turns this process has for the key, if this one bypasses the queue: each asks, waits or holds.
    pub(super) fn beside(&self) -> usize {
        if self.is_queued() {
            return 0;
        }
        let bypassing = self.queues.bypassing.lock().get(&self.key).copied();
        let queued = self.queues.lines.lock().keys.contains_key(&self.key);
        bypassing.unwrap_or_default().saturating_sub(1) + usize::from(queued)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let queues = Arc::clone(&self.queues);
        queues.end_turn(self);
    }
}

#[cfg(test)]
mod tests;
