//! The path of a run: begin, work, commit, or undo; once on the caller's thread, and once awaited.

mod async_tx;
pub(crate) mod awaiting;
pub(crate) mod blocking;
mod settle;
mod watch;

pub use async_tx::AsyncTx;
