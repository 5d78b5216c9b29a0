//! [`Resource`]: what the locks protect, at the far end of the same network. It keeps a log of
//! everything that it did.
//!
//! A fence in it is the library's own [`FenceGate`]; the log shows whether that refused what it
//! must refuse.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt;
use leasehold::fence::{Fence, FenceGate, Refusal, Resolve};
use leasehold::run::{Doubt, HeldKey, Resolution, TxnId};
use leasehold::{Error, FencingToken, Key};

use crate::net::{Net, Op, To};
use crate::state::State;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    /// The commit of a run.
    Committed(TxnId),
    /// A step of a run, by its number in the world.
    Stepped(u64),
    Undone(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) deed: Deed,
    /// Whether the resource compared the tokens.
    pub(crate) is_fenced: bool,
    /// Whether the store kept every one of these locks at that instant.
    pub(crate) is_covered: bool,
}

#[derive(Default)]
pub(crate) struct Resource {
    gate: FenceGate,
    pub(crate) entries: Vec<Entry>,
    /// The largest token that was raised or used for each key, kept apart from the gate.
    largest: BTreeMap<Key, u64>,
    pub(crate) commits: BTreeMap<TxnId, u32>,
    /// What was said of commits in doubt. It is final.
    resolved: BTreeMap<TxnId, Resolution>,
    pub(crate) steps: BTreeSet<u64>,
    pub(crate) undone: BTreeSet<u64>,
    pub(crate) refused: u64,
}

impl State {
    /// Does one thing at the resource. A refusal means that nothing was changed.
    pub(crate) fn at_resource(
        &mut self,
        locks: &[HeldKey],
        deed: Deed,
        is_fenced: bool,
    ) -> Result<(), Refusal> {
        if is_fenced {
            let gate = &self.resource.gate;
            let admitted = match &deed {
                Deed::Committed(txn) => gate.admit_commit(locks, *txn, || ()),
                Deed::Stepped(_) | Deed::Undone(_) => gate.admit_all(locks, || ()),
            };
            if let Err(refusal) = admitted {
                self.resource.refused += 1;
                return Err(refusal);
            }
            self.judge_fence(locks, &deed);
        }
        if let Deed::Committed(txn) = &deed
            && let Some(Resolution::NotApplied) = self.resource.resolved.get(txn)
        {
            self.fail("O4 outcomes", || {
                format!("a commit under {locks:?} landed after it was resolved as not applied")
            });
        }
        self.records_deed(locks, &deed, is_fenced);
        let is_covered = (locks.iter()).all(|lock| self.kept(&lock.key, lock.token.number()) > 0);
        let resource = &mut self.resource;
        match &deed {
            Deed::Committed(txn) => *resource.commits.entry(*txn).or_default() += 1,
            Deed::Stepped(step) => drop(resource.steps.insert(*step)),
            Deed::Undone(step) => drop(resource.undone.insert(*step)),
        }
        resource.entries.push(Entry {
            deed,
            is_fenced,
            is_covered,
        });
        Ok(())
    }

    /// O4: what is said of a commit in doubt is so, and stays so.
    pub(crate) fn resolve(&mut self, doubt: &Doubt) {
        let answer = self.resource.gate.resolve(doubt).now_or_never();
        let Some(Ok(resolution)) = answer else {
            return self.fail("O4 outcomes", || {
                let locks = &doubt.locks;
                format!("what became of a commit under {locks:?} is not known: {answer:?}")
            });
        };
        self.coverage.sometimes(match resolution {
            Resolution::Applied => "doubt resolved as applied",
            Resolution::NotApplied => "doubt resolved as not applied",
        });
        let is_applied = self.resource.commits.contains_key(&doubt.txn_id);
        if is_applied != (resolution == Resolution::Applied) {
            self.fail("O4 outcomes", || {
                let locks = &doubt.locks;
                format!(
                    "a commit under {locks:?} was resolved as {resolution:?}; applied: {is_applied}"
                )
            });
        }
        self.resource.resolved.insert(doubt.txn_id, resolution);
        self.records_resolution(
            doubt.txn_id,
            &doubt.locks,
            resolution == Resolution::Applied,
        );
    }

    /// O3: behind a fence nothing lands under a token that is smaller than one that was seen.
    fn judge_fence(&mut self, locks: &[HeldKey], deed: &Deed) {
        for lock in locks {
            let token = lock.token.number();
            let largest = self.resource.largest.entry(lock.key.clone()).or_default();
            let seen = *largest;
            *largest = seen.max(token);
            if token < seen {
                // Without its name, which has the time of the machine.
                let what = match deed {
                    Deed::Committed(_) => "a commit".to_owned(),
                    other => format!("{other:?}"),
                };
                self.fail("O3 fence order", || {
                    format!("{what} landed on {} under {token} after {seen}", lock.key)
                });
            }
        }
    }
}

/// The fence of the resource, as locks raise it.
#[derive(Clone)]
pub(crate) struct SimFence(pub(crate) Net);

impl std::fmt::Debug for SimFence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimFence")
    }
}

impl Fence for SimFence {
    async fn raise(&self, key: &Key, token: FencingToken) -> Result<(), Error> {
        let mut raising = Raising::new(&self.0, key, token);
        let key = key.clone();
        let asked = self.0.ask(To::Resource, Op::Fence, move |state| {
            state.raise_fence(&key, token)
        });
        let raised = asked.await;
        raising.done = Some(raised.is_ok());
        Ok(raised?)
    }
}

/// A raise, recorded when it is answered or given up.
struct Raising<'a> {
    net: &'a Net,
    key: &'a Key,
    token: FencingToken,
    from: u64,
    done: Option<bool>,
}

impl<'a> Raising<'a> {
    fn new(net: &'a Net, key: &'a Key, token: FencingToken) -> Self {
        let from = net.shared.lock().time_at(net.node);
        Self {
            net,
            key,
            token,
            from,
            done: None,
        }
    }
}

impl Drop for Raising<'_> {
    fn drop(&mut self) {
        // The world itself drops what a dead process waited for.
        if let Some(mut state) = self.net.shared.try_lock() {
            let token = self.token.number();
            state.records_raise(self.net.node, self.key, token, self.from, self.done);
        }
    }
}

impl State {
    /// Work begins behind a fence, which was raised: nothing of a former owner lands from now on.
    pub(crate) fn begins_behind_fence(&mut self, key: &Key, token: FencingToken) {
        let largest = self.resource.largest.entry(key.clone()).or_default();
        *largest = (*largest).max(token.number());
    }

    fn raise_fence(&mut self, key: &Key, token: FencingToken) -> Result<(), Refusal> {
        self.resource.gate.raise_to(key, token)?;
        let largest = self.resource.largest.entry(key.clone()).or_default();
        let seen = *largest;
        *largest = seen.max(token.number());
        if token.number() < seen {
            self.fail("O3 fence order", || {
                format!("{key} was raised to {token} after {seen}")
            });
        }
        Ok(())
    }
}
