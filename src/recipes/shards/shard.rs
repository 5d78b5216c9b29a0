//! [`Shard`]: a shard that this process owns, and the work that is done with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::plan::WorkEnd;
use crate::manager::LockGuard;
use crate::model::caught::Caught;

/// A shard that this process owns: a [`LockGuard`] with an index.
///
/// The lock is released when the work has ended or was dropped, wherever the shard is then.
#[derive(Debug)]
#[must_use = "it is what the work is done with"]
pub struct Shard {
    index: u32,
    guard: Arc<LockGuard>,
    leaving: CancellationToken,
}

impl Shard {
    /// Its number, from 0. What it stands for is up to the caller: a range of keys, a partition, a
    /// tenant.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Completes when the work is to end: another member waits for the shard, this member leaves,
    /// or the lease has ended. Then the work saves what it has to and returns, within the [drain
    /// limit](super::Shards::drain_limit).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn leaving(&self) {
        tokio::select! {
            biased;
            () = self.leaving.cancelled() => {}
            _ = self.guard.lost() => {}
        }
    }

    /// Whether the work is to end, as [`leaving`](Self::leaving).
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_cancelled() || !self.guard.lease().is_live()
    }

    /// Waits for `future`, or until the work is to end: then the result is `None`, and the future
    /// is dropped.
    ///
    /// # Cancel safety
    ///
    /// As `future`.
    pub async fn until_leaving<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.leaving() => None,
            value = future => Some(value),
        }
    }
}

impl Deref for Shard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}

/// The shards that this process owns, as others may watch them.
#[derive(Debug, Default)]
pub(super) struct OwnShards {
    pub(super) shown: watch::Sender<BTreeSet<u32>>,
    /// How many show each: two members of one process for a moment, if the first notices late that
    /// its lease is over.
    counts: Mutex<BTreeMap<u32, usize>>,
}

/// Shows a shard as owned until it is dropped.
struct Shown {
    own: Arc<OwnShards>,
    index: u32,
}

impl Shown {
    fn new(own: Arc<OwnShards>, index: u32) -> Self {
        {
            let mut counts = own.counts.lock();
            *counts.entry(index).or_default() += 1;
            own.shown.send_modify(|shown| {
                shown.insert(index);
            });
        }
        Self { own, index }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let mut counts = self.own.counts.lock();
        let count = counts.entry(self.index).or_default();
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&self.index);
            self.own.shown.send_modify(|shown| {
                shown.remove(&self.index);
            });
        }
    }
}

/// Ends the hold when it is dropped, also where the work has given its [`Shard`] to somebody else.
struct Tied(Arc<LockGuard>);

impl Drop for Tied {
    fn drop(&mut self) {
        self.0.end_in_background();
    }
}

/// A shard that was granted, and how it is worked on.
pub(super) struct Tenure {
    pub(super) index: u32,
    pub(super) guard: LockGuard,
    pub(super) leaving: CancellationToken,
    pub(super) drain_limit: Duration,
    pub(super) own: Arc<OwnShards>,
}

impl Tenure {
    /// Does the work until it ends, the lease is lost, or the drain limit is over. Then it releases
    /// the shard.
    pub(super) async fn run<F, E>(self, work: impl FnOnce(Shard) -> F) -> WorkEnd
    where
        F: Future<Output = Result<(), E>>,
        E: Display,
    {
        let tied = Tied(Arc::new(self.guard));
        let guard = &tied.0;
        let shown = Shown::new(self.own, self.index);
        let shard = Shard {
            index: self.index,
            guard: Arc::clone(guard),
            leaving: self.leaving.clone(),
        };
        let clock = guard.lease().clock().clone();
        let asked_at = OnceLock::new();
        let is_late = async {
            self.leaving.cancelled().await;
            asked_at.get_or_init(|| clock.stamp());
            clock.sleep(self.drain_limit).await;
        };
        // The work is dropped in here too, and may panic in both.
        let worked = AssertUnwindSafe(async {
            let mut work = pin!(async { work(shard).await });
            tokio::select! {
                biased;
                _ = guard.lost() => Worked::Lost,
                done = &mut work => Worked::Done(done.map_err(|error| error.to_string())),
                () = is_late => Worked::Late,
            }
        });
        let worked = worked.catch_unwind().await;
        drop(shown);
        let key = guard.key();
        let limit = self.drain_limit;
        let has_finished = match worked {
            Ok(Worked::Done(Ok(()))) => true,
            Ok(Worked::Done(Err(error))) => {
                tracing::warn!(target: "leasehold::shards", %key, %error, "the work of a shard failed");
                false
            }
            Ok(Worked::Lost) => false,
            Ok(Worked::Late) => {
                tracing::warn!(target: "leasehold::shards", %key, ?limit, "the work of a shard did not end within its drain limit, and was dropped");
                false
            }
            Err(payload) => {
                // Its text may hold a secret.
                drop(Caught::by(payload));
                tracing::warn!(target: "leasehold::shards", %key, "the work of a shard panicked");
                false
            }
        };
        // Work that returned because its lease is over has not finished.
        let how = match has_finished && guard.lease().is_live() {
            _ if self.leaving.is_cancelled() => WorkEnd::Left,
            true => WorkEnd::Finished,
            false => WorkEnd::Failed,
        };
        // A run that the work left behind has what is left of the limit.
        let used = asked_at.get().map(|at| clock.stamp().since(at));
        let left = limit.saturating_sub(used.unwrap_or_default());
        let _ = guard.end_within(left).await;
        how
    }
}

/// What became of the work.
enum Worked {
    Done(Result<(), String>),
    Lost,
    Late,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_shown_until_the_last_that_owned_it_has_ended() {
        let own = Arc::new(OwnShards::default());
        let watched = own.shown.subscribe();
        let late = Shown::new(Arc::clone(&own), 7);
        let next = Shown::new(Arc::clone(&own), 7);
        drop(late);
        assert!(watched.borrow().contains(&7));
        drop(next);
        assert!(watched.borrow().is_empty() && own.counts.lock().is_empty());
    }
}
