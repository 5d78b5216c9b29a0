//! [`Inside`]: which locks the runs in progress on this thread are under, by the numbers that their
//! manager gave them. A run that asks for one of them would wait for itself.
//!
//! The work of a blocking run may drive a runtime of its own, which then polls other tasks on this
//! thread. They are outside of the run: each entry names the task that made it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;

use tokio::task::{Id, try_id};

thread_local! {
    static INSIDE: RefCell<Vec<LockInside>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy)]
struct LockInside {
    lock: u64,
    /// None outside of tokio's tasks.
    task: Option<Id>,
}

/// This thread is inside of a run until this is dropped.
pub(crate) struct Inside {
    /// How many locks the outer runs are under.
    outer: usize,
}

impl Inside {
    #[inline]
    pub(crate) fn enter(locks: &[u64]) -> Self {
        let enter = |inside: &RefCell<Vec<LockInside>>| {
            let mut inside = inside.borrow_mut();
            let outer = inside.len();
            let task = try_id();
            inside.extend(locks.iter().map(|&lock| LockInside { lock, task }));
            outer
        };
        // It fails in a thread that ends, where nobody asks for a lock.
        let outer = INSIDE.try_with(enter).unwrap_or_default();
        Self { outer }
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().truncate(self.outer));
    }
}

/// Drives `work` inside of a run under these locks.
pub(crate) async fn drive_inside<F: Future>(locks: Vec<u64>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let _inside = Inside::enter(&locks);
        work.as_mut().poll(cx)
    })
    .await
}

/// Whether a run in progress in this task is under a lock of which `is_it` is true.
pub(crate) fn is_inside(mut is_it: impl FnMut(u64) -> bool) -> bool {
    let look = |inside: &RefCell<Vec<LockInside>>| {
        let task = try_id();
        let inside = inside.borrow();
        inside
            .iter()
            .any(|entry| entry.task == task && is_it(entry.lock))
    };
    INSIDE.try_with(look).unwrap_or_default()
}
