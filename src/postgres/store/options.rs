//! [`PostgresOptions`]: which database, and how it is used.

use std::fmt;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, LoadBalanceHosts, SslMode, TargetSessionAttrs};

use super::dialer::{Dialer, Encryption};
use crate::model::credentials::Credentials;
use crate::model::error::{BoxError, Error};
use crate::model::options::Accepts::{Millis, Number, Secret, Span, Text, Words};
use crate::model::options::{Field, Options, Range};
use crate::store::access::{Login, TlsFiles, files};
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
/// [The guide](crate::docs::stores::postgres#options) has the options. `Debug` shows neither user
/// nor password.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(crate) config: Config,
    /// For messages.
    pub(super) address: String,
    pub(super) listen: Option<HostPort>,
    pub(super) creates: bool,
    /// The URL says so. A host may have the addresses of several servers.
    pub(crate) seeks_primary: bool,
    pub(super) max_ttl: Duration,
    pub(crate) timeout: Duration,
    pub(crate) dialer: Dialer,
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
        Field::new("sslmode", "disable", Words(Encryption::WORDS, |o, word| o.dialer.encryption = Encryption::of(word)),
            "TLS, and what of the server's certificate is verified"),
        Field::new("sslrootcert", "", Text("the path of a file, or system", |o, path| { o.dialer.tls.ca = if path == "system" { None } else { TlsFiles::path(path)? }; Ok(()) }),
            "with TLS: the authorities to trust, instead of those of the system (PEM)"),
        Field::new("sslcert", "", Text("the path of a file", |o, path| { o.dialer.tls.cert = TlsFiles::path(path)?; Ok(()) }),
            "with TLS: our certificate, for servers that demand one (PEM)"),
        Field::new("sslkey", "", Text("the path of a file", |o, path| { o.dialer.tls.key = TlsFiles::path(path)?; Ok(()) }),
            "with TLS: the key of our certificate (PEM, without a passphrase)"),
        Field::new("user_file", "", Text("the path of a file", |o, path| { o.dialer.login.user_file = Some(files::path(path)?); Ok(()) }),
            "the user, read at each connect"),
        Field::new("password_file", "", Text("the path of a file", |o, path| { o.dialer.login.password_file = Some(files::path(path)?); Ok(()) }),
            "the password, read at each connect"),
        Field::new("timeout_millis", "2000", Millis(TIMEOUTS, |o, span| o.timeout = span),
            "the limit for any answer of the server, connecting included"),
        Field::new("host", "", Text("an absolute path", Self::use_socket),
            "the folder of the server's socket, if the URL names no host"),
        // The names of libpq that the driver knows.
        Field::new("port", "", Number(|o, port| { o.config.port(u16::try_from(port).unwrap_or_default()); }),
            "the port of that socket"),
        Field::new("hostaddr", "", Text("one IP address", Self::use_address),
            "the address of the URL's one host, which is not looked up then"),
        Field::new("user", "", Text("a name", |o, user| { o.config.user(user); Ok(()) }),
            "the user, if the URL has none before its host"),
        Field::new("password", "", Secret(|o, password| { o.config.password(password); }),
            "the password, if the URL has none before its host"),
        Field::new("dbname", "", Text("a name", |o, name| { o.config.dbname(name); Ok(()) }),
            "the database, if the URL has no path"),
        Field::new("application_name", "leasehold fence", Text("a text", |o, name| { o.config.application_name(name); Ok(()) }),
            "what the server calls the connections of a fence; those of the store are `leasehold`"),
        Field::new("options", "", Text("settings as libpq has them", |o, text| { o.config.options(text); Ok(()) }),
            "settings of each session, such as `-c statement_timeout=5s`; those that the store needs go behind them"),
        Field::new("target_session_attrs", "read-write", Words(&["read-write", "primary", "any"], |o, word| o.seeks_primary = word != "any"),
            "the primary; a fence for one host seeks it if the URL says so"),
        Field::new("channel_binding", "prefer", Words(&["disable", "prefer", "require"], |o, word| { o.config.channel_binding(binding(word)); }),
            "with TLS: whether the password is bound to the certificate of the server"),
        Field::new("connect_timeout", "", Number(|o, seconds| if seconds > 0 { o.config.connect_timeout(Duration::from_secs(seconds.into())); }),
            "the seconds that a connect to one address may take; of a fence 5"),
        Field::new("tcp_user_timeout", "", Number(|o, millis| if millis > 0 { o.config.tcp_user_timeout(Duration::from_millis(millis.into())); }),
            "the milliseconds for which what was sent may stay unacknowledged"),
        Field::new("keepalives", "1", Words(&["0", "1"], |o, word| { o.config.keepalives(word == "1"); }),
            "whether a silent server is asked for a sign of life"),
        Field::new("keepalives_idle", "15", Number(|o, seconds| if seconds > 0 { o.config.keepalives_idle(Duration::from_secs(seconds.into())); }),
            "the seconds after which that begins"),
        Field::new("keepalives_interval", "5", Number(|o, seconds| if seconds > 0 { o.config.keepalives_interval(Duration::from_secs(seconds.into())); }),
            "the seconds between two of them"),
        Field::new("keepalives_count", "", Number(|o, count| if count > 0 { o.config.keepalives_retries(count); }),
            "after how many without an answer the connection is over"),
        Field::new("load_balance_hosts", "disable", Words(&["disable", "random"], |o, word| { o.config.load_balance_hosts(balance(word)); }),
            "`random`: the hosts are tried in any order"),
    ] };

    /// Reads a URL: `postgres://user:password@h1:5432,h2:5432/database?option=value`. Of several
    /// hosts the first that is a primary is used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for any other text, for an option that is
    /// not known, and for a value that is out of range; `Unsupported` for TLS without the feature
    /// `tls`. The message never holds the URL.
    pub fn parse(url: &str) -> Result<Self, Error> {
        super::url::options(url)
    }

    /// The database of a client that you have already, with its hosts, user, password and name.
    /// `options` are written as in a URL; without any it is `""`. A configuration that requires TLS
    /// is `sslmode=require`; any other is `disable`, unless `options` say otherwise.
    ///
    /// The store opens connections of its own. It cannot share yours, nor take them from a pool: a
    /// transaction of the pool's other users would keep its requests waiting, and a message that
    /// wakes a waiter comes over the connection that listens. For a fence over a pool see
    /// [SQL](crate::docs::sql).
    ///
    /// ```
    /// use leasehold::postgres::PostgresOptions;
    ///
    /// let mut config = tokio_postgres::Config::new();
    /// config.host("db.example").user("app").dbname("app");
    /// let options = PostgresOptions::of_client(config, "max_ttl=1m")?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), and `Invalid` for a configuration without a host.
    pub fn of_client(config: Config, options: &str) -> Result<Self, Error> {
        super::url::of_client(config, options)
    }

    /// Asks `provider` for the credentials at each connect: for passwords that change, and for
    /// tokens that expire. They replace those of the URL, whose user stays if the provider names
    /// none.
    ///
    /// The provider has as long as a connect may take, `timeout_millis`. A server that refuses the
    /// credentials is dialled once more if the provider then has others. [The
    /// guide](crate::docs::credentials) has examples.
    ///
    /// ```
    /// use leasehold::Credentials;
    /// use leasehold::postgres::PostgresOptions;
    ///
    /// # async fn token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// let url = "postgres://db.example/app?sslmode=verify-full";
    /// let options = PostgresOptions::parse(url)?
    ///     .credentials_from(async || Ok(Credentials::new("app", token().await?)));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The future of the provider may be dropped.
    #[must_use]
    pub fn credentials_from<F, Fut>(mut self, provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        self.dialer.login = Login::provided(provider);
        self
    }

    /// The defaults, for a database.
    pub(super) fn new(mut config: Config, address: String) -> Self {
        config
            .ssl_mode(SslMode::Disable)
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
            config.keepalives_idle(KEEPALIVE);
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_interval(KEEPALIVE / 3);
        }
        Self {
            config,
            address,
            listen: None,
            creates: false,
            seeks_primary: false,
            max_ttl: Duration::from_secs(30),
            timeout: Duration::from_secs(2),
            dialer: Dialer::default(),
        }
    }

    /// With another longest TTL.
    pub(crate) fn max_ttl(mut self, max_ttl: Duration) -> Result<Self, Error> {
        self.max_ttl = Self::OPTIONS.within("max_ttl", max_ttl, TTLS)?;
        Ok(self)
    }

    pub(super) fn use_socket(&mut self, folder: &str) -> Result<(), Error> {
        if !folder.starts_with('/') {
            return Err(super::url::not_a_socket());
        }
        self.config.host_path(folder);
        folder.clone_into(&mut self.address);
        Ok(())
    }

    fn use_address(&mut self, address: &str) -> Result<(), Error> {
        let address = address.parse().ok();
        let address = address.filter(|_| self.config.get_hosts().len() == 1);
        let address = address.ok_or_else(|| {
            Error::invalid("it is one IP address, in a URL with one host; write hostaddr=10.0.0.7")
        })?;
        self.config.hostaddr(address);
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
        if let Some(options) = self.config.get_options() {
            config.options(options);
        }
        if let Some(timeout) = self.config.get_connect_timeout() {
            config.connect_timeout(*timeout);
        }
        config
            .host(host)
            .port(*port)
            .keepalives(self.config.get_keepalives())
            .keepalives_idle(self.config.get_keepalives_idle())
            .channel_binding(self.config.get_channel_binding());
        let mut config = Self::new(config, String::new()).config;
        config.ssl_mode(self.config.get_ssl_mode());
        config
    }

    pub(crate) fn longest_ttl(&self) -> Duration {
        self.max_ttl
    }
}

fn binding(word: &str) -> ChannelBinding {
    match word {
        "disable" => ChannelBinding::Disable,
        "require" => ChannelBinding::Require,
        _ => ChannelBinding::Prefer,
    }
}

fn balance(word: &str) -> LoadBalanceHosts {
    match word {
        "random" => LoadBalanceHosts::Random,
        _ => LoadBalanceHosts::Disable,
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
            .field("dialer", &self.dialer)
            .finish_non_exhaustive()
    }
}
