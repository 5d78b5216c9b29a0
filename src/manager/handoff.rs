//! The handoff: the same grant for the next local caller, under a new lease cell and with the same
//! token, without a request to the store. The drain has ordered the two holders.

use std::sync::Arc;

use super::context::ManagerContext;
use super::desk::ReleasedHold;
use super::hold::{Hold, HoldOrigin, Unclaimed};
use super::message::Message;
use super::queue::Passed;
use crate::clock::Stamp;
use crate::model::error::Ended;
use crate::settings::Settings;

/// Passes the grant of `hold`, which is drained, to the next local caller. False if it has to be
/// released instead.
pub(super) fn hand_off(context: &Arc<ManagerContext>, hold: &Arc<Hold>) -> bool {
    let origin = &hold.origin;
    // Mostly nobody waits, and then no clock is read.
    if !origin.allows_handoff || !context.queues.is_waited_for(&origin.grant.claim.key) {
        return false;
    }
    let settings = &context.settings;
    let now = context.clock.stamp();
    let ending = ReleasedHold {
        is_usable: !hold.detached.has_debts() && hold.lease.ensure(settings.min_usable).is_ok(),
        is_used_up: is_used_up(settings, hold, &now),
        gives_way: settings.handoff_count > 0,
    };
    if hold.of_turn(|turn| turn.hands_off(ending, origin)) != Some(true) {
        return false;
    }
    let Some(lease) = hold.lease.handoff() else {
        return false;
    };
    let origin = HoldOrigin {
        handoffs: origin.handoffs + 1,
        ..origin.clone()
    };
    let next = Hold::new(lease, origin, now, None);
    if (context.holds)
        .transfer(hold, &next, &now, Some(settings.call_time()))
        .is_err()
    {
        // The manager was shut down, or the time is over. This lease has ended, so only the release
        // is left.
        return false;
    }
    // The caller is called last: until here it has its place.
    let waiter = next.of_turn(|turn| turn.next(&next.origin)).flatten();
    let context = Arc::clone(context);
    let unclaimed = Unclaimed::new(next, move |hold| end_unclaimed(&context, hold));
    if let Some(waiter) = waiter {
        waiter.call(Passed::Hold(unclaimed));
    }
    true
}

/// The caller that a hold was handed off to has come for it. `None` if it came too late, or its
/// lease does not last: then the hold is ended.
pub(super) fn claim(context: &ManagerContext, unclaimed: Unclaimed) -> Option<Arc<Hold>> {
    let hold = unclaimed.hold()?;
    let is_usable = hold.lease.ensure(context.settings.min_usable).is_ok();
    if is_usable && context.holds.claim(hold) {
        return unclaimed.take();
    }
    None
}

/// Ends a hold that was handed off and not claimed.
pub(super) fn end_unclaimed(context: &ManagerContext, hold: Arc<Hold>) {
    hold.lease.close();
    context.inbox.send(Message::End(hold, Ended::Dropped));
}

/// Whether this process has had the grant as often and for as long as it may, so that other
/// processes get their turn.
fn is_used_up(settings: &Settings, hold: &Hold, now: &Stamp) -> bool {
    let held_for = now.since(&hold.origin.granted_at);
    hold.origin.handoffs >= settings.handoff_count || held_for >= settings.handoff_time
}
