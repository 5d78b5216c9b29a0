//! [`dial`]: one connection of the client, with the credentials and the certificates of its moment.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisError};
use tokio_util::task::AbortOnDropHandle;

use super::super::fault;
use crate::clock::Clock;
use crate::model::error::Error;
use crate::store::access::{Login, TlsFiles};

/// How a connection is made.
#[derive(Clone, Copy)]
pub(in super::super) struct How<'a> {
    pub(in super::super) login: &'a Login,
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "for TLS"))]
    pub(in super::super) tls: &'a TlsFiles,
    pub(in super::super) clock: &'a Clock,
    pub(in super::super) timeout: Duration,
}

impl<'a> How<'a> {
    /// The same with another login.
    pub(in super::super) fn with(self, login: &'a Login) -> Self {
        Self { login, ..self }
    }
}

/// What moves the bytes of a connection of ours, as long as that lasts. The client has its own.
pub(in super::super) type Driver = Option<AbortOnDropHandle<()>>;

/// Connects to a server. `address`: of what the URL names, for messages.
pub(in super::super) async fn dial(
    server: &ConnectionInfo,
    address: &str,
    how: How<'_>,
    config: &AsyncConnectionConfig,
) -> Result<(MultiplexedConnection, Driver), Error> {
    let limit = (how.clock, how.timeout);
    #[cfg(feature = "tls")]
    let tls = super::encrypted::config(server, how.tls, limit).await?;
    #[cfg(feature = "tls")]
    let tls = &tls;
    let connect = |credentials: Option<crate::Credentials>| async move {
        let mut server = server.clone();
        if let Some(credentials) = credentials {
            let mut settings = server.redis_settings().clone();
            settings = settings.set_password(credentials.expose());
            if let Some(user) = credentials.user() {
                settings = settings.set_username(user);
            }
            server = server.set_redis_settings(settings);
        }
        let db = server.redis_settings().db();
        let failed = |error: RedisError| {
            if is_no_database(&error) {
                return no_database(address, db);
            }
            fault::not_connected(&error, address)
        };
        #[cfg(feature = "tls")]
        if let Some(tls) = tls {
            let connected = super::encrypted::connect(&server, tls, config, limit).await;
            let (connection, driver) = connected.map_err(failed)?;
            return Ok((connection, Some(driver)));
        }
        let client = open(server, address)?;
        let connecting = client.get_multiplexed_async_connection_with_config(config);
        Ok((connecting.await.map_err(failed)?, None))
    };
    how.login.connect(limit, connect).await
}

pub(super) fn open(server: ConnectionInfo, address: &str) -> Result<Client, Error> {
    Client::open(server).map_err(|error| {
        let category = error.category();
        Error::invalid(format!(
            "the redis client refused the address or the certificates: address={address} reason={category}"
        ))
    })
}

/// Only the text of the client's error says which refusal of the handshake it was.
fn is_no_database(error: &RedisError) -> bool {
    let text = error.to_string();
    let why = ["index is out of range", "not allowed in cluster mode"];
    text.contains("switch database") && why.iter().any(|why| text.contains(why))
}

fn no_database(address: &str, db: i64) -> Error {
    Error::invalid(format!(
        "this redis has no such database: address={address} db={db}; write one that it has behind the host of the URL, such as /0"
    ))
}
