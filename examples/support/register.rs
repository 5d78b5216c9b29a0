//! The resource that the lock protects. It also knows who has entered, so it can count the writes
//! over the next holder.

use std::sync::Mutex;

use leasehold::FencingToken;

/// A value in memory, and what was done to it.
#[derive(Default)]
pub(crate) struct Register {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    entered: Option<FencingToken>,
    fence: Option<FencingToken>,
    writes: u64,
    over_the_next_holder: u64,
}

/// What was done to the register.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// Writes that were made.
    pub(crate) writes: u64,
    /// Of these, writes by a holder after the next holder had entered.
    pub(crate) over_the_next_holder: u64,
}

impl Register {
    /// Records that a holder has entered, only for counting.
    pub(crate) fn enter(&self, holder: FencingToken) {
        let mut inner = self.inner.lock().expect("the register");
        inner.entered = inner.entered.max(Some(holder));
    }

    /// The fence is raised: smaller tokens are refused from now on.
    pub(crate) fn raise(&self, holder: FencingToken) {
        let mut inner = self.inner.lock().expect("the register");
        inner.fence = inner.fence.max(Some(holder));
    }

    /// A write to a resource that checks nothing. True if it overwrote the next holder's work.
    pub(crate) fn write(&self, holder: FencingToken) -> bool {
        self.inner.lock().expect("the register").land(holder)
    }

    /// A write to a resource that checks the token first.
    ///
    /// # Errors
    ///
    /// The larger token that was seen before.
    pub(crate) fn write_fenced(&self, holder: FencingToken) -> Result<bool, FencingToken> {
        let mut inner = self.inner.lock().expect("the register");
        match inner.fence.filter(|seen| *seen > holder) {
            Some(seen) => Err(seen),
            None => {
                inner.fence = Some(holder);
                Ok(inner.land(holder))
            }
        }
    }

    /// Whether a later holder than this one has entered.
    #[allow(dead_code, reason = "not every user of this file stalls a write")]
    pub(crate) fn is_entered_after(&self, holder: FencingToken) -> bool {
        self.inner.lock().expect("the register").entered > Some(holder)
    }

    pub(crate) fn tally(&self) -> Tally {
        let inner = self.inner.lock().expect("the register");
        Tally {
            writes: inner.writes,
            over_the_next_holder: inner.over_the_next_holder,
        }
    }
}

impl Inner {
    fn land(&mut self, holder: FencingToken) -> bool {
        let is_over = self.entered.is_some_and(|entered| entered > holder);
        self.writes += 1;
        self.over_the_next_holder += u64::from(is_over);
        is_over
    }
}
