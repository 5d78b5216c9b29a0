//! The queue of a key: how contenders' nodes are named, what they contain, in which order they
//! hold, and how a claim joins.

pub(super) mod claim_state;
pub(super) mod join;
pub(super) mod lists;
pub(super) mod look;
mod make;
pub(super) mod names;
pub(super) mod node_data;
pub(super) mod order;
pub(super) mod simple;
