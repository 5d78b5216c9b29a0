//! [`Sightings`]: which version of each key this client has seen, and since when.

use std::collections::HashMap;
use std::time::Duration;

use super::record::{Record, State};
use crate::clock::{ClockKind, Stamp};
use crate::model::holder::OwnerToken;
use crate::model::key::Key;
use crate::model::room::make_room;
use crate::store::{Claim, LockInfo, LockMode};

/// A record may be forgotten once it was not seen to change for so many of its TTLs, and so long:
/// who asks now and then observes it all the same.
const KEPT_TTLS: u32 = 16;
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// For this part of a holder's TTL what a watch has shown is believed. A live holder writes sooner;
/// a watch that was cut in silence shows nothing any more.
const BELIEVED: u32 = 2;

/// A version of a key's record, and since when it is known to be the version.
#[derive(Clone, Debug)]
pub(super) struct Seen<V> {
    pub(super) record: Record,
    pub(super) version: V,
    /// Read after the answer that first showed the version. So whoever wrote it sent it before.
    since: Stamp,
    /// The last claim that a load has refused.
    pub(super) refused: Option<OwnerToken>,
}

impl<V> Seen<V> {
    /// How long this version keeps others out. By the clock of ours that has gone the least since
    /// the version was first seen: the one that counts suspend, or the one that is not slewed.
    pub(super) fn remaining(&self, now: &Stamp) -> Duration {
        let gone = [ClockKind::Boot, ClockKind::Raw]
            .map(|lane| now.on(lane).saturating_sub(self.since.on(lane)));
        let least = gone.into_iter().min().unwrap_or_default();
        match self.record.state {
            State::Free => Duration::ZERO,
            State::Held | State::Barred => {
                (self.record.ttl).saturating_sub(Duration::from_nanos(least))
            }
        }
    }

    /// Whether nobody holds the key, or the holder's lease is over.
    pub(super) fn is_open(&self, now: &Stamp) -> bool {
        self.remaining(now).is_zero()
    }

    /// Whether this claim holds.
    pub(super) fn is_of(&self, claim: &Claim) -> bool {
        self.record.is_of(claim)
    }

    /// Describes the key; `None` if it is free.
    pub(super) fn info(&self, key: &Key, now: &Stamp) -> Option<LockInfo> {
        let remaining = self.remaining(now);
        if remaining.is_zero() {
            return None;
        }
        let mut info = LockInfo::of(key.clone());
        info.remaining = Some(remaining);
        if self.record.state == State::Barred {
            info.holders = 0;
            return Some(info);
        }
        info.label.clone_from(&self.record.label);
        info.labels.extend(self.record.label.clone());
        info.token = self.record.token.try_into().ok();
        info.mode = Some(LockMode::Exclusive);
        Some(info)
    }
}

/// What a client has seen, by key.
#[derive(Debug)]
pub(super) struct Sightings<V>(HashMap<Key, Seen<V>>);

impl<V> Default for Sightings<V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<V: Clone + PartialEq> Sightings<V> {
    pub(super) fn get(&self, key: &Key) -> Option<&Seen<V>> {
        self.0.get(key)
    }

    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Notes what an answer showed; `now` was read after the answer. If it is the version that was
    /// seen before, its time goes on.
    pub(super) fn see(&mut self, key: &Key, record: Record, version: V, now: Stamp) -> Seen<V> {
        let seen = self.judge(key, record, version, now);
        make_room(&mut self.0, |seen| {
            let kept = seen.record.ttl.saturating_mul(KEPT_TTLS).max(KEPT);
            let is_recent = now.since(&seen.since) < kept;
            is_recent && seen.record.state != State::Free
        });
        self.0.insert(key.clone(), seen.clone());
        seen
    }

    /// The same, without a note.
    pub(super) fn judge(&self, key: &Key, record: Record, version: V, now: Stamp) -> Seen<V> {
        match self.0.get(key) {
            Some(seen) if seen.version == version => seen.clone(),
            _ => Seen {
                record,
                version,
                since: now,
                refused: self.0.get(key).and_then(|seen| seen.refused),
            },
        }
    }

    /// Notes that a load has refused this claim.
    pub(super) fn refuse(&mut self, claim: &Claim) {
        if let Some(seen) = self.0.get_mut(&claim.key) {
            seen.refused = Some(claim.owner);
        }
    }

    /// Notes what a watch showed, unless something later is known, or it has shown nothing for half
    /// of the TTL.
    pub(super) fn follow(
        &mut self,
        key: &Key,
        (record, version, at): (Record, V, Stamp),
        now: &Stamp,
    ) -> Option<Seen<V>> {
        let seen = self.0.get(key)?;
        if seen.version != version && at.since(&seen.since).is_zero() {
            return None;
        }
        if record.state != State::Free && now.since(&at) >= record.ttl / BELIEVED {
            return None;
        }
        Some(self.see(key, record, version, at))
    }
}
