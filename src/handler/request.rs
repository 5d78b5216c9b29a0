//! [`AcquireRequest`] and [`ReleaseRequest`]: the requests that pass through the chain.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

use super::attachments::Attached;
use crate::clock::{Clock, Stamp};
use crate::model::error::Ended;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// One call that wants to hold a lock.
pub struct AcquireRequest {
    key: Key,
    label: Label,
    ttl: Duration,
    clock: Clock,
    started: Stamp,
    /// `None`: one request, without a wait.
    wait: Option<Duration>,
    /// Behind a mutex for the sake of `Sync` alone: a handler may keep a reference to the request
    /// over an await.
    attached: Mutex<Attached>,
}

impl AcquireRequest {
    pub(crate) fn new(
        key: Key,
        label: Label,
        ttl: Duration,
        clock: Clock,
        wait: Option<Duration>,
    ) -> Self {
        Self {
            key,
            label,
            ttl,
            started: clock.stamp(),
            clock,
            wait,
            attached: Mutex::default(),
        }
    }

    /// The key of the lock.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The holder's name for people.
    #[must_use]
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// The TTL that the store is asked for.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The remaining wait budget, which this call shares with every handler, the local queue and
    /// the store. Zero if the caller does not wait.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let spent = self.spent();
        self.wait.unwrap_or_default().saturating_sub(spent)
    }

    /// Whether the caller waits for a busy lock.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.wait.is_some()
    }

    /// Leaves at most `remaining` of the wait budget. It never grows. A caller that does not wait
    /// has none.
    pub fn shorten(&mut self, remaining: Duration) {
        let spent = self.spent();
        self.wait = self
            .wait
            .map(|wait| wait.min(spent.saturating_add(remaining)));
    }

    /// Keeps `permit` until the hold of this call ends, for any reason; until the call ends, if it
    /// gets no hold. It may be dropped on any thread, after the lock has been released, newest
    /// first.
    pub fn attach(&self, permit: impl Any + Send) {
        self.attached.lock().add(permit);
    }

    /// The clock of the manager: wait by it, so that a manual clock drives the tests.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn spent(&self) -> Duration {
        self.clock.stamp().since(&self.started)
    }

    pub(crate) fn take_attached(&mut self) -> Attached {
        std::mem::take(self.attached.get_mut())
    }
}

impl fmt::Debug for AcquireRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireRequest")
            .field("key", &self.key)
            .field("label", &self.label)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("attached", &self.attached.lock().len())
            .finish_non_exhaustive()
    }
}

/// The end of one hold.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReleaseRequest {
    /// The key of the lock.
    pub key: Key,
    /// The holder's name for people.
    pub label: Label,
    /// The fencing token of the hold.
    pub token: FencingToken,
    /// Why the hold ends.
    pub reason: Ended,
    /// How long it was held, until its runs in progress had ended.
    pub held_for: Duration,
}
