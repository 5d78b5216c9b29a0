//! The two client libraries, behind one small trait.

mod driver;
#[cfg(feature = "zookeeper-async")]
mod isolated_client;
#[cfg(feature = "zookeeper-async")]
mod zookeeper_async_driver;
mod zookeeper_client_driver;

pub(crate) use driver::{Change, Driver, Fault, Kind, LeaderTime, Made, Missing, Node, Refused};
#[cfg(feature = "zookeeper-async")]
pub(super) use zookeeper_async_driver::ZooKeeperAsyncDriver;
pub(super) use zookeeper_client_driver::ClientDriver;
