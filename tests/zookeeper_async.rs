//! The second driver: the same tests as for the first one, except those of
//! `zookeeper/connection.rs`, and the behaviour suite, which `conformance/` runs on both.
//!
//! What is different, and why:
//!
//! - A connection that breaks ends the session and every hold, because this client may open another
//!   session without a word.
//! - The negotiated time-out is not known, so that one which the server shortened is not refused: a
//!   session of more than 20 ticks is.
//! - It has no `multi`: a heartbeat looks at each held node, one request after the other. Hundreds
//!   of holds, not thousands. It fences no writes and takes no lock away, and says so
//!   (`zookeeper/fence.rs`, `zookeeper/revoke.rs`).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/cutter.rs"]
mod proxy;
#[path = "support/zookeeper.rs"]
mod zookeeper;

#[path = "zookeeper/faults.rs"]
mod faults;
#[path = "zookeeper/kinds.rs"]
mod kinds;
#[path = "zookeeper/proof.rs"]
mod proof;
#[path = "zookeeper/queue.rs"]
mod queue;
