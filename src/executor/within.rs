//! [`within`]: a time limit that counts from when it was set.

use std::pin::pin;
use std::task::Poll;

use crate::clock::{Clock, Stamp};

/// Runs `future` until `not_after`; `None` if it had not completed by then.
///
/// The first poll may take any time (it is the user's code), so what is left for the rest is read after it.
pub(super) async fn within<F: Future>(
    clock: &Clock,
    not_after: Stamp,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut sleep = pin!(None);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if sleep.is_none() {
            let left = not_after.since(&clock.stamp());
            sleep.set(Some(clock.sleep(left)));
        }
        match sleep.as_mut().as_pin_mut() {
            Some(sleep) => sleep.poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}
