//! Locks in a service that has no clock and no time to live: it only compares and swaps.
//!
//! An object storage and an API server can replace a record if nobody else has ([`Register`]), and
//! nothing more. Nobody there ends the hold of a process that died. So whoever wants the key
//! *observes* the record ([`ObservedStore`]). [`MemoryRegister`] specifies what a register must do.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::LockManager;
//! use leasehold::store::observed::{MemoryRegister, ObservedStore};
//!
//! let store = ObservedStore::new(MemoryRegister::new())?;
//! let locks = LockManager::new(store)?;
//! let _done = locks.lock("nightly").guarded(|_tx| Ok(())).await?;
//! # locks.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
#![doc = include_str!("PROTOCOL.md")]

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
