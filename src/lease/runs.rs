//! The runs in progress, and the gate that the end of a hold closes before it waits for them (I5).
//!
//! A run raises its slot *before* it looks at the gate; the end closes the gate *before* it looks
//! at the slots. In the single total order of these four steps, either the run sees the closed gate
//! and does not begin, or the end sees the run and waits for it. So nothing commits after the end
//! has found every slot empty.
//!
//! Each clone of an executor has a slot of its own on its own cache line: threads that share a
//! lease share no cache line that they write.

use super::atomics::{AtomicBool, AtomicUsize, Ordering, total_order};

#[derive(Debug)]
pub(crate) struct Gate {
    closed: AtomicBool,
}

/// How many runs one clone of an executor has in progress.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct RunSlot {
    running: AtomicUsize,
}

impl Gate {
    pub(crate) fn open() -> Self {
        Self {
            closed: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// No run begins and none commits from now on.
    pub(crate) fn close(&self) {
        self.closed.swap(true, Ordering::SeqCst);
        total_order();
    }
}

impl RunSlot {
    pub(crate) fn at_rest() -> Self {
        Self {
            running: AtomicUsize::new(0),
        }
    }

    /// Begins a run, unless the gate is closed. Each call, also a refused one, is followed by one
    /// [`leave`](Self::leave).
    #[inline]
    pub(crate) fn enter(&self, gate: &Gate) -> bool {
        self.running.fetch_add(1, Ordering::SeqCst);
        total_order();
        !gate.is_closed()
    }

    /// Ends a run. True if the gate is closed: the end of the hold may be waiting for this slot.
    #[inline]
    pub(crate) fn leave(&self, gate: &Gate) -> bool {
        self.running.fetch_sub(1, Ordering::SeqCst);
        total_order();
        gate.is_closed()
    }

    /// Whether no run is in progress. After [`Gate::close`] a slot that was empty once stays empty,
    /// except for runs that are refused.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.running.load(Ordering::SeqCst) == 0
    }
}
