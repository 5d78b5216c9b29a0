//! The words that every layer uses: plain values, with no store and no clock behind them.

pub(crate) mod commit;
pub(crate) mod doubt;
pub(crate) mod error;
pub(crate) mod holder;
pub(crate) mod key;
pub(crate) mod run_event;
pub(crate) mod run_sink;
#[cfg(feature = "serde")]
mod serde;
pub(crate) mod token;
pub(crate) mod txn;
