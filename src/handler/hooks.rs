//! [`Handler`]: the hooks, and the one place where a handler becomes an object.

use futures_util::future::BoxFuture;

use super::granted::AcquireResponse;
use super::next::{Next, NextRelease};
use super::request::{AcquireRequest, ReleaseRequest};
use crate::model::error::Error;

/// Wraps acquire and release. Renewals never pass through it.
///
/// Every hook has a default that passes the call on, so a handler implements only the hooks that it
/// needs.
///
/// # Contract
///
/// - Hooks do not block their thread: an acquire runs on the caller's task. What they await is
///   bounded; see *On error* of each hook for what happens when it is not.
/// - Hooks may be called from many tasks at once, and may be dropped at every await.
/// - What is taken at an acquire is tied to the request or the grant, never kept until a release:
///   an acquire whose caller went away has none.
pub trait Handler: Send + Sync + 'static {
    /// A short name for messages; the type's if it is not given.
    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Around an acquire.
    ///
    /// # Contract
    ///
    /// *When*: after the handlers in front have passed the call on, before the local queue and the
    /// store are asked. Once for each call.
    /// *Sees*: key, label, TTL, the remaining wait budget; behind [`Next::run`] the answer.
    /// *May*: refuse (answer an error or [`AcquireResponse::Busy`] without running `next`: nobody
    /// behind it is asked), delay, [`shorten`](AcquireRequest::shorten) the wait,
    /// [attach](AcquireRequest::attach) what is to live as long as the hold, refuse what was
    /// granted (it is released in the background). It cannot ask twice, since `next` is consumed:
    ///
    /// ```compile_fail,E0382
    /// # use leasehold::{Error, handler::{AcquireRequest, AcquireResponse, Next}};
    /// async fn acquire(
    ///     request: &mut AcquireRequest,
    ///     next: Next<'_>,
    /// ) -> Result<AcquireResponse, Error> {
    ///     if let AcquireResponse::Busy = next.run(request).await? {
    ///         return next.run(request).await;
    ///     }
    ///     Ok(AcquireResponse::Busy)
    /// }
    /// ```
    ///
    /// and it cannot make a grant of its own:
    ///
    /// ```compile_fail,E0451
    /// # use leasehold::{Lease, handler::{AcquireResponse, Granted}};
    /// fn forged(lease: Lease) -> AcquireResponse {
    ///     let attachments = Default::default();
    ///     AcquireResponse::Granted(Granted { lease, attachments })
    /// }
    /// ```
    ///
    /// *On error*: if it panics, or if the call is not answered within its wait budget and one
    /// `request_timeout`, the call fails with `Unavailable` and names it; if the manager is shut
    /// down meanwhile, with `Closed`. What the store granted is released.
    fn acquire(
        &self,
        request: &mut AcquireRequest,
        next: Next<'_>,
    ) -> impl Future<Output = Result<AcquireResponse, Error>> + Send {
        next.run(request)
    }

    /// Notifies of an acquire that failed at any point. Every handler of the chain is called, also
    /// one that the call never reached.
    ///
    /// # Contract
    ///
    /// *When*: once, after the call has come back with an error, panicked or run out of its time,
    /// before the caller gets the error. Not for a lock that was busy, and not if the caller went
    /// away.
    /// *Sees*: the request, and the error that the caller gets.
    /// *May*: count, log, free its own resources. It changes nothing.
    /// *On error*: a panic is logged; the other handlers are still called.
    fn acquire_failed(&self, request: &AcquireRequest, error: &Error) {
        let _ = (request, error);
    }

    /// Around the end of a hold.
    ///
    /// # Contract
    ///
    /// *When*: once for each hold that was granted, for whatever reason it ends
    /// ([`ReleaseRequest::reason`]), after its runs in progress have ended and before the lock is
    /// released or handed off. On the caller's task for an explicit release, and then it is dropped
    /// with the caller's future; else on a thread of the manager's blocking pool.
    /// *Sees*: key, label, token, reason, time held; behind [`NextRelease::run`] how the release
    /// went.
    /// *May*: do something before and after. It cannot keep or change the release: dropping `next`
    /// leaves out the handlers behind it, and the lock is released all the same. It cannot release
    /// twice, since `next` is consumed:
    ///
    /// ```compile_fail,E0382
    /// # use leasehold::handler::NextRelease;
    /// async fn release(next: NextRelease<'_>) {
    ///     let _ = next.run().await;
    ///     let _ = next.run().await;
    /// }
    /// ```
    ///
    /// *On error*: if it panics, or holds the release up for longer than `request_timeout`, the
    /// lock is released without it; so is it cut off when it takes longer than that afterwards.
    fn release(
        &self,
        request: &ReleaseRequest,
        next: NextRelease<'_>,
    ) -> impl Future<Output = ()> + Send {
        let _ = request;
        async move {
            let _ = next.run().await;
        }
    }

    /// Notifies of a handler that failed at the end of a hold. Every handler of the chain is
    /// called, also one that was never reached.
    ///
    /// # Contract
    ///
    /// *When*: once, after a handler panicked or was cut off, or after the release was not answered
    /// by the store.
    /// *Sees*: the request, and the result.
    /// *May*: count, log, free its own resources. It changes nothing.
    /// *On error*: a panic is logged; the other handlers are still called.
    fn release_failed(&self, request: &ReleaseRequest, error: &Error) {
        let _ = (request, error);
    }
}

/// [`Handler`] with its futures boxed; see there for the contract.
pub(super) trait ErasedHandler: Send + Sync {
    fn name(&self) -> &'static str;
    fn acquire<'a>(
        &'a self,
        request: &'a mut AcquireRequest,
        next: Next<'a>,
    ) -> BoxFuture<'a, Result<AcquireResponse, Error>>;
    fn acquire_failed(&self, request: &AcquireRequest, error: &Error);
    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
        next: NextRelease<'a>,
    ) -> BoxFuture<'a, ()>;
    fn release_failed(&self, request: &ReleaseRequest, error: &Error);
}

impl<H: Handler> ErasedHandler for H {
    fn name(&self) -> &'static str {
        Handler::name(self)
    }

    fn acquire<'a>(
        &'a self,
        request: &'a mut AcquireRequest,
        next: Next<'a>,
    ) -> BoxFuture<'a, Result<AcquireResponse, Error>> {
        Box::pin(Handler::acquire(self, request, next))
    }

    fn acquire_failed(&self, request: &AcquireRequest, error: &Error) {
        Handler::acquire_failed(self, request, error);
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
        next: NextRelease<'a>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(Handler::release(self, request, next))
    }

    fn release_failed(&self, request: &ReleaseRequest, error: &Error) {
        Handler::release_failed(self, request, error);
    }
}
