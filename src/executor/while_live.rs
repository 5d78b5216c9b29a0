//! [`while_live`]: polls a future only while the lease is live.

use std::task::Poll;

use crate::lease::Lease;

/// The output of `future`, or `None` as soon as the lease is over before a poll.
///
/// A task may be polled long after the wake-up that it waited for, when its runtime was busy or the
/// process was stopped. What the future would send then could reach the resource during the next
/// holder's work.
pub(crate) async fn while_live<F: Future>(lease: &Lease, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        if lease.look_strict().is_err() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}
