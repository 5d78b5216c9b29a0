//! How a connection to a server is made again: one attempt for all callers that wait for it, not too often, by the runtime of
//! the caller. For the stores that have connections of their own.
//!
//! | file | what |
//! |---|---|
//! | `connecting.rs` | one attempt to connect, shared by all callers that wait for it |
//! | `redial.rs` | when an attempt may begin |
//! | `health.rs` | when a connection is given up |
//! | `runtime.rs` | the runtime of the caller, which drives the connections that it makes |

mod connecting;
mod health;
mod redial;
pub(crate) mod runtime;

pub(crate) use connecting::{Connecting, Found};
pub(crate) use health::{Health, MarksDead};
