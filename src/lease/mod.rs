//! [`Lease`]: our right to act, limited in time.
//!
//! A lease is one shared cell. Its manager moves the deadline forward on each proven heartbeat;
//! everybody else reads it. Nothing here waits for an event: whether the lease is live is one
//! comparison of a clock with a word. (C. Gray, D. Cheriton, "Leases: an efficient fault-tolerant
//! mechanism for distributed file cache consistency", 1989.)

mod atomics;
mod deadline;
mod error;
mod joint;
mod runs;
mod signal;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use deadline::{Renewal, Terms};
pub use error::LeaseError;
pub(crate) use signal::{InProgress, Running};

use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Reading, Stamp, fork};
use crate::model::error::Ended;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use runs::Gate;
use signal::Signals;
use words::{Over, Words};

/// Our right to act on a lock, until a deadline. Cloning is cheap; all clones are the same lease.
///
/// A lease is live while every clock that is read is *before* its deadline, strictly (I1). Once any
/// reader has seen it lapsed or lost, no reader sees it live again (I2).
///
/// A live lease does *not* promise that nobody else acts: the process may pause between the check
/// and the action. See [`FencingToken`] for what closes that gap.
#[derive(Clone)]
#[doc(alias = "validity")]
pub struct Lease {
    cell: Arc<Cell>,
}

struct Cell {
    hot: Hot,
    key: Key,
    token: FencingToken,
    is_fencing: bool,
    signals: Signals,
}

/// Every check and every renewal reads these fields, in this order; only renewals and the end write
/// them. All except the gate are in one cache line.
#[repr(C, align(64))]
struct Hot {
    words: Words,
    generation: u64,
    clock: Clock,
    /// The members of a joint lease; empty for every other lease.
    members: Box<[Lease]>,
    gate: Gate,
}

/// The input for a new lease.
#[derive(Debug)]
pub(crate) struct Granted<'a> {
    pub(crate) key: &'a Key,
    pub(crate) token: FencingToken,
    /// Whether the store promises that its tokens grow (I8).
    pub(crate) is_fencing: bool,
    /// Read before the request was sent (I1).
    pub(crate) sent_at: &'a Stamp,
    /// What the store granted, which may be less than requested.
    pub(crate) ttl: Duration,
}

impl Lease {
    pub(crate) fn new(clock: Clock, terms: Terms, granted: &Granted<'_>) -> Self {
        let words = Words::new(terms.deadlines(granted.sent_at, granted.ttl));
        let hot = Hot {
            words,
            generation: fork::generation(),
            clock,
            members: Box::default(),
            gate: Gate::open(),
        };
        Self {
            cell: Arc::new(Cell {
                hot,
                key: granted.key.clone(),
                token: granted.token,
                is_fencing: granted.is_fencing,
                signals: Signals::default(),
            }),
        }
    }

    /// The key of the lock.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.cell.key
    }

    /// The fencing token of the grant. It stays the same for the whole hold.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.cell.token
    }

    /// Whether the store promises that the token is larger than that of every earlier grant of this
    /// key (I8).
    #[must_use]
    pub fn is_fencing(&self) -> bool {
        self.cell.is_fencing
    }

    /// Whether the lease is live by the fast clock: one clock read and one load.
    ///
    /// Use it to stop useless work early. Work that must not happen without a lease belongs in a
    /// guarded run.
    #[inline]
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.look_fast().is_ok()
    }

    /// The remaining time of the lease by the strict clocks; zero if it is not live.
    ///
    /// It may grow between two calls (a renewal), and the lease may end before the caller reads the
    /// answer.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.look_strict().unwrap_or(Duration::ZERO)
    }

    /// The deadlines as they are, in nanoseconds of each clock, in the order of
    /// [`ClockKind::ALL`](crate::clock::ClockKind::ALL); all zero once a reader found the lease
    /// over, or it was ended (feature `testing`).
    ///
    /// It compares nothing and marks nothing, unlike every other look at a lease. A test that
    /// judges leases with it does not change what it judges. A joint lease has no deadlines of its
    /// own: look at its members.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn peek(&self) -> [u64; 3] {
        self.cell.hot.words.peek()
    }

    /// The remaining time of the lease by the strict clocks, if it is at least `needed`.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`] if the lease is not live, [`LeaseError::TooShort`] if the remaining
    /// time is shorter.
    #[inline]
    pub fn ensure(&self, needed: Duration) -> Result<Duration, LeaseError> {
        at_least(needed, self.look_strict()?)
    }

    /// Reads what the lock protects: returns the value of `read` only if the lease was live before
    /// it and is still live after it, by the strict clocks. So a value that was read under this
    /// lease is never served after the next holder may have changed it, however long the process
    /// was stopped in between. It costs two looks at the clocks and no request.
    ///
    /// A lease that is live after the read was live all the time, because an ended one never
    /// becomes live again. What the caller does with the value takes time too: a change that
    /// depends on it belongs in a guarded run.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use leasehold::{LockManager, store::MemoryStore};
    /// # async fn load_balance() -> u64 { 100 }
    /// # let locks = LockManager::new(MemoryStore::new()?)?;
    /// let guard = locks.lock("accounts/7").acquire().await?;
    /// let balance = guard.lease().read(load_balance).await?;
    /// # assert_eq!(balance, 100);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LeaseError::Lost`] if the lease was over: before, and `read` was not called, or after, and
    /// its value is dropped.
    ///
    /// # Cancel safety
    ///
    /// As `read`.
    pub async fn read<T>(&self, read: impl AsyncFnOnce() -> T) -> Result<T, LeaseError> {
        self.look_strict()?;
        let value = read().await;
        self.look_strict()?;
        Ok(value)
    }

    /// Why the lease ended; `None` until a reader has seen that it ended.
    #[must_use]
    pub fn lost_reason(&self) -> Option<Ended> {
        let of_members = || self.members().iter().find_map(Self::lost_reason);
        self.cell.signals.reason().or_else(of_members)
    }

    /// Completes when the lease has ended, with the reason.
    ///
    /// A convenience, and always late: on a busy machine it may complete long after the deadline.
    /// It never proves that a lease is live: use [`is_live`](Self::is_live) for that.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only observes.
    pub async fn lost(&self) -> Ended {
        if self.members().is_empty() {
            self.cell.signals.lost().await
        } else {
            self.member_lost().await
        }
    }

    /// A token that is cancelled when the lease has ended, for code that takes a token of
    /// [`tokio_util`]. Cancelling it does not end the lease.
    ///
    /// A convenience, as late as [`lost`](Self::lost): it never proves that a lease is live.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        // If the lease has lapsed and nobody has noticed yet, this call notices it.
        let _ = self.remaining();
        let (token, is_new) = self.cell.signals.token();
        if is_new {
            for member in self.members() {
                member.cell.signals.cancel_with(token.clone());
            }
        }
        token.child_token()
    }

    /// Whether renewals are failing while the lease is still live.
    #[must_use]
    pub fn is_at_risk(&self) -> bool {
        self.cell.signals.is_at_risk() || self.members().iter().any(Self::is_at_risk)
    }

    /// Completes when renewals have begun to fail, or the lease has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only observes.
    pub async fn at_risk(&self) {
        if self.members().is_empty() {
            self.cell.signals.at_risk().await;
        } else {
            self.member_at_risk().await;
        }
    }

    /// Whether a step or a commit under this lease is in doubt. If so, its hold is not released; it
    /// expires.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.cell.signals.is_in_doubt() || self.members().iter().any(Self::is_in_doubt)
    }

    /// A check by the fast clock.
    #[inline(always)]
    pub(crate) fn look_fast(&self) -> Result<Duration, LeaseError> {
        self.look(self.cell.hot.clock.fast())
            .map(Duration::from_nanos)
    }

    /// A check by both strict clocks: the smaller remaining time.
    #[inline(always)]
    pub(crate) fn look_strict(&self) -> Result<Duration, LeaseError> {
        let [boot, raw] = self.cell.hot.clock.strict();
        let left = self.look(boot)?.min(self.look(raw)?);
        Ok(Duration::from_nanos(left))
    }

    #[inline(always)]
    fn look(&self, reading: Reading) -> Result<u64, LeaseError> {
        let hot = &self.cell.hot;
        if fork::generation() != hot.generation {
            return Err(self.end(hot.words.revoke(), Ended::Forked));
        }
        match hot.words.look(reading.lane as usize, reading.nanos) {
            Ok(left) if hot.members.is_empty() => Ok(left),
            Ok(_) => self.look_at_members(reading),
            Err(ended) => Err(self.end(ended, Ended::Lapsed)),
        }
    }

    #[cold]
    fn end(&self, ended: Over, reason: Ended) -> LeaseError {
        LeaseError::Lost(self.cell.signals.ended(ended.first, reason))
    }

    /// Moves the deadline forward. An answer that arrives after the deadline is ignored, and the
    /// lease is lost.
    pub(crate) fn renew(&self, renewal: &Renewal) -> Result<(), LeaseError> {
        let hot = &self.cell.hot;
        if fork::generation() != hot.generation {
            return Err(self.end(hot.words.revoke(), Ended::Forked));
        }
        hot.words
            .renew(renewal.now, renewal.deadlines)
            .map_err(|ended| self.end(ended, Ended::Lapsed))
    }

    /// Ends the lease for good. Returns true to the one caller that ended it.
    pub(crate) fn revoke(&self, reason: Ended) -> bool {
        // Set first, so that a reader that finds the words lost also finds the reason.
        self.cell.signals.will_end(reason);
        let ended = self.cell.hot.words.revoke();
        self.cell.signals.ended(ended.first, reason);
        ended.first
    }

    /// Ends this lease and gives its deadlines to a new one with the same token, for the next
    /// holder in this process. The new lease is at risk if this one was. `None` if it had already
    /// ended.
    pub(crate) fn handoff(&self) -> Option<Self> {
        let hot = &self.cell.hot;
        let is_at_risk = self.is_at_risk();
        let (ended, deadlines) = hot.words.take();
        self.cell.signals.ended(ended.first, Ended::Released);
        let hot = Hot {
            words: Words::new(deadlines?),
            generation: hot.generation,
            clock: hot.clock.clone(),
            members: Box::default(),
            gate: Gate::open(),
        };
        let Cell {
            key,
            token,
            is_fencing,
            ..
        } = &*self.cell;
        let next = Self {
            cell: Arc::new(Cell {
                hot,
                key: key.clone(),
                token: *token,
                is_fencing: *is_fencing,
                signals: Signals::default(),
            }),
        };
        next.set_at_risk(is_at_risk);
        Some(next)
    }

    pub(crate) fn set_at_risk(&self, is_at_risk: bool) {
        self.cell.signals.set_at_risk(is_at_risk);
    }

    /// From now on this hold is never released or handed off (I5).
    pub(crate) fn mark_in_doubt(&self) {
        self.cell.signals.mark_in_doubt();
        self.members().iter().for_each(Self::mark_in_doubt);
    }

    /// A slot from which one clone of an executor begins runs.
    pub(crate) fn register(&self) -> Running {
        Running::new(self.clone())
    }

    /// No run begins and none commits from now on; runs in progress continue to their end.
    pub(crate) fn close(&self) {
        self.cell.hot.gate.close();
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        let hot = &self.cell.hot;
        hot.gate.is_closed() || hot.members.iter().any(Self::is_closed)
    }

    /// After [`close`](Self::close): whether no run is in progress.
    pub(crate) fn is_drained(&self) -> bool {
        self.cell.signals.is_drained()
    }

    /// After [`close`](Self::close): completes when no run is in progress.
    pub(crate) async fn drained(&self) {
        self.cell.signals.drained().await;
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.cell.hot.clock
    }
}

#[inline]
fn at_least(needed: Duration, remaining: Duration) -> Result<Duration, LeaseError> {
    if remaining >= needed {
        Ok(remaining)
    } else {
        Err(LeaseError::TooShort { remaining, needed })
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.cell.key)
            .field("token", &self.cell.token)
            .field("remaining", &self.remaining())
            .field("lost", &self.lost_reason())
            .finish_non_exhaustive()
    }
}
