//! [`Desk`]: who may ask the store for a key, who waits in this process, and who is called or
//! handed the key next. A pure function of state, event and time.
//!
//! The desk knows no store, no lease and no clock: `now` is always an argument, in nanoseconds of
//! the boot clock. Each caller that asks has a *turn*, which is a number. It is a part of the hold
//! that the store grants, and ends with it. The callers of a queue wait for one turn. All other
//! turns *bypass* the queue: of claims that queue in the store or share a key, and of callers that
//! did not show themselves in time.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::model::key::Key;
use crate::model::span::nanos;
use crate::settings::Settings;

/// A caller in a queue.
pub(super) trait Waits {
    /// Whether it does not wait any more. It stays in the queue until somebody looks, so that
    /// leaving needs no search.
    fn has_left(&self) -> bool;
}

/// All keys of a manager: `W` is a caller that waits, `R` are the runs of a hold that has ended.
#[derive(Debug)]
pub(super) struct Desk<W, R> {
    /// Of a key that nobody asks for, holds or withdraws there is nothing.
    lines: HashMap<Key, Line<W, R>>,
    last_turn: u64,
    turns: usize,
    /// The lines in which callers wait for one that has to show itself, by the time of the next
    /// check of each.
    watched: BTreeSet<(u64, Key)>,
    /// When the task checks next.
    next_check: u64,
    /// A check is due earlier than the task knows.
    is_early: bool,
    is_closed: bool,
    /// How long a caller that is called has until it shows itself.
    call_time: u64,
    /// How long a caller may be busy with the store until it shows itself again: it asks,
    /// subscribes and asks once more.
    ask_time: u64,
}

#[derive(Debug)]
struct Line<W, R> {
    /// The turn that the queue waits for.
    turn: Option<u64>,
    /// When it passes on unless its caller shows itself before; never while a hold has it.
    passes_at: u64,
    /// This process had the key for as long as it may: its next caller lets other processes ask
    /// first.
    gives_way: bool,
    waiting: VecDeque<W>,
    watched_at: Option<u64>,
    /// How many turns bypass the queue.
    bypassing: usize,
    /// The turns whose hold has ended while runs were in progress. Such a run undoes in this
    /// process what it did, and would undo the work of the next local holder with it, so that one
    /// waits. Other processes do not: they share no memory with it.
    former: Vec<(u64, R)>,
    /// How many claims are being withdrawn. The store may still count them among those that wait.
    withdrawals: usize,
}

const NEVER: u64 = u64::MAX;

impl<W, R> Default for Line<W, R> {
    fn default() -> Self {
        Self {
            turn: None,
            passes_at: NEVER,
            gives_way: false,
            waiting: VecDeque::new(),
            watched_at: None,
            bypassing: 0,
            former: Vec::new(),
            withdrawals: 0,
        }
    }
}

/// The answer to a caller that comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// Ask the store, with this turn.
    Turn(u64),
    /// Another caller has the turn.
    Wait,
    /// The manager is closed.
    Refused,
}

/// A caller that gets the turn of a queue.
#[derive(Debug)]
pub(super) struct Called<W> {
    pub(super) waiter: W,
    pub(super) key: Key,
    pub(super) turn: u64,
    /// It lets other processes ask first.
    pub(super) gives_way: bool,
}

/// A hold that was released, and under which nothing is in doubt.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReleasedHold {
    /// Whether the next holder could work under its lease.
    pub(super) is_usable: bool,
    /// This process had the grant as often or for as long as it may.
    pub(super) is_used_up: bool,
    /// Whether other processes ask first after that.
    pub(super) gives_way: bool,
}

impl<W: Waits, R: Clone> Desk<W, R> {
    pub(super) fn new(settings: &Settings) -> Self {
        let call_time = settings.call_time();
        Self {
            lines: HashMap::new(),
            last_turn: 0,
            turns: 0,
            watched: BTreeSet::new(),
            next_check: NEVER,
            is_early: false,
            is_closed: false,
            call_time: nanos(call_time),
            ask_time: nanos(3 * settings.request_timeout + call_time),
        }
    }

    /// A caller comes. It gets the turn if that is free, or if it `bypasses` the queue.
    pub(super) fn enter(&mut self, key: &Key, bypasses: bool, now: u64) -> Admission {
        if self.is_closed {
            return Admission::Refused;
        }
        let turn = self.last_turn + 1;
        let passes_at = now.saturating_add(self.ask_time);
        let line = self.line(key);
        if bypasses {
            line.bypassing += 1;
        } else if line.turn.is_some() && (line.passes_at > now || !line.waiting.is_empty()) {
            return Admission::Wait;
        } else {
            // Whoever has it now bypasses this caller.
            line.bypassing += usize::from(line.turn.is_some());
            (line.turn, line.passes_at) = (Some(turn), passes_at);
        }
        self.last_turn = turn;
        self.turns += 1;
        Admission::Turn(turn)
    }

    /// A caller waits until it is called.
    pub(super) fn wait(&mut self, key: &Key, waiter: W) {
        let queue = &mut self.line(key).waiting;
        if queue.len() == queue.capacity() {
            queue.retain(|waiter| !waiter.has_left());
            // So each one that comes pays for a bounded part of the next search.
            queue.reserve(queue.len() + 1);
        }
        queue.push_back(waiter);
        self.watch(key);
    }

    /// The caller that has the turn lives. It comes back from the store, which it asks after
    /// `pause`, or shows itself again before.
    pub(super) fn shown(&mut self, key: &Key, turn: u64, pause: Duration, now: u64) {
        let until = now
            .saturating_add(nanos(pause))
            .saturating_add(self.ask_time);
        if let Some(line) = self.queue_of(key, turn) {
            line.passes_at = until;
        }
    }

    /// The store has granted. False if the grant has to be given back, because runs of a former
    /// holder are left. Otherwise a hold has the turn from now on.
    pub(super) fn granted(&mut self, key: &Key, turn: u64, are_left: impl Fn(&R) -> bool) -> bool {
        if self.former(key, are_left).is_some() {
            return false;
        }
        if let Some(line) = self.queue_of(key, turn) {
            line.passes_at = NEVER;
        }
        true
    }

    /// Runs of a former holder in this process, if any are left.
    pub(super) fn former(&self, key: &Key, are_left: impl Fn(&R) -> bool) -> Option<R> {
        let former = &self.lines.get(key)?.former;
        let mut runs = former.iter().map(|(_, runs)| runs);
        runs.find(|runs| are_left(runs)).cloned()
    }

    /// Whether a hold that has this turn, and ends so, goes to the caller that waits first. It is
    /// called with [`next`](Self::next).
    pub(super) fn hands_off(
        &mut self,
        key: &Key,
        turn: u64,
        ending: ReleasedHold,
        fits: impl Fn(&W) -> bool,
    ) -> bool {
        let Some(line) = self.queue_of(key, turn) else {
            return false;
        };
        let fits = first(&mut line.waiting).is_some_and(fits);
        line.gives_way = ending.is_used_up && ending.gives_way;
        fits && ending.is_usable && !ending.is_used_up
    }

    /// The caller that waits first, to be handed the hold that has this turn; `None` if it does not
    /// fit.
    pub(super) fn next(&mut self, key: &Key, turn: u64, fits: impl Fn(&W) -> bool) -> Option<W> {
        let queue = &mut self.queue_of(key, turn)?.waiting;
        first(queue).is_some_and(fits).then(|| queue.pop_front())?
    }

    /// The hold has ended, and runs of it are left: its turn [ends](Self::ended) when they have.
    pub(super) fn drains(&mut self, key: &Key, turn: u64, runs: R) {
        self.line(key).former.push((turn, runs));
    }

    /// A turn has ended. If callers wait for it, the first is called.
    pub(super) fn ended(&mut self, key: &Key, turn: u64, now: u64) -> Option<Called<W>> {
        self.turns -= 1;
        let line = self.lines.get_mut(key)?;
        line.former.retain(|(of, _)| *of != turn);
        if line.turn != Some(turn) {
            line.bypassing -= 1;
        } else if first(&mut line.waiting).is_some() {
            return self.call(key, now);
        } else {
            (line.turn, line.passes_at, line.gives_way) = (None, NEVER, false);
        }
        self.clear(key);
        None
    }

    /// The callers that get a turn because another one did not show itself in time.
    pub(super) fn unclaimed(&mut self, now: u64) -> Vec<Called<W>> {
        let mut called = Vec::new();
        while let Some((at, _)) = self.watched.first()
            && *at <= now
            && let Some((_, key)) = self.watched.pop_first()
        {
            let Some(line) = self.lines.get_mut(&key) else {
                continue;
            };
            line.watched_at = None;
            if line.passes_at <= now
                && let Some(next) = self.call(&key, now)
            {
                // Whoever has it bypasses the queue from now on.
                self.line(&key).bypassing += 1;
                called.push(next);
            }
            self.watch(&key);
        }
        called
    }

    /// When to check the turns again; `None` if nobody waits for one that may have to pass.
    pub(super) fn plan(&mut self) -> Option<u64> {
        let next = self.watched.first().map(|(at, _)| *at);
        self.next_check = next.unwrap_or(NEVER);
        next
    }

    /// Whether a check is due before the planned one; true once.
    pub(super) fn take_early(&mut self) -> bool {
        std::mem::take(&mut self.is_early)
    }

    /// Whether callers wait for the key.
    pub(super) fn is_waited_for(&mut self, key: &Key) -> bool {
        let line = self.lines.get_mut(key);
        line.is_some_and(|line| first(&mut line.waiting).is_some())
    }

    /// How many other turns there are of the key, if this one bypasses the queue: each asks, waits
    /// or holds.
    pub(super) fn beside(&self, key: &Key, turn: u64) -> usize {
        match self.lines.get(key) {
            Some(line) if line.turn != Some(turn) => {
                line.bypassing.saturating_sub(1) + usize::from(line.turn.is_some())
            }
            _ => 0,
        }
    }

    /// Whether nobody has a turn.
    pub(super) fn is_idle(&self) -> bool {
        self.turns == 0
    }

    /// A claim is being withdrawn.
    pub(super) fn withdraws(&mut self, key: &Key) {
        self.line(key).withdrawals += 1;
    }

    /// A claim has been withdrawn, or its time is over.
    pub(super) fn withdrawn(&mut self, key: &Key) {
        if let Some(line) = self.lines.get_mut(key) {
            line.withdrawals -= 1;
        }
        self.clear(key);
    }

    pub(super) fn is_withdrawing(&self, key: &Key) -> bool {
        let line = self.lines.get(key);
        line.is_some_and(|line| line.withdrawals > 0)
    }

    /// Refuses all callers from now on. Gives those that wait, in the order of the keys, so that a
    /// simulation repeats.
    pub(super) fn close(&mut self) -> Vec<W> {
        self.is_closed = true;
        let mut lines: Vec<_> = self.lines.iter_mut().collect();
        lines.sort_unstable_by_key(|(key, _)| *key);
        let waiting = lines
            .into_iter()
            .flat_map(|(_, line)| line.waiting.drain(..));
        waiting.collect()
    }

    fn line(&mut self, key: &Key) -> &mut Line<W, R> {
        self.lines.entry(key.clone()).or_default()
    }

    /// The line whose queue waits for this turn.
    fn queue_of(&mut self, key: &Key, turn: u64) -> Option<&mut Line<W, R>> {
        (self.lines.get_mut(key)).filter(|line| line.turn == Some(turn))
    }

    /// Gives the turn of a queue a new number, and the first caller that waits for it. `None` if
    /// nobody does: nothing was changed.
    fn call(&mut self, key: &Key, now: u64) -> Option<Called<W>> {
        let line = self.lines.get_mut(key)?;
        first(&mut line.waiting)?;
        let waiter = line.waiting.pop_front()?;
        self.last_turn += 1;
        self.turns += 1;
        line.turn = Some(self.last_turn);
        line.passes_at = now.saturating_add(self.call_time);
        let gives_way = std::mem::take(&mut line.gives_way);
        self.watch(key);
        Some(Called {
            waiter,
            key: key.clone(),
            turn: self.last_turn,
            gives_way,
        })
    }

    /// Checks a line when its turn may have to pass, if anybody waits for that. A planned check
    /// moves to an earlier time only.
    fn watch(&mut self, key: &Key) {
        let Some(line) = self.lines.get_mut(key) else {
            return;
        };
        let at = line.passes_at;
        let is_planned = line.watched_at.is_some_and(|planned| planned <= at);
        if at == NEVER || line.waiting.is_empty() || is_planned {
            return;
        }
        if let Some(later) = line.watched_at.replace(at) {
            self.watched.remove(&(later, key.clone()));
        }
        self.watched.insert((at, key.clone()));
        if at < self.next_check {
            self.next_check = at;
            self.is_early = true;
        }
    }

    /// Forgets a key under which nothing is left.
    fn clear(&mut self, key: &Key) {
        if let Some(line) = self.lines.get(key)
            && line.turn.is_none()
            && line.bypassing == 0
            && line.withdrawals == 0
            && let Some(line) = self.lines.remove(key)
            && let Some(at) = line.watched_at
        {
            self.watched.remove(&(at, key.clone()));
        }
    }
}

/// The first caller that still waits.
fn first<W: Waits>(queue: &mut VecDeque<W>) -> Option<&W> {
    while queue.front().is_some_and(Waits::has_left) {
        queue.pop_front();
    }
    queue.front()
}

#[cfg(test)]
mod tests;
