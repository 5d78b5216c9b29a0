//! [`Wish`]: what a caller asks for.

use std::time::Duration;

use crate::fence::AnyFence;
use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::settings::Settings;
use crate::store::{
    Capability, FAIR_STORES, LockMode, READ_WRITE_STORES, RESTING_STORES, SHARING_STORES, Share,
};

/// A key, and how it is to be held.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) key: Key,
    pub(crate) times: HoldTimes,
    pub(crate) mode: LockMode,
    /// The part of the key, for a reader that takes one.
    pub(crate) share: Option<Share>,
    /// First come, first served over all processes.
    pub(crate) is_fair: bool,
    /// The holder's label.
    pub(crate) label: Label,
    pub(crate) fence: Option<AnyFence>,
    /// Whether the caller may get the hold of another local caller, with its token, and pass its
    /// own on, as far as the user said.
    pub(crate) may_hand_off: bool,
    /// Whether its caller is counted among those that wait already: it asks for several keys at
    /// once, and waits once.
    pub(crate) is_counted: bool,
    /// Whether its fence is raised once for each grant, however long its caller waits: the caller
    /// asks for it again itself.
    pub(crate) is_raised_once: bool,
}

/// How long a hold lasts. A handoff needs the same times on both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HoldTimes {
    pub(crate) ttl: Duration,
    /// Whether the store is asked for the TTL. Otherwise it has one for all locks.
    is_asked_for: bool,
    /// The part of the store's TTL that the lease does not use: it belongs to the next holder.
    pub(crate) lock_delay: Duration,
    /// The longest time that the hold is renewed for.
    pub(crate) max_hold: Option<Duration>,
    pub(crate) rest: Option<Rest>,
}

/// The rest of the key after a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// Until this has passed since the grant, once a caller got the guard.
    SinceGrant(Duration),
    /// For this long after the release, and only if the guard's caller reports its work as done.
    AfterWork(Duration),
}

impl Rest {
    pub(crate) fn span(self) -> Duration {
        match self {
            Self::SinceGrant(span) | Self::AfterWork(span) => span,
        }
    }

    /// What the user called it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SinceGrant(_) => "hold_at_least",
            Self::AfterWork(_) => "keep",
        }
    }

    /// What to do on a store that has no rests.
    fn without(self) -> &'static str {
        match self {
            Self::SinceGrant(_) => {
                "Leave out hold_at_least and keep the lock for that long, or use"
            }
            Self::AfterWork(_) => "A one-time job needs",
        }
    }
}

impl HoldTimes {
    fn of(settings: &Settings, capability: &Capability) -> Self {
        Self {
            ttl: settings.ttl,
            is_asked_for: capability.ttl_per_lock,
            lock_delay: settings.lock_delay,
            max_hold: settings.max_hold,
            rest: None,
        }
    }

    /// The part of the store's `ttl` that the lease may use. What was asked for limits it: an
    /// answer that is longer comes from a clock of the server, and the next renewal shortens it.
    /// Unless the store has one TTL for all, which nobody asks for.
    pub(super) fn leased(&self, ttl: Duration) -> Duration {
        let leased = ttl.saturating_sub(self.lock_delay);
        if self.is_asked_for {
            leased.min(self.ttl)
        } else {
            leased
        }
    }
}

impl Wish {
    /// The key under the manager's own settings and label.
    pub(crate) fn new(
        key: Key,
        settings: &Settings,
        capability: &Capability,
        label: &Label,
    ) -> Self {
        Self {
            key,
            times: HoldTimes::of(settings, capability),
            mode: LockMode::Exclusive,
            share: None,
            is_fair: false,
            label: label.clone(),
            fence: None,
            may_hand_off: true,
            is_counted: false,
            is_raised_once: false,
        }
    }

    /// Whether the grant may go from one local caller to the next. Two holders with one token would
    /// be one to a fence, and a rest is for everybody.
    pub(super) fn allows_handoff(&self) -> bool {
        self.may_hand_off && self.fence.is_none() && self.times.rest.is_none()
    }

    /// Whether each caller asks the store itself: because the store keeps the order, or because
    /// several may hold.
    pub(super) fn bypasses_queue(&self) -> bool {
        self.is_fair || self.mode != LockMode::Exclusive
    }

    /// Checks the request against what the store can do.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the store has no such lock.
    pub(super) fn ensure_supported(
        &self,
        store: &str,
        capability: &Capability,
    ) -> Result<(), Error> {
        let key = &self.key;
        if self.mode != LockMode::Exclusive && !capability.read_write {
            return Err(Error::unsupported(format!(
                "this store has no read and write locks: store={store} key={key}; use an exclusive lock, or a store whose capability says read_write: {READ_WRITE_STORES}"
            )));
        }
        if self.share.is_some() && !capability.shares {
            return Err(Error::unsupported(format!(
                "this store has no permits: store={store} key={key}; use a semaphore with slots, or a store whose capability says shares: {SHARING_STORES}"
            )));
        }
        if self.is_fair && !capability.is_fair() {
            return Err(Error::unsupported(format!(
                "this store keeps no queue: store={store} key={key}; leave out fair, or use a store whose capability names a queue: {FAIR_STORES}"
            )));
        }
        if let (Some(rest), false) = (self.times.rest, capability.rests) {
            return Err(Error::unsupported(format!(
                "this store cannot let a key rest after its release: store={store} key={key}; its record would end with a session or need a majority. {} a store whose capability says rests: {RESTING_STORES}",
                rest.without()
            )));
        }
        Ok(())
    }
}
