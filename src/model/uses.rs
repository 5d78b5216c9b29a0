//! [`Uses`]: which fences are at work under the permit of a run, and what they have done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The run of the permit is over.
const OVER: usize = 1;
/// The commit call is a [`FenceCall`](crate::model::fence_call::FenceCall).
const OF_A_FENCE: usize = 2;
/// A fence has sent what may apply its change.
const SENT: usize = 4;
/// A fence has applied its change.
const APPLIED: usize = 8;
/// A fence does not know whether it has applied its change.
const IN_DOUBT: usize = 16;
const ONE_USE: usize = 32;

/// All copies of a permit share it.
#[derive(Clone, Default, Debug)]
pub(super) struct Uses(Arc<AtomicUsize>);

/// The use of a permit by a fence. A change without an answer may still be applied, so one that is
/// dropped ends only if nothing was sent.
#[must_use = "a permit stays in use until its use is ended"]
pub(crate) struct Use<'a>(Option<&'a Uses>);

impl Uses {
    /// `None` if the run is over.
    pub(super) fn begin(&self) -> Option<Use<'_>> {
        if self.0.fetch_add(ONE_USE, Ordering::AcqRel) & OVER == 0 {
            return Some(Use(Some(self)));
        }
        self.0.fetch_sub(ONE_USE, Ordering::AcqRel);
        None
    }

    pub(super) fn applied(&self) {
        self.0.fetch_or(APPLIED, Ordering::AcqRel);
    }

    pub(super) fn in_doubt(&self) {
        self.0.fetch_or(IN_DOUBT, Ordering::AcqRel);
    }

    pub(super) fn sends(&self) {
        self.0.fetch_or(SENT, Ordering::AcqRel);
    }

    pub(super) fn are_of_a_fence(&self) {
        self.0.fetch_or(OF_A_FENCE, Ordering::AcqRel);
    }

    /// The run is over. Whether it proves that nothing was applied.
    pub(super) fn end_unsent(&self) -> bool {
        let uses = self.0.fetch_or(OVER, Ordering::AcqRel);
        uses & (OF_A_FENCE | SENT) == OF_A_FENCE && uses < ONE_USE
    }

    /// The run is over. Why an answer that nothing was applied proves nothing, if it does not.
    pub(super) fn end(&self) -> Option<&'static str> {
        match self.0.fetch_or(OVER, Ordering::AcqRel) {
            uses if uses >= ONE_USE => Some(
                "the commit call returned while a fence was still at work under a copy of its permit",
            ),
            uses if uses & APPLIED != 0 => Some(
                "the commit call says that nothing was applied, after a fence has applied a change under its permit",
            ),
            uses if uses & IN_DOUBT != 0 => Some(
                "the commit call says that nothing was applied, after a fence did not know that of its change under this permit",
            ),
            _ => None,
        }
    }
}

impl Use<'_> {
    /// It is known what became of the change.
    pub(crate) fn end(mut self) {
        if let Some(uses) = self.0.take() {
            uses.0.fetch_sub(ONE_USE, Ordering::AcqRel);
        }
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        if let Some(uses) = self.0
            && uses.0.load(Ordering::Acquire) & SENT == 0
        {
            uses.0.fetch_sub(ONE_USE, Ordering::AcqRel);
        }
    }
}
