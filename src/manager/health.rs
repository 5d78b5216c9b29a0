//! [`Health`] and [`Held`]: the state of a manager, for a probe, a page or a log.

use std::time::Duration;

use super::lock_manager::LockManager;
use crate::model::key::Key;
use crate::model::token::FencingToken;

/// A lock that this manager holds.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Held {
    /// Its key.
    pub key: Key,
    /// The fencing token of its grant.
    pub token: FencingToken,
    /// What is left of its lease.
    pub remaining: Duration,
    /// Whether its renewals are failing.
    pub is_at_risk: bool,
}

/// The state of a manager, as its last requests showed it: reading it asks the store nothing.
///
/// For a readiness probe: [`is_store_reachable`](Self::is_store_reachable) is not `Some(false)`,
/// and [`not_ready_for`](Self::not_ready_for) is `None`. Do not restart a process because of
/// either: the store is the cause, and a restart loses the holds that it still has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Health {
    /// How many locks it holds.
    pub held: usize,
    /// How many of them are at risk: their renewals are failing, and they are lost at their
    /// deadline unless one succeeds.
    pub at_risk: usize,
    /// Whether the store answered the last acquire or renewal; `None` if there was none yet. A
    /// manager that holds nothing and acquires nothing does not notice that its store is gone: see
    /// [`last_answer`](Self::last_answer).
    pub is_store_reachable: Option<bool>,
    /// How long ago the store answered an acquire or proved a renewal last; `None` if it never did.
    pub last_answer: Option<Duration>,
    /// For how long the store grants nothing yet, as far as it has said so to a caller; `None` if
    /// it grants.
    pub not_ready_for: Option<Duration>,
    /// How late its thread came to its last timer. A long lag is the sign of a starved machine.
    pub timer_lag: Duration,
    /// The longest such lag since the manager was built.
    pub worst_timer_lag: Duration,
}

impl LockManager {
    /// The locks that this manager holds, in the order of their keys.
    #[must_use]
    pub fn held(&self) -> Vec<Held> {
        let leases: Vec<_> = {
            let pages = self.handle.context().holds.lock();
            pages.holds().map(|hold| hold.lease.clone()).collect()
        };
        let mut held: Vec<_> = leases
            .iter()
            .map(|lease| Held {
                key: lease.key().clone(),
                token: lease.token(),
                remaining: lease.remaining(),
                is_at_risk: lease.is_at_risk(),
            })
            .collect();
        held.sort_by(|a, b| a.key.cmp(&b.key));
        held
    }

    /// The state of the manager. It takes time in proportion to the number of holds.
    #[must_use]
    pub fn health(&self) -> Health {
        let context = self.handle.context();
        let now = context.clock.stamp();
        let holds = &context.holds;
        let (held, at_risk) = {
            let pages = holds.lock();
            let at_risk = pages.holds().filter(|hold| hold.lease.is_at_risk());
            (pages.engine.len(), at_risk.count())
        };
        Health {
            held,
            at_risk,
            is_store_reachable: context.contact.is_reachable(),
            last_answer: context.contact.last_answer(&now),
            not_ready_for: context.readiness.left(&now),
            timer_lag: holds.timer_lag.last(),
            worst_timer_lag: holds.timer_lag.worst(),
        }
    }
}
