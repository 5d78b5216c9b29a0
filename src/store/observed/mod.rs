//! Locks in a service that has no clock and no time to live: it only compares and swaps.
//!
//! An object storage and an API server can replace a record if nobody else has ([`Register`]), and
//! nothing more. Nobody there ends the hold of a process that died. So whoever wants the key
//! *observes* the record: once it has seen the same version for the holder's whole TTL, by its own
//! clocks, the holder's lease is over.

mod memory_register;
mod observed_store;
mod record;
mod register;
mod sightings;

pub use memory_register::MemoryRegister;
pub use observed_store::ObservedStore;
pub use record::{Record, State};
pub use register::{Listed, Register, Swapped};

#[cfg(all(test, feature = "testing"))]
mod tests;
