//! [`AsyncTx`]: the `Tx` of an awaited run, and what its drop undoes.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::executor::context::RunContext;
use crate::executor::tx::{Awaiting, ContextRef, Tx};
use crate::executor::undo::{Unwinding, Why};

/// The [`Tx`] of an awaited run. It has the methods of `Tx<'static, Awaiting>`.
///
/// It is a type of its own, without a lifetime, because the compiler cannot prove that the future of an `async` closure is `Send`
/// when the closure takes a type with a lifetime.
pub struct AsyncTx(Tx<'static, Awaiting>);

impl AsyncTx {
    pub(crate) fn new(context: Arc<RunContext>, run: u64) -> Self {
        Self(Tx::new(ContextRef::Owned(context), run))
    }

    pub(crate) fn tx(&mut self) -> &mut Tx<'static, Awaiting> {
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
            let notes = self.0.take_notes();
            let why = Why::of_notes(&notes);
            drop(Unwinding::new(
                &self.0.context,
                self.0.run(),
                notes.to_undo,
                why,
            ));
        }
    }
}

impl fmt::Debug for AsyncTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
