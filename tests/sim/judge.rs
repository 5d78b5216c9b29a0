//! What is judged at the moment at which it happens: the begin of a run, of a commit, of a
//! compensation; a release.

use std::time::Duration;

use leasehold::Ended;
use leasehold::store::{Claim, Grant};

use crate::leases::{Given, Mode};
use crate::state::State;

/// O7: a hold with an effect in doubt is never given back.
pub(crate) fn given_back(state: &mut State, node: usize, claim: &Claim) {
    let owner = *claim.owner.as_bytes();
    let in_doubt = state.leases.all.iter().find(|known| {
        known.node == node
            && known.is_in_doubt
            && known.key == claim.key
            && state.truth.is_of(&owner, &known.key, known.token)
    });
    if let Some(known) = in_doubt {
        let what = format!(
            "{} under {} is given back with an effect in doubt",
            known.key, known.token
        );
        state.fail("O7 doubt", || what);
    }
}

/// O7: what a hold with a lock delay was in when its lease ran out stays in the store for that
/// delay. Only who gave its lease back while it was live may release it.
pub(crate) fn released(state: &mut State, node: usize, claim: &Claim) {
    if state.setup.settings.lock_delay.is_zero() {
        return;
    }
    let owner = *claim.owner.as_bytes();
    let is_clean = |why| matches!(why, Ended::Released | Ended::Dropped | Ended::Closed);
    let lapsed = state.leases.all.iter().find(|known| {
        known.node == node
            && known.key == claim.key
            && state.truth.is_of(&owner, &known.key, known.token)
            && known.lease.lost_reason().is_some_and(|why| !is_clean(why))
    });
    if let Some(known) = lapsed {
        let what = format!(
            "{} under {} is released before its lock delay, and its lease ended as {:?}",
            known.key,
            known.token,
            known.lease.lost_reason()
        );
        state.fail("O7 lock delay", || what);
    }
}

/// I9: a writer asks to become a reader only while its lease is live. From then on other readers
/// may be granted.
pub(crate) fn downgrades(state: &mut State, node: usize, grant: &Grant) {
    let (key, token) = (&grant.claim.key, grant.token.number());
    let mut all = state.leases.all.iter_mut().rev();
    let known = all.find(|known| known.node == node && known.key == *key && known.token == token);
    let Some(known) = known else { return };
    known.mode = Mode::Reader;
    if known.left().is_none() {
        let what = format!(
            "a downgrade of {} under {} was asked for after the lease",
            known.key, known.token
        );
        state.fail("O7 order", || what);
    }
}

impl State {
    /// O11: a release with a limit waits for runs no longer than that. Then there is one request,
    /// and what handlers may take before and after it. The pauses of its process are not its own.
    pub(crate) fn released_within(&mut self, node: usize, limit: Duration, begun: u64) {
        let request = self.setup.settings.request_timeout;
        let requests = if self.setup.handlers { 3 } else { 1 };
        // A clock may be slow, and a timer is rounded up.
        let most = (limit + request * requests).mul_f64(1.001) + Duration::from_millis(1);
        let took = Duration::from_nanos(self.awake(node) - begun);
        if took > most {
            self.fail("O11 liveness", || {
                format!("a release within {limit:?} took {took:?}")
            });
        }
    }

    /// O9: a guard is handed out, and a hold entered again, with enough left to be of use.
    pub(crate) fn handed_out(&mut self, number: usize) {
        let least = self.setup.settings.min_usable.as_nanos() as u64;
        let known = &self.leases.all[number];
        let left = known.left();
        if left.is_none_or(|left| left < least) {
            let what = format!(
                "a guard of {} under {} was handed out with {left:?} left",
                known.key, known.token
            );
            self.fail("O9 usable", || what);
        }
    }

    /// O7: no run begins under a hold that was given back.
    pub(crate) fn run_begins(&mut self, leases: &[usize]) {
        self.records_act("enter", leases);
        for &number in leases {
            let known = &self.leases.all[number];
            if let Some(given) = known.given {
                let what = format!(
                    "a run began under {} {} after its guard was {given:?}",
                    known.key, known.token
                );
                self.fail("O7 gate", || what);
            }
            let place = (
                self.leases.all[number].node,
                self.leases.all[number].key.clone(),
            );
            let last = self.leases.last_run.entry(place).or_default();
            *last = (*last).max(number);
        }
    }

    /// O5 and O7: a commit begins only under a lease that is live with the budget left, and not
    /// given back.
    pub(crate) fn commit_begins(&mut self, leases: &[usize]) {
        self.records_act("commit", leases);
        let budget = self.setup.settings.commit_budget.as_nanos() as u64;
        for &number in leases {
            let known = &self.leases.all[number];
            let (key, token) = (known.key.clone(), known.token);
            if known.left().is_none_or(|left| left < budget) {
                let left = known.left();
                self.fail("O5 check", || {
                    format!("a commit of {key} under {token} began with {left:?} left")
                });
            } else if known.given.is_some() {
                self.fail("O7 gate", || {
                    format!("a commit of {key} under {token} began after its guard was gone")
                });
            } else if let Some(at) = self.truth.given_back_at(&key, token) {
                self.fail("O7 order", || {
                    format!(
                        "a commit of {key} under {token} began after its release was sent at {at}"
                    )
                });
            }
        }
    }

    /// O6: a compensation without a fence is sent only under a live lease.
    pub(crate) fn compensation_begins(&mut self, leases: &[usize]) {
        self.records_act("check", leases);
        for &number in leases {
            let known = &self.leases.all[number];
            if known.left().is_none() {
                let what = format!(
                    "a compensation under {} {} was sent after the lease",
                    known.key, known.token
                );
                self.fail("O6 undo", || what);
            }
        }
    }

    /// O6: what a former holder undoes in its process comes before the next holder of this process
    /// begins.
    pub(crate) fn undone_locally(&mut self, leases: &[usize]) {
        for &number in leases {
            let known = &self.leases.all[number];
            let last = self.leases.last_run.get(&(known.node, known.key.clone()));
            if last.is_some_and(|&last| last > number) {
                let what = format!(
                    "a run under {} {} was undone after the next holder of this process had begun",
                    known.key, known.token
                );
                self.fail("O6 turns", || what);
            }
        }
    }

    pub(crate) fn give(&mut self, leases: &[usize], given: Given) {
        for &number in leases {
            self.leases.all[number].given.get_or_insert(given);
        }
        self.records_close(leases, given);
    }
}
