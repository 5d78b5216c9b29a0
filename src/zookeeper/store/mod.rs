//! The store.

mod acl;
mod acquire;
mod barrier_session;
mod client;
mod downgrade;
mod drivers;
mod fenced;
#[cfg(all(test, feature = "testing"))]
mod in_flight;
mod lock_info;
mod opening;
mod options;
mod proof;
mod queue;
mod records;
mod renewal;
mod revoke;
#[cfg(all(test, feature = "testing"))]
mod scripted;
mod session;
mod session_state;
mod session_thread;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod simulation;
mod zookeeper_store;

pub use acl::{AclEntry, ZooKeeperAcl};
pub(crate) use drivers::{Change, Fault, LeaderTime, Refused};
pub use options::{DriverKind, ZooKeeperMode, ZooKeeperOptions};
pub use zookeeper_store::ZooKeeperStore;
