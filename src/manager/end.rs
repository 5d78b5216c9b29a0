//! The one end of a hold, in order (I5): close, drain, compensate, then lost, then release or
//! handoff.
//!
//! Release, loss, drop and shutdown all come here.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::context::ManagerContext;
use super::handoff::hand_off;
use super::hold::Hold;
use super::message::Message;
use super::store_requests::{release_once, withdraw_unanswered};
use crate::handler::{Around, Event, ReleaseRequest};
use crate::model::error::Ended;
use crate::store::{Released, Withheld};

/// Ends `hold`. It ends once; a later caller gets the same answer.
///
/// # Cancel safety
///
/// Cancel safe: a later call continues with the first step that is not done.
pub(super) async fn end_hold(
    context: &Arc<ManagerContext>,
    hold: &Arc<Hold>,
    cause: Ended,
) -> Released {
    end_hold_within(context, hold, cause, Duration::MAX).await
}

/// As [`end_hold`], but waits for runs and compensations in progress for at most `limit`. After
/// that the hold is withheld: its TTL ends it.
pub(super) async fn end_hold_within(
    context: &Arc<ManagerContext>,
    hold: &Arc<Hold>,
    cause: Ended,
    limit: Duration,
) -> Released {
    let ended = &hold.progress.results().ended;
    // As a wait for the lock would: callers that repeat a hold that never waits let others run now
    // and then.
    tokio::task::coop::consume_budget().await;
    let mut ended = match ended.try_lock() {
        Ok(ended) => ended,
        Err(_) => {
            // Somebody ends it already, and may wait for longer than this caller does. On the heap,
            // because it is rare.
            if !Box::pin(comes_to_rest(context, hold, limit)).await {
                hold.lease.revoke(Ended::Released);
                let why = Withheld::RunInProgress;
                return Released::Withheld { why };
            }
            ended.lock().await
        }
    };
    if let Some(released) = &*ended {
        return released.clone();
    }
    let ending = Ending {
        context,
        hold,
        cause,
        limit,
    };
    let released = ending.run().await;
    hold.end_span(|| ending.release_request().reason);
    context.holds.forget(hold);
    pass_turn(context, hold);
    if cause == Ended::Released {
        hold.attachments().end();
    } else {
        hold.attachments().end_on(&context.user_threads);
    }
    *ended = Some(released.clone());
    released
}

/// Waits until nothing runs under the hold. False if a run or a compensation is still in progress
/// when its time is over.
pub(super) async fn is_at_rest(context: &ManagerContext, hold: &Hold) -> bool {
    // Mostly nothing runs, and then no clock is read.
    let has_ended = async {
        hold.lease.drained().await;
        hold.detached.done().await;
    };
    if has_ended.now_or_never().is_some() {
        return true;
    }
    drained(context, hold).await && compensated(context, hold).await
}

/// Whether nothing runs under the hold within the limit; true if there is no limit.
async fn comes_to_rest(context: &ManagerContext, hold: &Hold, limit: Duration) -> bool {
    let at_rest = pin!(is_at_rest(context, hold));
    limit == Duration::MAX || context.clock.timeout(limit, at_rest).await == Some(true)
}

/// Waits until no run is in progress, or the lease is over. True if none is.
async fn drained(context: &ManagerContext, hold: &Hold) -> bool {
    loop {
        let left = hold.lease.remaining();
        // `timeout` polls the drain first, so a lease that is over is drained too if nothing runs.
        let drained = context.clock.timeout(left, hold.lease.drained()).await;
        if drained.is_some() {
            return true;
        }
        if hold.lease.remaining().is_zero() {
            return false;
        }
    }
}

/// Waits until every compensation has ended. True if all have.
async fn compensated(context: &ManagerContext, hold: &Hold) -> bool {
    let limit = context.settings.max_ttl;
    let done = context.clock.timeout(limit, hold.detached.done()).await;
    done.is_some()
}

/// Lets the next local caller ask the store, once no run is in progress under `hold`, which is
/// closed. A run that ends late undoes its work in this process, and must not undo the work of the
/// next holder with it.
pub(super) fn pass_turn(context: &ManagerContext, hold: &Hold) {
    let is_drained = hold.lease.is_drained();
    if let Some(turn) = hold.take_turn().filter(|_| !is_drained) {
        turn.drains(&hold.lease);
        let message = Message::PassTurn(hold.lease.clone(), turn);
        context.inbox.send(message);
    }
}

/// Reports a loss to the observers, once for each hold.
pub(super) fn report_lost(context: &ManagerContext, hold: &Hold, reason: Ended) {
    let observers = &context.hooks.observers;
    if observers.is_empty() || !hold.progress.begin_loss_report() {
        return;
    }
    observers.notify(&Event::Lost {
        key: &hold.origin.grant.claim.key,
        label: &hold.origin.grant.claim.label,
        token: hold.lease.token(),
        reason,
    });
}

struct Ending<'a> {
    context: &'a Arc<ManagerContext>,
    hold: &'a Arc<Hold>,
    cause: Ended,
    /// How long runs and compensations in progress may take.
    limit: Duration,
}

impl Ending<'_> {
    async fn run(&self) -> Released {
        let hooks = &self.context.hooks;
        self.hold.lease.close();
        let at_rest = pin!(is_at_rest(self.context, self.hold));
        let is_at_rest = self.context.clock.timeout(self.limit, at_rest).await == Some(true);
        if hooks.is_empty() {
            return self.finish(is_at_rest).await;
        }
        let request = self.release_request();
        if request.reason.is_loss() {
            report_lost(self.context, self.hold, request.reason);
        }
        let begun_at = self.context.clock.stamp();
        let released = if hooks.chain.is_empty() || !self.hold.progress.begin_handlers() {
            self.finish(is_at_rest).await
        } else {
            let around = Around {
                clock: &self.context.clock,
                limit: self.context.settings.request_timeout,
                user_threads: (self.cause != Ended::Released).then_some(&self.context.user_threads),
            };
            let step = self.finish(is_at_rest);
            hooks.chain.release(request.clone(), around, step).await
        };
        hooks.observers.notify(&Event::Release {
            key: &request.key,
            label: &request.label,
            token: request.token,
            reason: request.reason,
            was_reported: self.hold.is_reported(),
            released: &released,
            held_for: request.held_for,
            took: self.context.clock.stamp().since(&begun_at),
        });
        released
    }

    fn release_request(&self) -> ReleaseRequest {
        let claim = &self.hold.origin.grant.claim;
        ReleaseRequest {
            key: claim.key.clone(),
            label: claim.label.clone(),
            token: self.hold.lease.token(),
            reason: self.hold.lease.lost_reason().unwrap_or(self.cause),
            held_for: self.context.clock.stamp().since(&self.hold.began),
        }
    }

    /// The step that the handlers wrap, done once.
    async fn finish(&self, is_at_rest: bool) -> Released {
        let finished = &self.hold.progress.results().finished;
        if let Some(released) = finished.get() {
            return released.clone();
        }
        // No await between the step and the note that it is done.
        let released = self.release_or_withhold(is_at_rest).await;
        finished.get_or_init(|| released).clone()
    }

    async fn release_or_withhold(&self, is_at_rest: bool) -> Released {
        let Self {
            context,
            hold,
            cause,
            ..
        } = self;
        let why = match is_at_rest {
            false => Some(Withheld::RunInProgress),
            true => hold.lease.is_in_doubt().then_some(Withheld::InDoubt),
        };
        if let Some(why) = why {
            // A run that is still in progress, or an effect that may land late, has one TTL for it.
            hold.lease.revoke(self.cause);
            return Released::Withheld { why };
        }
        if *cause == Ended::Released && hand_off(context, hold) {
            return Released::Released;
        }
        // A lease that is past its deadline is marked as lapsed here, and keeps that reason.
        let _ = hold.lease.remaining();
        hold.lease.revoke(self.cause);
        match hold.lease.lost_reason() {
            // In a fork the lock is the parent's: a release here would take it from the parent.
            Some(Ended::Forked) => return Released::AlreadyGone,
            Some(Ended::Gone) => {
                withdraw_unanswered(context, hold);
                return Released::AlreadyGone;
            }
            Some(ended) if !ended.is_loss() => {}
            // What was sent before the lapse has the lock delay to land.
            _ if !hold.origin.times.lock_delay.is_zero() => {
                return Released::Withheld {
                    why: Withheld::LockDelay,
                };
            }
            _ => {}
        }
        let released = release_once(context, hold).await;
        match &released {
            Released::Unknown(_) => context.inbox.send(Message::Release(Arc::clone(hold))),
            _ => withdraw_unanswered(context, hold),
        }
        released
    }
}
