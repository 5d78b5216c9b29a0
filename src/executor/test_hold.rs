//! [`TestHold`]: a lease that a test controls.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::handle::Executor;
use crate::clock::Clock;
use crate::lease::{Granted, Lease, Renewal, Terms};
use crate::model::commit::HeldKey;
use crate::model::error::Ended;
use crate::model::key::Key;
use crate::model::run_event::RunEvent;
use crate::model::run_sink::{Debt, Intent, RunSink};
use crate::model::token::FencingToken;
use crate::settings::Settings;

/// A hold without a manager or a store: the test renews it, ends it, and sees what its runs leave
/// behind (feature `testing`).
#[derive(Debug)]
pub struct TestHold {
    lease: Lease,
    clock: Clock,
    terms: Terms,
    commit_budget: Duration,
    left: Arc<Left>,
}

#[derive(Default)]
struct Left {
    intents: Mutex<Vec<Intent>>,
    debts: Mutex<Vec<Debt>>,
    compensations: Mutex<Vec<BoxFuture<'static, Vec<Debt>>>>,
    watch: Option<Watch>,
}

/// Sees the runs of a hold go on.
pub(super) type Watch = Box<dyn Fn(WatchEvent<'_>) + Send + Sync>;

/// What a [`Watch`] sees.
pub(super) enum WatchEvent<'a> {
    Ran(RunEvent),
    /// A step is about to be sent.
    Sent(&'a str),
}

impl TestHold {
    /// A hold that was granted now, for `ttl`, of which the lease may use what the settings say
    /// (I1).
    pub fn new(
        clock: impl Into<Clock>,
        settings: &Settings,
        key: Key,
        token: FencingToken,
        ttl: Duration,
    ) -> Self {
        Self::granted(clock.into(), settings, &key, token, ttl, true)
    }

    /// The same, for a store that does not promise that its tokens grow.
    pub fn without_fencing(
        clock: impl Into<Clock>,
        settings: &Settings,
        key: Key,
        token: FencingToken,
        ttl: Duration,
    ) -> Self {
        Self::granted(clock.into(), settings, &key, token, ttl, false)
    }

    fn granted(
        clock: Clock,
        settings: &Settings,
        key: &Key,
        token: FencingToken,
        ttl: Duration,
        is_fencing: bool,
    ) -> Self {
        let granted = Granted {
            key,
            token,
            is_fencing,
            sent_at: &clock.stamp(),
            ttl,
        };
        Self {
            lease: Lease::new(clock.clone(), settings.terms(), &granted),
            clock,
            terms: settings.terms(),
            commit_budget: settings.commit_budget,
            left: Arc::default(),
        }
    }

    /// The same hold, before its first executor is made; `watch` sees its runs.
    pub(super) fn watched(self, watch: Watch) -> Self {
        let left = Left {
            watch: Some(watch),
            ..Left::default()
        };
        Self {
            left: Arc::new(left),
            ..self
        }
    }

    /// The lease.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// A new executor under the lease.
    #[must_use]
    pub fn executor(&self) -> Executor {
        let left = Arc::clone(&self.left);
        Executor::new(&self.lease, left, self.commit_budget)
    }

    /// Renews for `ttl` from now. False if the lease was over.
    pub fn renew(&self, ttl: Duration) -> bool {
        let now = self.clock.stamp();
        let renewal = Renewal::new(self.terms, &now, &now, ttl);
        self.lease.renew(&renewal).is_ok()
    }

    /// Ends the lease. True for the one caller that ended it.
    pub fn revoke(&self, reason: Ended) -> bool {
        self.lease.revoke(reason)
    }

    /// The first step of the end of a hold: no run begins and none commits from now on.
    pub fn close(&self) {
        self.lease.close();
    }

    /// The second step: completes when no run is in progress.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn drained(&self) {
        self.lease.drained().await;
    }

    /// The reported intents, in their order.
    #[must_use]
    pub fn intents(&self) -> Vec<Intent> {
        self.left.intents.lock().clone()
    }

    /// The reported debts, in their order, with those of
    /// [`run_compensations`](Self::run_compensations).
    #[must_use]
    pub fn debts(&self) -> Vec<Debt> {
        self.left.debts.lock().clone()
    }

    /// Awaits the compensations of dropped runs, one after the other. Returns the number of these
    /// runs.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, the compensations that have not ended become debts in the log.
    pub async fn run_compensations(&self) -> usize {
        let work = std::mem::take(&mut *self.left.compensations.lock());
        let count = work.len();
        for compensation in work {
            let debts = compensation.await;
            self.left.debts.lock().extend(debts);
        }
        count
    }
}

impl RunSink for Left {
    fn intent(&self, intent: &Intent) {
        self.intents.lock().push(intent.clone());
        if let Some(watch) = &self.watch {
            watch(WatchEvent::Sent(&intent.intent));
        }
    }

    fn debt(&self, debt: Debt) {
        self.debts.lock().push(debt);
    }

    fn compensate(&self, work: BoxFuture<'static, Vec<Debt>>) {
        self.compensations.lock().push(work);
    }

    fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    fn ran(&self, _locks: &[HeldKey], _run: u64, event: RunEvent) {
        if let Some(watch) = &self.watch {
            watch(WatchEvent::Ran(event));
        }
    }
}

impl std::fmt::Debug for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Left")
            .field("intents", &self.intents)
            .field("debts", &self.debts)
            .finish_non_exhaustive()
    }
}
