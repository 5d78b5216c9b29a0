//! How a session is opened, with the driver that the options name.

use std::io;
use std::net::ToSocketAddrs;
use std::time::Duration;

use tokio::sync::oneshot;

use super::client::ZooKeeperClient;
#[cfg(feature = "zookeeper-async")]
use super::drivers::ZooKeeperAsyncDriver;
use super::drivers::{ClientDriver, Driver, Ending, Fault};
use super::options::{DriverKind, ZooKeeperOptions};
use super::session::Session;
use crate::clock::Clock;
use crate::model::credentials::Credentials;
use crate::model::error::{Error, ErrorKind};
use crate::store::url::is_unknown_host;

/// How long the name service is asked, after a session could not be opened.
const LOOKUP: Duration = Duration::from_secs(2);

/// Opens a session within `limit`.
pub(super) async fn open(
    client: &ZooKeeperClient,
    options: &ZooKeeperOptions,
    ending: Ending,
    limit: Duration,
) -> Result<Session, Error> {
    let clock = &client.clock;
    let asked_at = clock.stamp();
    let opening = async {
        #[cfg(feature = "testing")]
        if let Some(servers) = &client.servers {
            let driver = servers.connect(options.session_timeout, ending).await;
            let driver = driver.map_err(|fault| unreachable(fault, options))?;
            return Session::open(driver, options, clock, asked_at).await;
        }
        let dial = async |credentials: Option<Credentials>| {
            let options = &options.with_login(credentials)?;
            let driver = connect(options, clock, ending).await?;
            Session::open(driver, options, clock, asked_at).await
        };
        options.login.connect((clock, limit), dial).await
    };
    let opened = (clock.timeout(limit, opening).await).unwrap_or_else(|| {
        Err(Error::unavailable(format!(
            "no zookeeper session within {limit:?}: servers={}; check the servers and the network",
            addresses(options)
        )))
    });
    match opened {
        // Servers that are simulated have no names.
        #[cfg(feature = "testing")]
        opened if client.servers.is_some() => opened,
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            let unknown = clock.timeout(LOOKUP, unknown_host(addresses(options)));
            Err(unknown.await.flatten().unwrap_or(error))
        }
        opened => opened,
    }
}

/// The error if no server has a name that is known. The drivers try for as long as they may, and do
/// not say why they failed.
async fn unknown_host(servers: &str) -> Option<Error> {
    let (answer, answered) = oneshot::channel();
    let names = servers.to_owned();
    // A thread of its own: the name service may take longer than the runtime lives.
    let asking = std::thread::Builder::new().spawn(move || {
        let _ = answer.send(first_unknown(&names));
    });
    asking.ok()?;
    let cause = answered.await.ok().flatten()?;
    Some(
        Error::unavailable(format!(
            "host name not found: servers={servers}; check the hosts in the URL, and the name service"
        ))
        .because(cause),
    )
}

/// Why the first server has no address, if none has one.
fn first_unknown(servers: &str) -> Option<io::Error> {
    let mut first = None;
    for server in servers.split(',') {
        match server.to_socket_addrs() {
            Err(error) if is_unknown_host(&error) => _ = first.get_or_insert(error),
            _ => return None,
        }
    }
    first
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
