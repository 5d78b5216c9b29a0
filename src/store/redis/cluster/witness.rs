//! How long ago a node became what it is. `INFO` tells that it was a replica, or was flushed, but not when; and its age only as
//! of the connect.
//!
//! Behind Sentinel that costs one quarantine, as there is one marker. In a cluster each of thousands of slots would have its
//! own, when it is used for the first time after the change, be it months later. So the first client that meets such a node
//! writes down when that was, in one of the node's slots; what was granted before had ended `max_ttl` after. A restart, a flush
//! or another fail-over changes what the node is, and so the time begins anew.

use std::time::Duration;

use ::redis::ServerErrorKind::Moved;
use ::redis::Value;

use super::super::link::Failure;
use super::super::names::Names;
use super::super::reply;
use super::super::script::{Call, WITNESS};
use super::super::session::Session;
use super::route::{Route, is};

impl Route<'_> {
    /// For how long at least the node that is asked has been what it is. Asked until it is `most`.
    pub(in super::super) async fn same_for(
        &self,
        session: &Session<'_>,
        names: &Names,
        most: Duration,
    ) -> Duration {
        let server = session.server();
        let (Some(node), Some(run)) = (self.sent_to(), &server.run_id) else {
            return Duration::ZERO;
        };
        // Its age tells it.
        let is_old = server.uptime.is_some_and(|uptime| uptime >= most);
        if is_old && !server.was_replica && !server.was_flushed {
            return Duration::ZERO;
        }
        let what = format!("{run} {}", server.account);
        if let Some((known, span)) = &*node.witnessed.lock()
            && *known == what
            && *span >= most
        {
            return *span;
        }
        for is_last in [false, true] {
            let Some(slot) = self.first_slot_of(node) else {
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
                    if self.look().await.is_err() {
                        break;
                    }
                }
                _ => break,
            }
        }
        // A node that does not say is taken for one that has only just changed. Why it does not, the attempt itself will tell.
        Duration::ZERO
    }
}
