//! [`Value`]: what a guarded cell of a world shows. Like a large value, it may keep the thread that
//! drops it.

use leasehold::GuardedCell;
use parking_lot::Mutex;

use crate::thread::Thread;

pub(crate) struct Value {
    pub(crate) number: u64,
    drop_takes: Mutex<Option<(Thread, u64)>>,
}

impl Value {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            number,
            drop_takes: Mutex::new(None),
        }
    }
}

/// The copy that a run changes is a value of its own.
impl Clone for Value {
    fn clone(&self) -> Self {
        Self::new(self.number)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if let Some((thread, span)) = self.drop_takes.get_mut().take() {
            thread.stall(span);
        }
    }
}

/// Whoever replaces what the cell shows now drops it, which takes `span`: time that passes after
/// the copy has appeared and before the commit looks at its lease again.
pub(crate) fn takes_long_to_replace(cell: &GuardedCell<Value>, thread: Thread, span: u64) {
    *cell.read().drop_takes.lock() = Some((thread, span));
}
