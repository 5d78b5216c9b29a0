//! How long ago a node became what it is. `INFO` reports that it was a replica, or was flushed, but not when.
//!
//! Behind Sentinel that costs one quarantine, since there is one marker. In a cluster each of thousands of slots would have
//! its own quarantine when it is used for the first time after the change, possibly months later. So the first client that
//! meets such a node records the time in one of the node's slots; every earlier grant has ended `max_ttl` later. A restart, a
//! flush or another fail-over changes what the node is, so the time begins again.

use std::time::Duration;

use ::redis::ServerErrorKind::Moved;
use ::redis::Value;

use super::super::connection::{Failure, Session};
use super::super::names::Names;
use super::super::reply;
use super::super::script::{Call, WITNESS};
use super::route::{Route, is};

/// For how long at least the node that is asked has been what it is. Asked until it is `most`.
pub(in super::super) async fn same_for(
    route: &Route<'_>,
    session: &Session<'_>,
    names: &Names,
    most: Duration,
) -> Duration {
    let server = session.server();
    let (Some(node), Some(incarnation)) = (route.sent_to(), &server.incarnation) else {
        return Duration::ZERO;
    };
    // The caller knows its age, which is enough.
    if !server.was_replica && !server.was_flushed() && session.age(most) >= most {
        return Duration::ZERO;
    }
    let what = format!("{incarnation} {}", server.flushes);
    if let Some((known, span)) = &*node.witnessed.lock()
        && *known == what
        && *span >= most
    {
        return *span;
    }
    for is_last in [false, true] {
        let Some(slot) = route.first_slot_of(node) else {
            break;
        };
        let call = Call::new([names.witness(slot)]).arg(&what);
        match call.run_in(&WITNESS, session).await {
            Ok(Value::Int(millis)) => {
                let span = reply::millis(millis).unwrap_or_default();
                *node.witnessed.lock() = Some((what, span));
                return span;
            }
            Err(Failure::Refused(refusal)) if is(&refusal, Moved) && !is_last => {
                if route.look().await.is_err() {
                    break;
                }
            }
            _ => break,
        }
    }
    // A node that does not answer counts as one that has just changed. The attempt itself will report the reason.
    Duration::ZERO
}
