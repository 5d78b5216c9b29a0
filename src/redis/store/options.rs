//! [`RedisOptions`]: which server, and how it is used.

use std::fmt;
use std::time::Duration;

use ::redis::{Cmd, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::cluster::Address;
use super::connection::How;
use super::members::Members;
use super::names::Names;
use super::sentinel::Sentinels;
use crate::clock::Clock;
use crate::model::credentials::Credentials;
use crate::model::error::{BoxError, Error};
use crate::model::options::Accepts::{Millis, Number, Secret, Span, Text, Words};
use crate::model::options::{Field, Options, Range};
use crate::store::access::{Login, TlsFiles, files};

/// A shorter TTL is lost in the scheduler's noise; nobody waits for the end of a longer quarantine.
const TTLS: Range = [Duration::from_millis(100), Duration::from_secs(86_400)];
const TIMEOUTS: Range = [Duration::from_millis(1), Duration::from_secs(60)];

/// Which Redis server, and how it is used (feature `redis`).
///
/// ```
/// use leasehold::redis::RedisOptions;
///
/// let url = "redis://:secret@db.example:6379/0?prefix=app&max_ttl=1m";
/// let options = RedisOptions::parse(url)?;
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// [The guide](crate::docs::stores::redis#options) has the options. `Debug` shows neither user nor
/// password.
#[derive(Clone)]
pub struct RedisOptions {
    /// Behind sentinels and in a cluster its address is not used: they name the server.
    pub(super) server: ConnectionInfo,
    /// Replaces user and password of the server, if they change.
    pub(super) login: Login,
    pub(super) tls: TlsFiles,
    pub(super) sentinels: Option<Sentinels>,
    /// The nodes of a cluster that the URL names; `None` where there is no cluster.
    pub(super) seeds: Option<Vec<Address>>,
    /// The servers that its URL names beside it, which must be others.
    pub(super) members: Option<Members>,
    pub(crate) names: Names,
    pub(super) max_ttl: Duration,
    pub(super) quarantine: bool,
    pub(super) accepts_eviction: bool,
    pub(super) replicas: u32,
    pub(super) replica_wait: Duration,
    pub(super) timeout: Duration,
}

impl RedisOptions {
    #[rustfmt::skip]
    pub(crate) const OPTIONS: Options<Self> = Options { of: "Redis", fields: &[
        Field::new("prefix", "", Text("the characters of a key", |o, prefix| { o.names = Names::parse(prefix)?; Ok(()) }),
            "all keys begin with it and a `:`"),
        Field::new("max_ttl", "30s", Span(TTLS, |o, span| o.max_ttl = span),
            "the longest TTL of any client of the prefix; the same for all clients"),
        Field::new("restart_quarantine", "on", Words(&["on", "off"], |o, word| o.quarantine = word == "on"),
            "`off`: a server that may have forgotten locks grants at once, for tests"),
        Field::new("eviction", "refuse", Words(&["accept", "refuse"], |o, word| o.accepts_eviction = word == "accept"),
            "whether to use a server that may drop locks when its memory is full"),
        Field::new("replicas", "0", Number(|o, number| o.replicas = number),
            "how many replicas must confirm a grant, and each renewal"),
        Field::new("replica_wait", "100ms", Span(TIMEOUTS, |o, span| o.replica_wait = span),
            "how long to wait for them"),
        Field::new("timeout_millis", "2000", Millis(TIMEOUTS, |o, span| o.timeout = span),
            "the limit for any answer of the server, connecting included"),
        Field::new("user_file", "", Text("the path of a file", |o, path| { o.login.user_file = Some(files::path(path)?); Ok(()) }),
            "the user, read at each connect"),
        Field::new("password_file", "", Text("the path of a file", |o, path| { o.login.password_file = Some(files::path(path)?); Ok(()) }),
            "the password, read at each connect"),
        Field::new("ca", "", Text("the path of a file", |o, path| { o.tls.ca = TlsFiles::path(path)?; Ok(()) }),
            "with TLS: the authorities to trust, instead of those of the system (PEM)"),
        Field::new("cert", "", Text("the path of a file", |o, path| { o.tls.cert = TlsFiles::path(path)?; Ok(()) }),
            "with TLS: our certificate, for servers that demand one (PEM)"),
        Field::new("key", "", Text("the path of a file", |o, path| { o.tls.key = TlsFiles::path(path)?; Ok(()) }),
            "with TLS: the key of our certificate (PEM, without a passphrase)"),
        Field::new("sentinel_user", "", Secret(|o: &mut Self, user| o.at_sentinels(|all| all.user(user))),
            "after `redis+sentinel://`: for sentinels that ask for a user").only("sentinel"),
        Field::new("sentinel_password", "", Secret(|o: &mut Self, password| o.at_sentinels(|all| all.password(password))),
            "after `redis+sentinel://`: the password for them").only("sentinel"),
        Field::new("sentinel_user_file", "", Text("the path of a file", |o: &mut Self, path| { let path = files::path(path)?; o.at_sentinels(|all| all.login.user_file = Some(path)); Ok(()) }),
            "after `redis+sentinel://`: the user for them, read at each connect").only("sentinel"),
        Field::new("sentinel_password_file", "", Text("the path of a file", |o: &mut Self, path| { let path = files::path(path)?; o.at_sentinels(|all| all.login.password_file = Some(path)); Ok(()) }),
            "after `redis+sentinel://`: the password for them, read at each connect").only("sentinel"),
        Field::new("user", "", Secret(|o: &mut Self, user| o.log_in(|info| info.set_username(user))),
            "after `unix://`: the user").only("unix"),
        Field::new("pass", "", Secret(|o: &mut Self, password| o.log_in(|info| info.set_password(password))),
            "after `unix://`: the password").only("unix"),
        Field::new("db", "0", Text("a whole number", Self::use_database),
            "after `unix://`: the number of the database").only("unix"),
    ] };

    /// Reads [a URL](crate::docs::stores::redis) of one server, of a master behind sentinels, or of
    /// a cluster.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for any other text, for an option that is
    /// not known, and for a value that is out of range. The message never holds the URL.
    pub fn parse(url: &str) -> Result<Self, Error> {
        super::url::options(url)
    }

    /// The server of a client that you have already, with its address, database, credentials and
    /// certificates, unless the options name others. `options` are written as in a URL; without any
    /// it is `""`.
    ///
    /// The store opens connections of its own. It cannot share yours, nor take them from a pool: an
    /// answer that comes late must not be taken for that of another request, and a message that
    /// wakes a waiter comes over the connection that subscribed.
    ///
    /// ```
    /// use leasehold::redis::RedisOptions;
    ///
    /// let client = redis::Client::open("redis://db.example:6379/0")?;
    /// let server = client.get_connection_info().clone();
    /// let options = RedisOptions::of_client(server, "prefix=app&max_ttl=1m")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), and `Invalid` for a client that does not verify its server, and
    /// for the options `ca`, `cert` and `key` beside certificates of the client: name all of them
    /// as options, and open the client without.
    pub fn of_client(server: ConnectionInfo, options: &str) -> Result<Self, Error> {
        super::url::of_client(server, options)
    }

    /// Asks `provider` for the credentials at each connect: for passwords that change, and for
    /// tokens that expire. They replace those of the URL, whose user stays if the provider names
    /// none. Sentinels have [their own](Self::sentinel_credentials_from).
    ///
    /// The provider has as long as a connect may take, `timeout_millis`. A server that refuses the
    /// credentials is dialled once more if the provider then has others. A connection that is open
    /// is not changed, so keep a token until the next one works. [The
    /// guide](crate::docs::credentials) has examples.
    ///
    /// ```
    /// use leasehold::Credentials;
    /// use leasehold::redis::RedisOptions;
    ///
    /// # async fn token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// let options = RedisOptions::parse("rediss://cache.example:6379")?
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
        self.login = Login::provided(provider);
        self
    }

    /// The same for the sentinels of `redis+sentinel://`, which have users of their own. Without
    /// sentinels it changes nothing. Each of them asks for itself, at each connect.
    ///
    /// # Cancel safety
    ///
    /// The future of the provider may be dropped.
    #[must_use]
    pub fn sentinel_credentials_from<F, Fut>(mut self, provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        self.at_sentinels(|all| all.login = Login::provided(provider));
        self
    }

    /// The options of each member of a quorum, from
    /// `redlock://user:password@h1:6379,h2,h3/db?options`.
    pub(crate) fn parse_members(url: &str) -> Result<Vec<Self>, Error> {
        super::url::members(url)
    }

    /// The rules between options.
    pub(super) fn validate(&self) -> Result<(), Error> {
        if self.replicas > 0 && self.replica_wait >= self.timeout {
            return Err(Error::invalid(format!(
                "option replica_wait={:?} leaves no time for an answer; set it below timeout_millis={}",
                self.replica_wait,
                self.timeout.as_millis()
            )));
        }
        Ok(())
    }

    /// How each connection is made.
    pub(super) fn how<'a>(&'a self, clock: &'a Clock) -> How<'a> {
        How {
            login: &self.login,
            tls: &self.tls,
            clock,
            timeout: self.timeout,
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.server.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// The defaults, for a server.
    pub(super) fn new(server: ConnectionInfo) -> Result<Self, Error> {
        // RESP3: the server pushes a message when a lock is free, and a dead connection is noticed
        // at once.
        let settings = (server.redis_settings().clone())
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        let tcp = server.tcp_settings().clone().set_nodelay(true);
        Ok(Self {
            server: server.set_redis_settings(settings).set_tcp_settings(tcp),
            login: Login::default(),
            tls: TlsFiles::named(["ca", "cert", "key"]),
            sentinels: None,
            seeds: None,
            members: None,
            names: Names::parse("")?,
            max_ttl: Duration::from_secs(30),
            quarantine: true,
            accepts_eviction: false,
            replicas: 0,
            replica_wait: Duration::from_millis(100),
            timeout: Duration::from_secs(2),
        })
    }

    fn at_sentinels(&mut self, change: impl FnOnce(&mut Sentinels)) {
        if let Some(sentinels) = &mut self.sentinels {
            change(sentinels);
        }
    }

    /// Changes what a connection says first: user, password, database.
    pub(super) fn log_in(
        &mut self,
        change: impl FnOnce(RedisConnectionInfo) -> RedisConnectionInfo,
    ) {
        let info = change(self.server.redis_settings().clone());
        self.server = self.server.clone().set_redis_settings(info);
    }

    fn use_database(&mut self, number: &str) -> Result<(), Error> {
        let number = super::url::database(number)?;
        self.log_in(|info| info.set_db(number));
        Ok(())
    }

    /// With another longest TTL.
    pub(crate) fn max_ttl(mut self, max_ttl: Duration) -> Result<Self, Error> {
        self.max_ttl = Self::OPTIONS.within("max_ttl", max_ttl, TTLS)?;
        Ok(self)
    }

    /// The same, for a server that may not drop what it holds.
    pub(crate) fn refusing_eviction(mut self) -> Self {
        self.accepts_eviction = false;
        self
    }

    /// The command that waits until enough replicas have what its connection wrote.
    pub(super) fn wait_for_replicas(&self) -> Cmd {
        let mut wait = ::redis::cmd("WAIT");
        wait.arg(self.replicas)
            .arg(self.replica_wait.as_millis().to_string());
        wait
    }

    /// Whether a copy that may lack grants may replace the server and nobody waits for the copies,
    /// or the server may drop grants itself.
    pub(super) fn may_lose_grants(&self, has_replicas: bool) -> bool {
        let may_lag = self.replicas == 0 && (has_replicas || self.sentinels.is_some());
        may_lag || self.accepts_eviction
    }

    /// The same for one server at another address: a node of a cluster, a member of a quorum.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        Self {
            server: self.server_at(host, port),
            seeds: None,
            ..self.clone()
        }
    }

    /// A server at another address, connected to in the same way.
    pub(super) fn server_at(&self, host: &str, port: u16) -> ConnectionInfo {
        (self.server.clone()).set_addr(tcp(self.is_tls(), host, port))
    }

    /// Whether another server may replace this one.
    pub(crate) fn is_behind_sentinels(&self) -> bool {
        self.sentinels.is_some()
    }

    /// Whether grants wait for replicas.
    pub(crate) fn waits_for_replicas(&self) -> bool {
        self.replicas > 0
    }

    /// The number of the database.
    pub(super) fn database(&self) -> i64 {
        self.server.redis_settings().db()
    }

    pub(crate) fn longest_ttl(&self) -> Duration {
        self.max_ttl
    }

    /// The server's address for messages: host and port, never user or password.
    pub(super) fn address(&self) -> String {
        if let Some(sentinels) = &self.sentinels {
            return sentinels.address();
        }
        if let Some(seeds) = &self.seeds {
            let seeds: Vec<_> = seeds.iter().map(Address::to_string).collect();
            return seeds.join(",");
        }
        self.server.addr().to_string()
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("address", &self.address())
            .field("login", &self.login)
            .field("tls", &self.is_tls().then_some(&self.tls))
            .field("prefix", &self.names.prefix())
            .field("max_ttl", &self.max_ttl)
            .field("restart_quarantine", &self.quarantine)
            .field("accept_eviction", &self.accepts_eviction)
            .field("replicas", &self.replicas)
            .field("replica_wait", &self.replica_wait)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Where a server is, by TCP.
pub(super) fn tcp(is_tls: bool, host: &str, port: u16) -> ConnectionAddr {
    let host = host.to_owned();
    if is_tls {
        return ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        };
    }
    ConnectionAddr::Tcp(host, port)
}
