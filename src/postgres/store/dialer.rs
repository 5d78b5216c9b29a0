//! [`Dialer`]: connections to a server, with the credentials and the certificates of their moment.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error as PgError, NoTls, Socket};

use crate::clock::Clock;
use crate::model::error::Error;
use crate::store::access::{Login, TlsFiles};

/// How a server is entered.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    /// Replaces user and password, if they change.
    pub(crate) login: Login,
    pub(crate) tls: TlsFiles,
    pub(crate) encryption: Encryption,
}

/// The `sslmode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encryption {
    None,
    /// As libpq has it: what is verified depends on whether a file of authorities is named. But
    /// without one libpq verifies nothing.
    Required,
    Chain,
    Full,
}

/// What of the server's certificate is verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verified {
    /// That a trusted authority has made it.
    Chain,
    /// That, and the host name.
    Name,
}

impl Encryption {
    pub(crate) const WORDS: &[&str] = &["disable", "require", "verify-ca", "verify-full"];

    /// By one of the [words](Self::WORDS).
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "require" => Self::Required,
            "verify-ca" => Self::Chain,
            "verify-full" => Self::Full,
            _ => Self::None,
        }
    }
}

impl Default for Dialer {
    fn default() -> Self {
        Self {
            login: Login::default(),
            tls: TlsFiles::named(["sslrootcert", "sslcert", "sslkey"]),
            encryption: Encryption::None,
        }
    }
}

impl Dialer {
    /// What is verified; `None` without TLS.
    pub(crate) fn verifies(&self) -> Option<Verified> {
        match self.encryption {
            Encryption::None => None,
            // Anybody can have a certificate of the system's authorities.
            Encryption::Required | Encryption::Chain if self.tls.ca.is_none() => {
                Some(Verified::Name)
            }
            Encryption::Required | Encryption::Chain => Some(Verified::Chain),
            Encryption::Full => Some(Verified::Name),
        }
    }

    /// Checks the options of a URL that has a user and a password or not, and lets its
    /// configuration encrypt.
    ///
    /// # Errors
    ///
    /// `Invalid` for options that do not belong together, `Unsupported` for TLS without the feature
    /// `tls`.
    pub(crate) fn check(
        &self,
        (has_user, has_password): (bool, bool),
        config: &mut Config,
    ) -> Result<(), Error> {
        self.login.check(has_user, has_password)?;
        let is_tls = self.verifies().is_some();
        let instead = "write sslmode=verify-full, verify-ca or require";
        self.tls.check(is_tls, instead)?;
        if !is_tls && config.get_channel_binding() == ChannelBinding::Require {
            return Err(Error::invalid(format!(
                "channel_binding=require needs TLS; {instead}"
            )));
        }
        if is_tls {
            if !cfg!(feature = "tls") {
                return Err(Error::unsupported(
                    "leasehold was built without TLS to PostgreSQL; build it with the feature tls",
                ));
            }
            config.ssl_mode(SslMode::Require);
        }
        Ok(())
    }

    /// Connects by `dial`, with the credentials of now.
    pub(crate) async fn connect<T, F>(
        &self,
        config: &Config,
        limit: (&Clock, Duration),
        dial: impl Fn(Config) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let with = |credentials: Option<crate::Credentials>| {
            let mut config = config.clone();
            if let Some(credentials) = credentials {
                config.password(credentials.expose());
                if let Some(user) = credentials.user() {
                    config.user(user);
                }
            }
            dial(config)
        };
        self.login.connect(limit, with).await
    }

    /// Reads the certificates of now.
    #[cfg_attr(
        not(feature = "tls"),
        allow(clippy::unused_async, reason = "there are none")
    )]
    pub(crate) async fn ready(&self, limit: (&Clock, Duration)) -> Result<Ready, Error> {
        #[cfg(feature = "tls")]
        return Ok(Ready {
            tls: match self.verifies() {
                Some(verified) => Some(super::tls::Tls::new(&self.tls, verified, limit).await?),
                None => None,
            },
        });
        #[cfg(not(feature = "tls"))]
        {
            let _ = limit;
            Ok(Ready {})
        }
    }
}

/// What connects, for one attempt.
pub(crate) struct Ready {
    #[cfg(feature = "tls")]
    tls: Option<super::tls::Tls>,
}

impl Ready {
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
    /// Drives the connection to what the server next sends without being asked; a notice comes
    /// before the answer of the statement that it belongs to. `None`: it has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<AsyncMessage>> {
        let message = match self {
            #[cfg(feature = "tls")]
            Self::Tls(connection) => connection.poll_message(cx),
            Self::Plain(connection) => connection.poll_message(cx),
        };
        message.map(|message| message.and_then(Result::ok))
    }
}
