//! The kinds of locks: each is a key and how to ask the manager for it.

pub mod blocking;
pub mod election;
pub(crate) mod lock;
pub mod multi;
mod one_shot;
pub mod read_write;
pub mod reentrant;
pub mod retry;
pub mod semaphore;
