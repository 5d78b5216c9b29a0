//! [`Line`]: who holds one key, who waits for it, and what was taken away.

use std::time::Duration;

use super::row::{Entry, Row};
use crate::model::holder::OwnerToken;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::{Claim, LockInfo, Waiter};

/// One key. Every time in it is a time since the zero of the store's clock.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Line {
    pub(crate) holders: Row<Held>,
    pub(crate) places: Row<Place>,
    /// A hold was revoked, and its lease may last until then.
    pub(crate) barred: Option<Duration>,
    /// The key rests after a release, until then.
    pub(crate) rests: Option<Duration>,
    /// Claims whose hold was revoked, and until when each is remembered: it is not granted again.
    pub(crate) revoked: Vec<(OwnerToken, Duration)>,
}

/// A hold.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Held {
    pub(crate) claim: Claim,
    pub(crate) token: FencingToken,
    /// When it was granted.
    pub(crate) since: Duration,
    pub(crate) ends: Duration,
    pub(crate) origin: Origin,
    /// Granted by a handover, and not asked for since.
    pub(crate) is_handover: bool,
}

/// A place in the queue: a short lease that its waiter renews with each request.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Place {
    pub(crate) claim: Claim,
    pub(crate) ends: Duration,
    pub(crate) origin: Origin,
}

/// Which state a line is in: it differs after every change.
#[cfg(target_os = "linux")]
#[derive(PartialEq, Debug)]
pub(crate) struct Version {
    rows: [u64; 2],
    untils: [Option<Duration>; 2],
    revoked: Vec<(OwnerToken, Duration)>,
}

/// The process that made a claim, for stores that several processes share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Origin {
    pub(crate) process: u64,
    /// The hold and the place end when the process does.
    pub(crate) ends_with_process: bool,
}

impl Line {
    /// A store's time in the unit of its tokens.
    pub(crate) fn micros(time: Duration) -> u64 {
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn version(&self) -> Version {
        Version {
            rows: [self.holders.changes(), self.places.changes()],
            untils: [self.barred, self.rests],
            revoked: self.revoked.clone(),
        }
    }

    /// Removes expired holds, places and barriers: all dead waiters at once, not one after the
    /// other.
    pub(super) fn forget_what_is_over(&mut self, now: Duration) {
        self.holders.forget_what_is_over(now);
        self.places.forget_what_is_over(now);
        self.barred = self.barred.filter(|until| *until > now);
        self.rests = self.rests.filter(|until| *until > now);
        self.revoked.retain(|(_, until)| *until > now);
    }

    /// Removes the holds and places of processes that have ended. True if there was one.
    #[cfg(target_os = "linux")]
    pub(crate) fn forget_dead(&mut self, is_dead: impl Fn(u64) -> bool) -> bool {
        let lives = |origin: &Origin| !(origin.ends_with_process && is_dead(origin.process));
        if self.origins().all(lives) {
            return false;
        }
        self.holders.retain(|held| lives(&held.origin));
        self.places.retain(|place| lives(&place.origin));
        true
    }

    /// Where the claims come from that hold or wait.
    #[cfg(target_os = "linux")]
    fn origins(&self) -> impl Iterator<Item = &Origin> {
        let holders = self.holders.iter().map(|held| &held.origin);
        holders.chain(self.places.iter().map(|place| &place.origin))
    }

    /// Whether nothing in it has effect any more.
    pub(crate) fn is_idle(&self, now: Duration) -> bool {
        let others = (self.barred.into_iter())
            .chain(self.rests)
            .chain(self.revoked.iter().map(|(_, until)| *until));
        self.holders.is_over(now)
            && self.places.is_over(now)
            && others.max().unwrap_or_default() <= now
    }

    /// The live hold of a claim.
    pub(crate) fn held_by(&mut self, owner: &OwnerToken, now: Duration) -> Option<&mut Held> {
        self.holders.get_mut(owner).filter(|held| held.ends > now)
    }

    /// How long nobody can enter because of a revocation.
    pub(super) fn barred_for(&self, now: Duration) -> Duration {
        self.barred
            .map_or(Duration::ZERO, |until| until.saturating_sub(now))
    }

    /// Describes the key; `None` if it is free.
    pub(crate) fn info(&self, key: &Key, now: Duration) -> Option<LockInfo> {
        let live: Vec<&Held> = (self.holders.iter())
            .filter(|held| held.ends > now)
            .collect();
        let left = |until: Duration| until.saturating_sub(now);
        let (barred_for, rests_for) = (
            self.barred_for(now),
            self.rests.map_or(Duration::ZERO, left),
        );
        let shut_for = barred_for.max(rests_for);
        let last = live.last();
        if last.is_none() && shut_for.is_zero() {
            return None;
        }
        let waiting = self.places.iter().filter(|place| place.ends > now);
        let mut by_token = live.clone();
        by_token.sort_by_key(|held| held.token);
        let labels = by_token.iter().map(|held| held.claim.label.clone());
        let waiters = waiting.clone().map(|place| {
            let Claim { label, mode, .. } = &place.claim;
            Waiter::new(Some(label.clone()), Some(*mode))
        });
        Some(LockInfo {
            label: last.map(|held| held.claim.label.clone()),
            token: last.map(|held| held.token),
            remaining: Some(last.map_or(shut_for, |held| held.remaining(now))),
            held_for: last.map(|held| now.saturating_sub(held.since)),
            mode: last.map(|held| held.claim.mode),
            holders: live.len(),
            is_resting: last.is_none() && !rests_for.is_zero(),
            queue: Some(waiting.count()),
            labels: labels.take(LockInfo::MAX_LABELS).collect(),
            waiters: waiters.take(LockInfo::MAX_WAITERS).collect(),
            ..LockInfo::of(key.clone())
        })
    }
}

impl Held {
    pub(super) fn remaining(&self, now: Duration) -> Duration {
        self.ends.saturating_sub(now)
    }
}

macro_rules! entries {
    ($($entry:ty),*) => {$(
        impl Entry for $entry {
            fn claim(&self) -> &Claim {
                &self.claim
            }

            fn ends(&self) -> Duration {
                self.ends
            }

            fn set_ends(&mut self, ends: Duration) {
                self.ends = ends;
            }
        }
    )*};
}

entries!(Held, Place);
