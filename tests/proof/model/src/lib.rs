//! A bounded model of the lease protocol, which is checked in every order of its steps.
//!
//! Two clients ask one store for one lock, and write to one resource under it. Every message may be
//! lost, doubled, and delayed for any time; time passes in ticks at any point. The store keeps a
//! lock for [`TTL`] ticks, a client counts on [`LEASE`] of them. Not modelled: clocks of different
//! rates, crashes, handoff, a quorum.
//!
//! [`Rules`] switches the rules of safety off one by one. With all of them on, the checker must
//! find nothing; with one off, it must find the fault that the rule prevents.

mod client;
mod network;
mod protocol;
mod rules;
mod store;

pub use client::{Client, Move, Phase, Step};
pub use network::{IN_FLIGHT, Message};
pub use protocol::{Action, Protocol, State};
pub use rules::{Fence, Rules};
pub use store::{Resource, Store};

/// How long the store keeps a lock, in ticks.
pub const TTL: u8 = 3;
/// How long a client counts on its lease, from the sending of its request.
pub const LEASE: u8 = 2;
/// How many ticks pass.
pub const TICKS: u8 = 5;
