//! [`AsyncTx`]: the `Tx` of an awaited run, and what its drop takes back.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::handle::Shared;
use super::mode::Awaiting;
use super::tx::{Home, Tx};
use super::undo::Why;
use super::unwinding::Unwinding;

/// The [`Tx`] of an awaited run. It has the methods of `Tx<'static, Awaiting>`.
///
/// It is a type of its own, without a lifetime, because an `async` closure that takes a type with one makes a future
/// that the compiler will not take for `Send`.
pub struct AsyncTx(Tx<'static, Awaiting>);

impl AsyncTx {
    pub(super) fn new(home: Arc<Shared>) -> Self {
        Self(Tx::new(Home::Owned(home)))
    }

    pub(super) fn tx(&mut self) -> &mut Tx<'static, Awaiting> {
        &mut self.0
    }
}

impl Deref for AsyncTx {
    type Target = Tx<'static, Awaiting>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The future of the run was dropped while the work was awaited.
impl Drop for AsyncTx {
    fn drop(&mut self) {
        if !self.0.is_blank() {
            let to_undo = self.0.take_notes().to_undo;
            drop(Unwinding::new(&self.0.home, to_undo, Why::NotCommitted));
        }
    }
}

impl fmt::Debug for AsyncTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
