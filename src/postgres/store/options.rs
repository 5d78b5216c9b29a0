//! [`PostgresOptions`]: which database, and how it is used.

use std::fmt;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use crate::model::error::Error;
use crate::model::options::Accepts::{Millis, Span, Text, Words};
use crate::model::options::{Field, Options, Range};
use crate::store::url::HostPort;

/// A shorter TTL is lost in the scheduler's noise; nobody waits for the end of a longer one.
const TTLS: Range = [Duration::from_millis(100), Duration::from_secs(86_400)];
const TIMEOUTS: Range = [Duration::from_millis(1), Duration::from_secs(60)];
/// When the operating system asks a silent server for a sign of life, and how often.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Which PostgreSQL database, and how it is used (feature `postgres`).
///
/// ```
/// use leasehold::postgres::PostgresOptions;
///
/// let url = "postgres://app:secret@db.example:5432/app?max_ttl=1m";
/// let options = PostgresOptions::parse(url)?;
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// [The guide](crate::docs::stores::postgres#options) has the options. `Debug` shows neither user nor password.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) config: Config,
    /// For messages.
    pub(super) address: String,
    pub(super) listen: Option<HostPort>,
    pub(super) creates: bool,
    pub(super) max_ttl: Duration,
    pub(super) timeout: Duration,
    pub(super) is_encrypted: bool,
}

impl PostgresOptions {
    #[rustfmt::skip]
    pub(crate) const OPTIONS: Options<Self> = Options { of: "PostgreSQL", fields: &[
        Field::new("max_ttl", "30s", Span(TTLS, |o, span| o.max_ttl = span),
            "the longest TTL of any client of the database; the same for all clients"),
        Field::new("create", "never", Words(&["auto", "never"], |o, word| o.creates = word == "auto"),
            "`auto`: creates the schema if there is none"),
        Field::new("listen", "", Text("host:port", |o, address| { o.listen = Some(server(address)?); Ok(()) }),
            "the server itself, if the URL names a pooler, which drops its messages"),
        Field::new("sslmode", "disable", Words(&["disable", "require", "verify-full"], |o, word| o.is_encrypted = word != "disable"),
            "TLS with the certificates of the system, alike in both modes"),
        Field::new("timeout_millis", "2000", Millis(TIMEOUTS, |o, span| o.timeout = span),
            "the limit for any answer of the server, connecting included"),
        Field::new("host", "", Text("an absolute path", Self::use_socket),
            "the folder of the server's socket, if the URL names no host"),
    ] };

    /// Reads a URL: `postgres://user:password@h1:5432,h2:5432/database?option=value`. Of several hosts the first that is a
    /// primary is used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for any other text, for an option that is not known, and for a value
    /// that is out of range; `Unsupported` for TLS without the feature `tls`. The message never holds the URL.
    pub fn parse(url: &str) -> Result<Self, Error> {
        super::url::options(url)
    }

    /// The defaults, for a database.
    pub(super) fn new(mut config: Config, address: String) -> Self {
        config
            .application_name("leasehold")
            .ssl_mode(SslMode::Disable)
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE / 3)
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        Self {
            config,
            address,
            listen: None,
            creates: false,
            max_ttl: Duration::from_secs(30),
            timeout: Duration::from_secs(2),
            is_encrypted: false,
        }
    }

    /// With another longest TTL.
    pub(crate) fn max_ttl(mut self, max_ttl: Duration) -> Result<Self, Error> {
        self.max_ttl = Self::OPTIONS.within("max_ttl", max_ttl, TTLS)?;
        Ok(self)
    }

    fn use_socket(&mut self, folder: &str) -> Result<(), Error> {
        if !folder.starts_with('/') {
            return Err(super::url::not_a_socket());
        }
        self.config.host_path(folder);
        folder.clone_into(&mut self.address);
        Ok(())
    }

    /// The server to listen at.
    pub(super) fn listening(&self) -> Config {
        let Some(HostPort { host, port }) = &self.listen else {
            return self.config.clone();
        };
        let mut config = Config::new();
        if let Some(user) = self.config.get_user() {
            config.user(user);
        }
        if let Some(password) = self.config.get_password() {
            config.password(password);
        }
        if let Some(database) = self.config.get_dbname() {
            config.dbname(database);
        }
        config.host(host).port(*port);
        let mut config = Self::new(config, String::new()).config;
        config.ssl_mode(self.config.get_ssl_mode());
        config
    }

    pub(crate) fn longest_ttl(&self) -> Duration {
        self.max_ttl
    }
}

/// The server to listen at.
fn server(address: &str) -> Result<HostPort, Error> {
    HostPort::parse(address, super::url::PORT).ok_or_else(|| {
        Error::invalid("it is no address; write the host and the port of the server itself, such as listen=db.example:5432")
    })
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("address", &self.address)
            .field("database", &self.config.get_dbname())
            .field("listen", &self.listen)
            .field("create", &self.creates)
            .field("max_ttl", &self.max_ttl)
            .field("timeout", &self.timeout)
            .field("tls", &self.is_encrypted)
            .finish_non_exhaustive()
    }
}
