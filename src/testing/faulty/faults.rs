//! [`Faults`]: how often each fault happens. [`Operation`]: the kinds of requests. [`Counts`]: what
//! happened.

use std::fmt;
use std::time::Duration;

use crate::model::error::Error;

/// A request to a store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Operation {
    /// [`acquire`](crate::store::Store::acquire).
    Acquire,
    /// [`renew`](crate::store::Store::renew). One batch is one request.
    Renew,
    /// [`release`](crate::store::Store::release).
    Release,
    /// [`withdraw`](crate::store::Store::withdraw).
    Withdraw,
    /// [`subscribe`](crate::store::Store::subscribe).
    Subscribe,
    /// [`inspect`](crate::store::Store::inspect).
    Inspect,
    /// [`list`](crate::store::Store::list).
    List,
    /// A request between the members of a quorum, beyond those of every store.
    Raise,
    /// [`downgrade`](crate::store::Store::downgrade).
    Downgrade,
    /// [`revoke`](crate::store::Store::revoke).
    Revoke,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 10] = [
        Self::Acquire,
        Self::Renew,
        Self::Release,
        Self::Withdraw,
        Self::Subscribe,
        Self::Inspect,
        Self::List,
        Self::Raise,
        Self::Downgrade,
        Self::Revoke,
    ];
}

/// The probability of each fault for each request, from 0 (never, the default) to 1 (always).
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Faults {
    /// The request is lost: the store never sees it, and the caller gets `InDoubt`.
    pub lost_before: f64,
    /// The answer is lost: the store executed the request, and the caller gets `InDoubt`.
    pub lost_after: f64,
    /// The request arrives twice. The caller gets the first answer.
    pub duplicated: f64,
    /// An acquire is late: the caller gets `InDoubt`, and the store sees the request right after
    /// the claim's withdrawal, or when the test calls [`deliver`](super::Faulty::deliver).
    pub late: f64,
    /// The request is delayed for up to [`delay`](Self::delay).
    pub delayed: f64,
    /// The longest delay.
    pub delay: Duration,
    /// The store restarts before the request arrives, with the hook of
    /// [`on_restart`](super::Faulty::on_restart).
    pub restarted: f64,
}

impl Faults {
    /// All faults that need no hook, each with this probability, and with this longest delay.
    #[must_use]
    pub fn each(probability: f64, delay: Duration) -> Self {
        Self {
            lost_before: probability,
            lost_after: probability,
            duplicated: probability,
            late: probability,
            delayed: probability,
            delay,
            restarted: 0.0,
        }
    }

    pub(super) fn validate(&self, can_restart: bool) -> Result<(), Error> {
        let Self {
            lost_before,
            lost_after,
            duplicated,
            late,
            delayed,
            delay: _,
            restarted,
        } = *self;
        let named = [
            ("lost_before", lost_before),
            ("lost_after", lost_after),
            ("duplicated", duplicated),
            ("late", late),
            ("delayed", delayed),
            ("restarted", restarted),
        ];
        for (name, probability) in named {
            if !(0.0..=1.0).contains(&probability) {
                return Err(Error::invalid(format!(
                    "a probability is out of range: {name}={probability}; set it from 0 to 1"
                )));
            }
        }
        if restarted > 0.0 && !can_restart {
            return Err(Error::invalid(format!(
                "this store has no restart hook: restarted={restarted}; make it with `on_restart`"
            )));
        }
        Ok(())
    }
}

/// What happened to the requests of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Requests that callers made.
    pub asked: u64,
    /// Requests that the store saw, including duplicates and late ones.
    pub delivered: u64,
    /// Requests that were lost, including blocked ones.
    pub lost_before: u64,
    /// Answers that were lost.
    pub lost_after: u64,
    /// Requests that arrived twice.
    pub duplicated: u64,
    /// Acquires that arrived after their withdrawal.
    pub late: u64,
    /// Requests that were delayed.
    pub delayed: u64,
    /// Requests that found the store stalled.
    pub stalled: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "asked={} delivered={} lost_before={} lost_after={} duplicated={} late={} delayed={} stalled={}",
            self.asked,
            self.delivered,
            self.lost_before,
            self.lost_after,
            self.duplicated,
            self.late,
            self.delayed,
            self.stalled
        )
    }
}
