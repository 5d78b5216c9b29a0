//! [`Dialer`]: connections to a server, with TLS or without.

use std::task::{Context, Poll};

use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error as PgError, NoTls, Socket};

use crate::model::error::Error;

/// Makes connections.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    #[cfg(feature = "tls")]
    tls: Option<super::tls::Tls>,
}

impl Dialer {
    /// # Errors
    ///
    /// `Unsupported` for TLS without the feature `tls`.
    pub(crate) fn new(is_encrypted: bool) -> Result<Self, Error> {
        #[cfg(feature = "tls")]
        return Ok(Self {
            tls: is_encrypted.then(super::tls::Tls::new).transpose()?,
        });
        #[cfg(not(feature = "tls"))]
        if is_encrypted {
            Err(Error::unsupported(
                "leasehold was built without TLS to PostgreSQL; build it with the feature tls",
            ))
        } else {
            Ok(Self {})
        }
    }

    pub(crate) async fn dial(&self, config: &Config) -> Result<(Client, Driver), PgError> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let (client, connection) = config.connect(tls.clone()).await?;
            return Ok((client, Driver::Tls(connection)));
        }
        let (client, connection) = config.connect(NoTls).await?;
        Ok((client, Driver::Plain(connection)))
    }
}

/// What a connection needs to live: a task that drives it.
pub(crate) enum Driver {
    #[cfg(feature = "tls")]
    Tls(Connection<Socket, super::tls::Encrypted>),
    Plain(Connection<Socket, NoTlsStream>),
}

impl Driver {
    /// Drives the connection to what the server next sends without being asked; a notice comes before the answer of the statement that it
    /// belongs to. `None`: it has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<AsyncMessage>> {
        let message = match self {
            #[cfg(feature = "tls")]
            Self::Tls(connection) => connection.poll_message(cx),
            Self::Plain(connection) => connection.poll_message(cx),
        };
        message.map(|message| message.and_then(Result::ok))
    }
}
