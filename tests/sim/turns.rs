//! The judge of runs in turn of one lease: one at a time, and each is undone before the turn of the
//! next one comes.
//!
//! A process of a world has one thread, so a run that is dropped is always undone before the next
//! one begins. What can be seen is when the next one is woken, which may be within that drop.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use crate::runs::Hook;
use crate::state::{Shared, State};

/// The work of a run in turn.
pub(crate) struct InTurn {
    shared: Shared,
    leases: Arc<[usize]>,
}

impl InTurn {
    pub(crate) fn begins(shared: &Shared, leases: &Arc<[usize]>) -> Self {
        let mut state = shared.lock();
        for &number in &**leases {
            state.leases.all[number].in_turn += 1;
            if state.leases.all[number].in_turn > 1 {
                state.fail("O6 turns", || {
                    format!("two runs in turn under the lease {number}")
                });
            }
        }
        Self {
            shared: shared.clone(),
            leases: Arc::clone(leases),
        }
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        for &number in &*self.leases {
            state.leases.all[number].in_turn -= 1;
        }
    }
}

/// A run in turn from its call to its end.
pub(crate) struct Watched<F> {
    // Dropped before the run.
    end: End,
    run: Pin<Box<F>>,
    waits: Arc<Waits>,
}

struct End {
    shared: Shared,
    run: usize,
    has_ended: bool,
}

/// Who is woken when the turn comes.
struct Waits {
    shared: Shared,
    run: usize,
    waker: Mutex<Option<Waker>>,
}

impl<F: Future> Watched<F> {
    pub(crate) fn new(shared: &Shared, run: usize, future: F) -> Self {
        shared.lock().runs.in_turn.insert(run);
        Self {
            end: End {
                shared: shared.clone(),
                run,
                has_ended: false,
            },
            run: Box::pin(future),
            waits: Arc::new(Waits {
                shared: shared.clone(),
                run,
                waker: Mutex::new(None),
            }),
        }
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        *self.waits.waker.lock() = Some(cx.waker().clone());
        let waker = Waker::from(Arc::clone(&self.waits));
        let polled = self.run.as_mut().poll(&mut Context::from_waker(&waker));
        self.end.has_ended = polled.is_ready();
        polled
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if !self.has_ended {
            state.runs.all[self.run].is_dropped = true;
        }
    }
}

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        // Timers are woken while the world has its state, and a turn never.
        if let Some(mut state) = self.shared.try_lock() {
            state.turn_may_come(self.run);
        }
        let waker = self.waker.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    /// A run that may wait for its turn is woken.
    fn turn_may_come(&mut self, run: usize) {
        let is_missing = |former: &usize| {
            let (former, waiting) = (&self.runs.all[*former], &self.runs.all[run]);
            let is_local = |hook: &Hook| *hook == Hook::Local;
            let due = former.hooks.iter().filter(|hook| is_local(hook)).count();
            let called = (former.called.iter()).filter(|&&hook| is_local(&former.hooks[hook]));
            former.is_dropped
                && former.end.is_none()
                && former.node == waiting.node
                && former.life == waiting.life
                && (former.leases.iter()).any(|lease| waiting.leases.contains(lease))
                && due > called.count()
        };
        let former =
            (self.runs.in_turn.iter()).find(|&&former| former != run && is_missing(&former));
        if let Some(&former) = former {
            self.runs.all[run].came_before_undo_of = Some(former);
        }
    }

    /// O6: the turn of a run comes after what the run before it undoes.
    pub(crate) fn turn_begins(&mut self, run: usize) {
        if let Some(former) = self.runs.all[run].came_before_undo_of {
            self.fail("O6 turns", || {
                format!(
                    "the turn of run {run} came before run {former}, which was dropped, was undone"
                )
            });
        }
    }
}
