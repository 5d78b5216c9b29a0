//! [`AcquireResponse`]: the answer that returns through the chain.

use std::any::Any;
use std::sync::Arc;

use super::attachments::{Attached, Attachments};
use crate::lease::Lease;
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// The answer to an acquire, on its way back through the chain.
#[derive(Debug)]
#[must_use = "a grant that a handler drops is released"]
pub enum AcquireResponse {
    /// The lock is held. A handler that answers something else in its place refuses the acquire:
    /// the lock is released.
    Granted(Granted),
    /// Somebody else holds it, and the wait budget is spent.
    Busy,
}

/// A grant as handlers see it. Only the store can make one.
#[derive(Debug)]
pub struct Granted {
    pub(super) lease: Lease,
    pub(super) attachments: Arc<Attachments>,
}

impl Granted {
    pub(crate) fn new(lease: Lease, attachments: Arc<Attachments>) -> Self {
        Self { lease, attachments }
    }

    /// The lease: deadline, remaining time, token, signals.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The key of the lock.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.lease.key()
    }

    /// The fencing token of the grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.lease.token()
    }

    /// Keeps `permit` until the hold ends, for whatever reason: release, drop, loss, panic,
    /// shutdown, handoff. It is dropped on any thread, after the lock has been released, newest
    /// first; at once if the hold has ended already.
    pub fn attach(&self, permit: impl Any + Send) {
        let mut attached = Attached::default();
        attached.add(permit);
        self.attachments.put(attached);
    }
}
