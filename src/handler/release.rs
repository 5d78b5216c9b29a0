//! A release through the chain.
//!
//! The chain *wraps* the release and does not carry it out: the step itself runs next to the chain,
//! when the innermost handler has asked for it, or when the chain has ended, panicked or taken too
//! long. So no handler can keep a lock.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, select};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::chain::{Chain, did_not_answer, drop_cut_off, panicked};
use super::next::{Depth, NextRelease};
use super::request::ReleaseRequest;
use super::step::ReleaseStep;
use super::user_threads::UserThreads;
use crate::clock::Clock;
use crate::model::caught::Caught;
use crate::store::Released;

/// How a release passes through the chain.
#[derive(Debug)]
pub(crate) struct Around<'a> {
    pub(crate) clock: &'a Clock,
    /// How long the handlers may take before the release, and again after it.
    pub(crate) limit: Duration,
    /// Where the handlers run if not on the caller's task: nothing of theirs may hold up the
    /// manager's thread.
    pub(crate) user_threads: Option<&'a UserThreads>,
}

impl Chain {
    /// Puts `request` through the chain and runs the `step` in the middle of it. Returns the result
    /// of the step.
    pub(crate) async fn release(
        &self,
        request: ReleaseRequest,
        around: Around<'_>,
        step: impl Future<Output = Released>,
    ) -> Released {
        let Around {
            clock,
            limit,
            user_threads,
        } = around;
        let (answer, answered) = watch::channel(None);
        let (go, stop) = (CancellationToken::new(), CancellationToken::new());
        let chain = self.clone().pass(
            request,
            ReleaseStep {
                go: go.clone(),
                answer: answered,
            },
            stop.clone(),
            limit,
        );
        let mut chain: BoxFuture<'_, ()> = match user_threads {
            None => Box::pin(chain),
            Some(user_threads) => Box::pin(user_threads.drive(chain).map(drop)),
        };
        let gone_on = select(Box::pin(go.cancelled()), &mut chain);
        let is_over = match clock.timeout(limit, gone_on).await {
            Some(Either::Left(_)) => false,
            Some(Either::Right(_)) => true,
            None => {
                stop.cancel();
                false
            }
        };
        let released = step.await;
        answer.send_replace(Some(released.clone()));
        if !is_over && clock.timeout(limit, &mut chain).await.is_none() {
            stop.cancel();
            // On the caller's task one more poll ends it; elsewhere a handler that blocks is left
            // behind.
            clock.timeout(Duration::ZERO, chain).await;
        }
        released
    }

    /// The handlers' part, until it is stopped.
    async fn pass(
        self,
        request: ReleaseRequest,
        step: ReleaseStep,
        stop: CancellationToken,
        limit: Duration,
    ) {
        let depth = Depth::default();
        let next = NextRelease {
            handlers: &self.handlers,
            reached: 0,
            request: &request,
            step: &step,
            depth: &depth,
        };
        let passed = AssertUnwindSafe(next.run()).catch_unwind();
        let failure = match select(Box::pin(passed), Box::pin(stop.cancelled())).await {
            Either::Left((Ok(Released::Unknown(error)), _)) => Some(error),
            Either::Left((Ok(_), _)) => None,
            Either::Left((Err(payload), _)) => {
                Caught::by(payload);
                Some(panicked(depth.name(&self.handlers)))
            }
            Either::Right(((), cut_off)) => {
                let error = did_not_answer(depth.name(&self.handlers), limit);
                drop_cut_off(cut_off);
                Some(error)
            }
        };
        if let Some(error) = failure {
            tracing::debug!(target: "leasehold::handler", key = %request.key, token = %request.token, %error, "a release did not go well");
            self.notify_each(|handler| handler.release_failed(&request, &error));
        }
    }
}
