//! The handoff: the same grant for the next local caller, under a new lease cell and with the same token, without a request
//! to the store. The drain has ordered the two holders.

use std::sync::Arc;

use super::context::ManagerContext;
use super::hold::{Hold, Origin};
use super::message::Message;
use super::queue::Passed;
use crate::clock::Stamp;
use crate::model::error::Ended;
use crate::settings::Settings;

/// Passes the grant of `hold`, which is drained, to the next local caller. False if it has to be released instead.
pub(super) fn hand_off(context: &Arc<ManagerContext>, hold: &Arc<Hold>) -> bool {
    let key = &hold.origin.grant.claim.key;
    // Mostly nobody waits, and then no clock is read.
    if !hold.origin.allows_handoff || !context.queues.is_waited_for(key) || !hold.is_queued() {
        return false;
    }
    let settings = &context.settings;
    let now = context.clock.stamp();
    if is_used_up(settings, hold, &now) {
        if settings.handoff_count > 0 {
            hold.give_way();
        }
        return false;
    }
    if hold.detached.has_debts() || hold.lease.ensure(settings.min_usable).is_err() {
        return false;
    }
    let Some(waiter) = context.queues.next(key) else {
        return false;
    };
    // The turn is taken last, so that a caller who is put back finds the queue and its place at the head of it.
    let fits = waiter.allows_handoff && waiter.times == hold.origin.times;
    let lease = fits.then(|| hold.lease.handoff()).flatten();
    let turn = lease.and_then(|lease| Some((lease, hold.take_turn()?)));
    let Some((lease, turn)) = turn else {
        context.queues.put_back(key, waiter);
        return false;
    };
    let origin = Origin {
        handoffs: hold.origin.handoffs + 1,
        ..hold.origin.clone()
    };
    let next = Hold::new(lease, origin, now, turn);
    if (context.holds)
        .transfer(hold, &next, &now, Some(settings.call_time()))
        .is_err()
    {
        // The manager was shut down, or the time is over. This lease has ended, so only the release is left.
        hold.put_turn(next.take_turn());
        context.queues.put_back(key, waiter);
        return false;
    }
    if let Err(Passed::Hold(unclaimed)) = waiter.call(Passed::Hold(next)) {
        end_unclaimed(context, unclaimed);
    }
    true
}

/// The caller that a hold was handed off to has come for it. False if it came too late, or its lease does not last: then the hold
/// is ended.
pub(super) fn claim(context: &ManagerContext, hold: &Arc<Hold>) -> bool {
    let is_usable = hold.lease.ensure(context.settings.min_usable).is_ok();
    if is_usable && context.holds.claim(hold) {
        return true;
    }
    end_unclaimed(context, Arc::clone(hold));
    false
}

/// Ends a hold that was handed off and not claimed.
pub(super) fn end_unclaimed(context: &ManagerContext, hold: Arc<Hold>) {
    hold.lease.close();
    context.inbox.send(Message::End(hold, Ended::Dropped));
}

/// Whether this process has had the grant as often and for as long as it may, so that other processes get their turn.
fn is_used_up(settings: &Settings, hold: &Hold, now: &Stamp) -> bool {
    let held_for = now.since(&hold.origin.granted_at);
    hold.origin.handoffs >= settings.handoff_count || held_for >= settings.handoff_time
}
