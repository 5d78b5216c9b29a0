//! [`Inside`]: which locks the runs in progress on this thread are under, by the numbers that their manager gave them. A run that asks for one of them would wait for itself.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;

thread_local! {
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// This thread is inside of a run until this is dropped.
pub(crate) struct Inside {
    /// How many locks the outer runs are under.
    outer: usize,
}

impl Inside {
    #[inline]
    pub(crate) fn enter(locks: &[u64]) -> Self {
        let enter = |inside: &RefCell<Vec<u64>>| {
            let mut inside = inside.borrow_mut();
            let outer = inside.len();
            inside.extend_from_slice(locks);
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

/// Whether a run in progress on this thread is under a lock of which `is_it` is true.
pub(crate) fn is_inside(is_it: impl FnMut(u64) -> bool) -> bool {
    let look = |inside: &RefCell<Vec<u64>>| inside.borrow().iter().copied().any(is_it);
    INSIDE.try_with(look).unwrap_or_default()
}
