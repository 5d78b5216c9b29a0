//! The own term of an election, and [`WhileLeader`]: work that is done while it lasts.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::lease::Lease;
use crate::model::error::Error;
use crate::model::shared_runtime::SharedRuntime;

/// What [`Election::state`](super::election::Election::state) shows of one leadership, until it is
/// dropped or its lease has ended.
#[derive(Debug)]
pub(super) struct OwnTerm {
    state: Arc<watch::Sender<Option<Lease>>>,
    lease: Lease,
}

impl OwnTerm {
    pub(super) fn begin(
        state: &Arc<watch::Sender<Option<Lease>>>,
        lease: &Lease,
        runtime: &SharedRuntime,
    ) -> Self {
        // A thread that has stalled since its grant may come after the next term of a clone.
        state.send_if_modified(|shown| {
            let is_live = !lease.remaining().is_zero();
            if is_live {
                *shown = Some(lease.clone());
            }
            is_live
        });
        let term = || Self {
            state: Arc::clone(state),
            lease: lease.clone(),
        };
        let until_lost = term();
        // Every lease ends, so the task does. It clears the state also where the runtime ends
        // first, and drops it.
        runtime.spawn(async move { until_lost.lease.lost().await });
        term()
    }
}

impl Drop for OwnTerm {
    fn drop(&mut self) {
        self.state.send_if_modified(|shown| {
            // A clone of the election may have begun the next term.
            let is_ours = |shown: &mut Lease| shown.token() == self.lease.token();
            shown.take_if(is_ours).is_some()
        });
    }
}

/// Work that is done while this process leads:
/// [`Election::while_leader`](super::election::Election::while_leader). It is a future.
#[must_use = "nothing happens until it is awaited"]
pub struct WhileLeader<F> {
    future: Pin<Box<F>>,
    orders: watch::Sender<Orders>,
}

/// What its caller wants of the work.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Orders {
    /// For how long its runs may go on once it is to stop.
    pub(super) drain: Duration,
    pub(super) stops: bool,
}

/// Completes when the work is to stop.
pub(super) async fn stopped(orders: &mut watch::Receiver<Orders>) {
    if orders.wait_for(|orders| orders.stops).await.is_err() {
        // Nobody is left who could stop it.
        std::future::pending().await
    }
}

impl<F, T> WhileLeader<F>
where
    F: Future<Output = Result<Option<T>, Error>>,
{
    pub(super) fn new(future: F, orders: watch::Sender<Orders>) -> Self {
        Self {
            future: Box::pin(future),
            orders,
        }
    }

    /// Lets the run in progress end when [`until`](Self::until) stops the work, or the office is
    /// passed on. The work goes on until it waits outside of a run, returns, or loses the lease,
    /// and for at most `limit`. Then it is dropped, and the office is resigned. Default 0: the work
    /// is dropped at once, and a run in progress is rolled back.
    ///
    /// Runs of every executor of the leadership count. Work that never waits between two runs must
    /// watch the token itself.
    pub fn drain(self, limit: Duration) -> Self {
        self.orders.send_modify(|orders| orders.drain = limit);
        self
    }

    /// Stops when the token is cancelled: the campaign is given up, or the work is dropped and the
    /// office is resigned, and then the result is `Ok(None)`. A successor need not wait for the
    /// TTL, unless a commit was on its way: then it is in doubt, and the TTL ends the term. With
    /// [`drain`](Self::drain) the commit ends first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use leasehold::{LockManager, store::MemoryStore};
    /// use tokio_util::sync::CancellationToken;
    ///
    /// # let locks = LockManager::new(MemoryStore::new()?)?;
    /// let election = locks.election("scheduler");
    /// let shutdown = CancellationToken::new();
    /// let work = async |_: &leasehold::election::Leadership| {
    ///     // As a signal would.
    ///     shutdown.cancel();
    ///     std::future::pending::<()>().await
    /// };
    /// let term = election.while_leader("host-a", work);
    /// let ended = term.until(shutdown.clone()).await?;
    /// assert!(ended.is_none());
    /// assert!(election.leader().await?.is_none(), "resigned");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`while_leader`](super::election::Election::while_leader).
    ///
    /// # Cancel safety
    ///
    /// As [`while_leader`](super::election::Election::while_leader).
    pub async fn until(self, token: CancellationToken) -> Result<Option<T>, Error> {
        let Self { future, orders } = self;
        // Moved, because a task that holds a reference to it is not `Send` enough to be spawned.
        let stop = move || orders.send_modify(|orders| orders.stops = true);
        stopped_by(token, future, stop).await
    }
}

/// Runs `future`, and calls `stop` when `token` is cancelled, so that the future ends in order.
pub(super) async fn stopped_by<F: Future>(
    token: CancellationToken,
    mut future: Pin<Box<F>>,
    stop: impl FnOnce(),
) -> F::Output {
    tokio::select! {
        biased;
        done = &mut future => return done,
        () = token.cancelled() => stop(),
    }
    future.await
}

impl<F, T> Future for WhileLeader<F>
where
    F: Future<Output = Result<Option<T>, Error>>,
{
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let done = std::task::ready!(self.future.as_mut().poll(cx));
        // Nobody else has the token that stops it.
        Poll::Ready(
            done.and_then(|value| value.ok_or_else(|| Error::closed("the work was stopped"))),
        )
    }
}

impl<F> fmt::Debug for WhileLeader<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WhileLeader")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::manager::LockManager;
    use crate::store::MemoryStore;

    #[tokio::test]
    async fn a_term_that_is_over_does_not_hide_the_next_one() {
        let clock = ManualClock::new();
        let builder = LockManager::builder(MemoryStore::with_clock(clock.clone()));
        let locks = builder.clock(clock.clone()).on_current_runtime();
        let locks = locks.build().unwrap();
        let lock = locks.lock("a");
        let first = lock.acquire().await.unwrap();
        // Its process was stopped.
        clock.advance(2 * locks.settings().ttl);
        let next = lock.acquire().await.unwrap();

        let (state, shown) = watch::channel(None);
        let state = Arc::new(state);
        let runtime = locks.handle.context().runtime();
        let _next = OwnTerm::begin(&state, next.lease(), runtime);
        let late = OwnTerm::begin(&state, first.lease(), runtime);
        let token = || shown.borrow().as_ref().map(Lease::token);
        assert_eq!(token(), Some(next.token()));
        drop(late);
        assert_eq!(token(), Some(next.token()));
    }
}
