//! [`PostgresOptions`]: which database, and how it is used.

use std::fmt;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use crate::model::error::Error;
use crate::store::url::{HostPort, within};

/// A shorter TTL is lost in the scheduler's noise; nobody waits for the end of a longer one.
const MAX_TTL_RANGE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(86_400)];
const TIMEOUT_RANGE: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(60)];
/// When the operating system asks a silent server for a sign of life, and how often.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Which PostgreSQL database, and how it is used (feature `postgres`).
///
/// ```
/// use leasehold::store::PostgresOptions;
///
/// let url = "postgres://app:secret@db.example:5432/app?max_ttl=1m";
/// let options = PostgresOptions::parse(url)?;
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// | option | default | meaning |
/// |---|---|---|
/// | `max_ttl` | `30s` | [`max_ttl`](Self::max_ttl) |
/// | `create` | `never` | `auto`: creates the schema if there is none, which needs the right to |
/// | `listen` | none | [`listen`](Self::listen) |
/// | `sslmode` | `disable` | `verify-full`, or `require`, which means the same here: TLS (feature `tls`), with the certificates of the system |
/// | `timeout_millis` | `2000` | [`timeout`](Self::timeout) |
/// | `host` | none | the folder of the server's socket, if the URL names no host: `postgres:///app?host=/run/postgresql` |
///
/// `Debug` shows neither user nor password.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) config: Config,
    /// For messages.
    pub(super) address: String,
    pub(super) listen: Option<HostPort>,
    pub(super) creates: bool,
    pub(super) max_ttl: Duration,
    pub(super) says_max_ttl: bool,
    pub(super) timeout: Duration,
    pub(super) is_encrypted: bool,
}

impl PostgresOptions {
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
            says_max_ttl: false,
            timeout: Duration::from_secs(2),
            is_encrypted: false,
        }
    }

    /// The longest TTL that any client may ask for. Default 30 s; 100 ms to a day.
    ///
    /// It is one constant of the database: the schema stores it when it is created (`UPDATE leasehold.lock_meta SET max_ttl`
    /// changes it), and a client with another is refused. A server that may lack grants gives none for this long.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is out of range.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Result<Self, Error> {
        self.max_ttl = within("max_ttl", max_ttl, MAX_TTL_RANGE)?;
        Ok(self)
    }

    /// How long any answer of the server may take, connecting included. Default 2 s; 1 ms to a minute. Managers bound their
    /// requests by [`request_timeout`](crate::Settings::request_timeout); this is the bound for other callers.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is out of range.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        self.timeout = within("timeout", timeout, TIMEOUT_RANGE)?;
        Ok(self)
    }

    /// Where messages are received: `host:port` of the server itself, if the URL names a pooler, which drops messages. User,
    /// password and database are those of the URL.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is no host and port.
    pub fn listen(mut self, address: &str) -> Result<Self, Error> {
        self.listen = Some(HostPort::parse(address, super::url::PORT).ok_or_else(|| {
            Error::invalid("option listen is no address; write the host and the port of the server itself, such as listen=db.example:5432")
        })?);
        Ok(self)
    }

    /// Whether the schema is created at the connect if there is none. Default no. It needs the right to create a schema in the
    /// database, once; other clients then need USAGE on the schema `leasehold`.
    #[must_use]
    pub fn create(mut self, auto: bool) -> Self {
        self.creates = auto;
        self
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

    /// Whether the URL gave it.
    pub(crate) fn says_max_ttl(&self) -> bool {
        self.says_max_ttl
    }

    pub(crate) fn longest_ttl(&self) -> Duration {
        self.max_ttl
    }
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
