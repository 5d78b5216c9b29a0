//! The kinds of locks: each is a key and how to ask the manager for it.

pub(crate) mod lock;

mod busy;
pub mod election;
mod leadership;
pub mod multi;
pub mod once;
mod once_outcome;
mod one_shot;
mod pass_on;
pub mod permits;
pub mod read_write;
mod read_write_scope;
pub mod reentrant;
pub mod semaphore;
pub mod shards;
mod term;
