//! [`dial`]: one connection of the client, with the credentials and the certificates of its moment.

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisError};

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

/// Connects to a server. `address`: of what the URL names, for messages.
pub(in super::super) async fn dial(
    server: &ConnectionInfo,
    address: &str,
    how: How<'_>,
    config: &AsyncConnectionConfig,
) -> Result<MultiplexedConnection, Error> {
    let limit = (how.clock, how.timeout);
    #[cfg(feature = "tls")]
    let pem = how.tls.read(limit).await?;
    #[cfg(feature = "tls")]
    let pem = &pem;
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
        #[cfg(feature = "tls")]
        let client = trusting(server, address, pem)?;
        #[cfg(not(feature = "tls"))]
        let client = open(server, address)?;
        let connecting = client.get_multiplexed_async_connection_with_config(config);
        connecting.await.map_err(|error| {
            if is_no_database(&error) {
                let db = client.get_connection_info().redis_settings().db();
                return no_database(address, db);
            }
            fault::not_connected(&error, address)
        })
    };
    how.login.connect(limit, connect).await
}

pub(super) fn open(server: ConnectionInfo, address: &str) -> Result<Client, Error> {
    Client::open(server).map_err(|error| refused(&error, address))
}

/// The same with these certificates, if there are any.
#[cfg(feature = "tls")]
fn trusting(
    server: ConnectionInfo,
    address: &str,
    pem: &crate::store::access::tls::Pem,
) -> Result<Client, Error> {
    use ::redis::{ClientTlsConfig, TlsCertificates};

    if pem.ca.is_none() && pem.client.is_none() {
        return open(server, address);
    }
    let client_tls = (pem.client.clone()).map(|(client_cert, client_key)| ClientTlsConfig {
        client_cert,
        client_key,
    });
    let certificates = TlsCertificates {
        client_tls,
        root_cert: pem.ca.clone(),
    };
    Client::build_with_tls(server, certificates).map_err(|error| refused(&error, address))
}

fn refused(error: &RedisError, address: &str) -> Error {
    let category = error.category();
    Error::invalid(format!(
        "the redis client refused the address or the certificates: address={address} reason={category}"
    ))
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
