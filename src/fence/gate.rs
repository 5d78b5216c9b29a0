//! [`FenceGate`]: a fence in front of a service of your own.

mod names;
mod policy;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Fence, Resolve, newer_holder, too_old};
use crate::clock::wall_millis;
use crate::model::commit::{Applied, CommitPermit, EffectError, HeldKey, is_of};
use crate::model::doubt::{Doubt, Resolution};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;
use names::{Absent, CommitRecord, Names};
pub use policy::Policy;
use policy::Rule;
pub use refusal::Refusal;

/// Remembers the largest token of each key, and refuses every change under a smaller one.
///
/// Put one in front of what your service changes. Cloning is cheap; all clones are the same gate.
/// It keeps a few dozen bytes for each key and for each of its last commits until the key is
/// [forgotten](Self::forget), and all of it ends with the process. A service that restarts must
/// store the tokens with its data, and [raise](Self::raise_to) the gate to them at its start.
///
/// A client whose commit the service did not answer lets the service [resolve](Resolve) it: the
/// gate knows the names of the last [`NAMES`](Self::NAMES) commits of each key.
///
/// ```
/// use leasehold::fence::{FenceGate, Refusal};
/// use leasehold::{FencingToken, Key};
///
/// let gate = FenceGate::new();
/// let key: Key = "accounts/7".parse()?;
/// let (old, new) = (FencingToken::new(1)?, FencingToken::new(2)?);
///
/// gate.raise_to(&key, new)?;
/// let refused = gate.admit(&key, old, || "written");
/// assert_eq!(refused, Err(Refusal::Fenced { seen: new }));
/// assert_eq!(gate.admit(&key, new, || "written"), Ok("written"));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FenceGate {
    rule: Rule,
    names: usize,
    /// A gate of another process may have admitted commits of runs that began before.
    began: TxnId,
    keys: Arc<Mutex<HashMap<Key, Arc<Mutex<Seen>>>>>,
}

#[derive(Debug, Default)]
struct Seen {
    token: Option<FencingToken>,
    /// The commits of runs of which this is the first key.
    names: Names,
}

impl FenceGate {
    /// About 400 days of a counter that grows with the microseconds, as the tokens of our stores
    /// do.
    pub const MAX_JUMP: u64 = 1 << 45;
    /// How many names of commits a gate keeps for each key, unless [`keep_names`](Self::keep_names)
    /// says otherwise.
    pub const NAMES: usize = 1 << 16;

    /// Makes a gate that admits the largest token and larger ones.
    #[must_use]
    pub fn new() -> Self {
        Self::with_policy(Policy::Monotone)
    }

    /// Makes a gate with a policy.
    #[must_use]
    pub fn with_policy(policy: Policy) -> Self {
        Self {
            rule: Rule {
                policy,
                max_jump: Self::MAX_JUMP,
            },
            names: Self::NAMES,
            began: TxnId::first_at(wall_millis()),
            keys: Arc::default(),
        }
    }

    /// Sets how much larger than the largest token of a key a new one may be. Default
    /// [`MAX_JUMP`](Self::MAX_JUMP). It limits for how long one forged or damaged token can keep
    /// valid holders out.
    #[must_use]
    pub fn max_jump(mut self, max_jump: u64) -> Self {
        self.rule.max_jump = max_jump;
        self
    }

    /// Sets how many names of commits are kept for each key; at least one. Default
    /// [`NAMES`](Self::NAMES). A commit can be resolved until so many newer ones were admitted, and
    /// a run that began before them is refused.
    #[must_use]
    pub fn keep_names(mut self, names: usize) -> Self {
        self.names = names.max(1);
        self
    }

    /// Makes one change under a token. While `change` runs, the gate raises no fence of this key
    /// and admits no other change.
    ///
    /// # Errors
    ///
    /// The refusal; `change` was not called.
    ///
    /// # Panics
    ///
    /// If `change` panics. `change` must not use the gate for the same key: it would wait for
    /// itself.
    pub fn admit<T>(
        &self,
        key: &Key,
        token: FencingToken,
        change: impl FnOnce() -> T,
    ) -> Result<T, Refusal> {
        let lock = HeldKey {
            key: key.clone(),
            token,
        };
        self.admit_all(&[lock], change)
    }

    /// Makes one change under the tokens of several keys: it compares all tokens and then runs
    /// `change`, in one step. While `change` runs, the gate raises no fence of these keys and
    /// admits no other change.
    ///
    /// # Errors
    ///
    /// The first refusal, also if `locks` is empty; `change` was not called, and no fence was
    /// raised.
    ///
    /// # Panics
    ///
    /// If `change` panics. `change` must not use the gate for one of these keys: it would wait for
    /// itself.
    pub fn admit_all<T>(
        &self,
        locks: &[HeldKey],
        change: impl FnOnce() -> T,
    ) -> Result<T, Refusal> {
        self.admit_named(locks, None, change)
    }

    /// Makes the change of a commit, once: for a service that receives the locks and the name of a
    /// run from its client. A client that gets no answer lets the service [resolve](Resolve) the
    /// commit, and a copy that arrives later is refused.
    ///
    /// # Errors
    ///
    /// As [`admit_all`](Self::admit_all), if the gate knows the name, and if `locks` are not all
    /// locks of the run that it names; `change` was not called. [`Refusal::Again`] does not mean
    /// that the commit is not applied: an earlier copy of it was admitted.
    ///
    /// # Panics
    ///
    /// As [`admit_all`](Self::admit_all). It cannot be resolved then what became of the change.
    pub fn admit_commit<T>(
        &self,
        locks: &[HeldKey],
        txn_id: TxnId,
        change: impl FnOnce() -> T,
    ) -> Result<T, Refusal> {
        self.admit_named(locks, Some(txn_id), change)
    }

    fn admit_named<T>(
        &self,
        locks: &[HeldKey],
        name: Option<TxnId>,
        change: impl FnOnce() -> T,
    ) -> Result<T, Refusal> {
        if locks.is_empty() || name.is_some_and(|name| !is_of(name, locks)) {
            return Err(Refusal::OtherLocks);
        }
        // Locked in one order everywhere, so that no two changes wait for each other. Of a key that
        // is named twice, the smallest token counts.
        let mut locks: Vec<&HeldKey> = locks.iter().collect();
        locks.sort_unstable();
        locks.dedup_by(|later, first| later.key == first.key);
        let fences: Vec<_> = locks.iter().map(|lock| self.seen(&lock.key)).collect();
        let mut fences: Vec<_> = fences.iter().map(|fence| fence.lock()).collect();
        // Checked first: this commit may have been admitted, and the fence raised since.
        if let (Some(name), Some(first)) = (name, fences.first()) {
            match first.names.find(name) {
                Ok(CommitRecord::Void) => return Err(Refusal::Void),
                Ok(CommitRecord::Begun | CommitRecord::Applied) => return Err(Refusal::Again),
                Err(Absent::Forgotten) => return Err(Refusal::Forgotten),
                Err(Absent::New) => {}
            }
        }
        for (seen, lock) in fences.iter().zip(&locks) {
            self.rule.admits(lock.token, seen.token)?;
        }
        for (seen, lock) in fences.iter_mut().zip(&locks) {
            seen.token = Some(lock.token);
        }
        let mut record = |record| {
            if let (Some(name), Some(first)) = (name, fences.first_mut()) {
                first.names.set(name, record, self.names);
            }
        };
        record(CommitRecord::Begun);
        let changed = change();
        record(CommitRecord::Applied);
        Ok(changed)
    }

    /// Makes one change as the commit of a guarded run:
    /// `tx.commit_with(|permit| gate.apply(&permit, || ...))`. It compares the tokens of all locks
    /// of the run.
    ///
    /// # Errors
    ///
    /// [`EffectError::Fenced`] or [`NotApplied`](EffectError::NotApplied): nothing was changed.
    /// [`EffectError::Unknown`] if the permit was used before, or may have been: a run has one
    /// commit, and the gate may have [forgotten](Refusal::Forgotten) its name.
    pub fn apply(
        &self,
        permit: &CommitPermit,
        change: impl FnOnce(),
    ) -> Result<Applied, EffectError> {
        let used = permit.begin()?;
        permit.sends();
        let answer = match self.admit_commit(permit.locks(), permit.txn_id, change) {
            Ok(()) => Ok(Applied::fenced()),
            Err(Refusal::Fenced { seen }) => Err(EffectError::Fenced { seen: Some(seen) }),
            Err(again @ (Refusal::Again | Refusal::Forgotten)) => Err(EffectError::unknown(again)),
            Err(refusal) => Err(EffectError::not_applied(refusal)),
        };
        permit.answered(&answer);
        used.end();
        answer
    }

    /// Refuses every smaller token of the key from now on.
    ///
    /// # Errors
    ///
    /// The refusal; the fence is unchanged.
    pub fn raise_to(&self, key: &Key, token: FencingToken) -> Result<(), Refusal> {
        let fence = self.seen(key);
        let mut seen = fence.lock();
        self.rule.raises(token, seen.token)?;
        seen.token = Some(token);
        Ok(())
    }

    /// The largest token that was seen for a key.
    #[must_use]
    pub fn largest(&self, key: &Key) -> Option<FencingToken> {
        let seen = self.keys.lock().get(key).cloned();
        seen.and_then(|seen| seen.lock().token)
    }

    /// Forgets a key and the names of its commits. Sound only if it has no holder any more, never
    /// will have one with an older token, and none of its commits is to be resolved.
    pub fn forget(&self, key: &Key) {
        self.keys.lock().remove(key);
    }

    fn seen(&self, key: &Key) -> Arc<Mutex<Seen>> {
        let mut keys = self.keys.lock();
        if let Some(seen) = keys.get(key) {
            return Arc::clone(seen);
        }
        Arc::clone(keys.entry(key.clone()).or_default())
    }
}

impl Default for FenceGate {
    fn default() -> Self {
        Self::new()
    }
}

impl Fence for FenceGate {
    async fn raise(&self, key: &Key, token: FencingToken) -> Result<(), Error> {
        match self.raise_to(key, token) {
            Err(Refusal::Fenced { seen }) => Err(newer_holder(key, token, seen, || {
                "FenceGate::forget".to_owned()
            })),
            raised => Ok(raised?),
        }
    }
}

/// Answers for the commits that this gate admitted. A process that starts again begins with a new
/// gate, which knows nothing of the commits of the one before: they are
/// [`Invalid`](crate::ErrorKind::Invalid).
///
/// It knows those by the time in their names, which is that of the client's wall clock. If that
/// clock is ahead of this machine's by more than the restart took, a commit that the gate before
/// admitted is reported as not applied. Where the service keeps its data and clocks may differ by
/// so much, look for the name in the data instead.
impl Resolve for FenceGate {
    async fn resolve(&self, doubt: &Doubt) -> Result<Resolution, Error> {
        let fence = self.seen(&doubt.first()?.key);
        let mut seen = fence.lock();
        match seen.names.find(doubt.txn_id) {
            Ok(CommitRecord::Applied) => Ok(Resolution::Applied),
            Ok(CommitRecord::Void) => Ok(Resolution::NotApplied),
            Ok(CommitRecord::Begun) => Err(Error::corrupt(format!(
                "the change of the commit panicked: txn_id={}; check the data",
                doubt.txn_id
            ))),
            Err(Absent::New) if doubt.txn_id >= self.began => {
                seen.names.set(doubt.txn_id, CommitRecord::Void, self.names);
                Ok(Resolution::NotApplied)
            }
            Err(Absent::New | Absent::Forgotten) => Err(too_old(doubt)),
        }
    }
}
