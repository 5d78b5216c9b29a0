//! The two client libraries, behind one small trait. It is public for models in tests only.
#![cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "models in tests implement the trait")
)]

#[doc(hidden)]
mod driver;
#[cfg(feature = "zookeeper-async")]
mod isolated_client;
#[cfg(feature = "zookeeper-async")]
mod zookeeper_async_driver;
mod zookeeper_client_driver;

pub use driver::{Change, Driver, Ending, Fault, Kind, LeaderTime, Made, Missing, Node, Refused};
#[cfg(feature = "zookeeper-async")]
pub(super) use zookeeper_async_driver::ZooKeeperAsyncDriver;
pub(super) use zookeeper_client_driver::ClientDriver;
