//! How long ago a node became what it is. `INFO` tells that it was a replica, or was flushed, but not when.
//!
//! Behind Sentinel that costs one quarantine, as there is one marker. In a cluster each of thousands of slots would have its
//! own, when it is used for the first time after the fail-over, be it months later. So the first client that meets such a node
//! writes down when that was, in one of the node's slots; what was granted before had ended `max_ttl` after. A flush or another
//! fail-over changes what the node is, and so the time begins anew.

use std::time::Duration;

use ::redis::Value;

use super::super::names::Names;
use super::super::reply;
use super::super::script::{Call, WITNESS};
use super::super::session::Session;
use super::route::Route;

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
        if !server.was_replica && !server.was_flushed {
            return Duration::ZERO;
        }
        let what = format!("{run} {}", server.account);
        if let Some((known, span)) = &*node.witnessed.lock()
            && *known == what
            && *span >= most
        {
            return *span;
        }
        let Some(slot) = self.first_slot_of(node) else {
            return Duration::ZERO;
        };
        let call = Call::new([names.witness(slot)]).arg(&what);
        // A node that does not say is taken for one that has only just changed. Why it does not, the attempt itself will tell.
        let answer = call.run_in(&WITNESS, session).await;
        let Ok(Value::Int(millis)) = answer else {
            return Duration::ZERO;
        };
        let span = reply::millis(millis).unwrap_or_default();
        *node.witnessed.lock() = Some((what, span));
        span
    }
}
