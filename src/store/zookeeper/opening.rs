//! How a session is opened, with the driver that the options name.

use std::time::Duration;

#[cfg(feature = "zookeeper-async")]
use super::drivers::ZooKeeperAsyncDriver;
use super::drivers::{ClientDriver, Driver, Fault};
use super::options::{DriverKind, ZooKeeperOptions};
use super::session::Session;
use crate::clock::Clock;
use crate::model::error::Error;

/// What becomes of a session when its driver is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// It is closed: the server deletes its nodes at once.
    Closed,
    /// Only its connection ends: the server deletes its nodes when its time-out has passed.
    LeftToTimeOut,
}

/// Opens a session within `limit`.
pub(super) async fn open(
    options: &ZooKeeperOptions,
    clock: &Clock,
    ending: Ending,
    limit: Duration,
) -> Result<Session, Error> {
    let asked_at = clock.stamp();
    let opening = async {
        let driver = connect(options, clock, ending).await?;
        Session::open(driver, options, clock, asked_at).await
    };
    (clock.timeout(limit, opening).await).unwrap_or_else(|| {
        Err(Error::unavailable(format!(
            "no zookeeper session within {limit:?}: servers={}; check the servers and the network",
            addresses(options)
        )))
    })
}

#[cfg_attr(
    not(feature = "zookeeper-async"),
    allow(unused_variables, reason = "the other driver needs the clock")
)]
async fn connect(
    options: &ZooKeeperOptions,
    clock: &Clock,
    ending: Ending,
) -> Result<Box<dyn Driver>, Error> {
    match options.driver {
        DriverKind::Client => {
            let driver = ClientDriver::connect(options, ending).await;
            Ok(Box::new(
                driver.map_err(|fault| unreachable(fault, options))?,
            ))
        }
        #[cfg(feature = "zookeeper-async")]
        DriverKind::Async => {
            let driver = ZooKeeperAsyncDriver::connect(options, clock).await;
            Ok(Box::new(
                driver.map_err(|fault| unreachable(fault, options))?,
            ))
        }
    }
}

/// Without what may be credentials in the wrong place.
fn addresses(options: &ZooKeeperOptions) -> &str {
    options.servers.rsplit('@').next().unwrap_or_default()
}

fn unreachable(fault: Fault, options: &ZooKeeperOptions) -> Error {
    match fault {
        Fault::InDoubt(source) | Fault::Refused(source) => Error::unavailable(format!(
            "no zookeeper server could be reached: servers={}; check the servers and the network",
            addresses(options)
        ))
        .because(source),
        other => other.into_error("open a session"),
    }
}
