//! [`RedisOptions`]: which server, and how it is used.

use std::fmt;
use std::time::Duration;

use ::redis::{Cmd, ConnectionAddr, ConnectionInfo, ProtocolVersion};

use super::cluster::Seeds;
use super::members::Members;
use super::names::Names;
use super::sentinel::Sentinels;
use crate::model::error::Error;
use crate::store::url::within;

/// A shorter TTL is lost in the scheduler's noise; nobody waits for the end of a longer quarantine.
const MAX_TTL_RANGE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(86_400)];
const TIMEOUT_RANGE: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(60)];

/// Which Redis server, and how it is used (feature `redis`).
///
/// ```
/// use leasehold::store::RedisOptions;
///
/// let url = "redis://:secret@db.example:6379/0?prefix=app&max_ttl=1m";
/// let options = RedisOptions::parse(url)?;
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// | option | default | meaning |
/// |---|---|---|
/// | `prefix` | none | all keys begin with it and a `:`; the rules of a [`Key`](crate::Key) |
/// | `max_ttl` | `30s` | [`max_ttl`](Self::max_ttl) |
/// | `restart_quarantine` | `on` | [`restart_quarantine`](Self::restart_quarantine) |
/// | `eviction` | `refuse` | `accept`: [`accept_eviction`](Self::accept_eviction) |
/// | `replicas` | `0` | [`replicas`](Self::replicas) |
/// | `replica_wait` | `100ms` | [`replica_wait`](Self::replica_wait) |
/// | `timeout_millis` | `2000` | [`timeout`](Self::timeout) |
/// | `sentinel_user`, `sentinel_password` | none | the user and password for the sentinels, after `redis+sentinel://` |
///
/// `Debug` shows neither user nor password.
#[derive(Clone)]
pub struct RedisOptions {
    /// Behind sentinels and in a cluster its address is not used: they name the server.
    pub(super) server: ConnectionInfo,
    pub(super) sentinels: Option<Sentinels>,
    pub(super) seeds: Option<Seeds>,
    /// The servers that its URL names beside it, which must be others.
    pub(super) members: Option<Members>,
    pub(crate) names: Names,
    pub(super) max_ttl: Duration,
    pub(super) says_max_ttl: bool,
    pub(super) quarantine: bool,
    pub(super) accepts_eviction: bool,
    pub(super) replicas: u32,
    pub(super) replica_wait: Duration,
    pub(super) timeout: Duration,
}

impl RedisOptions {
    /// Reads a URL: `redis://user:password@host:port/db?option=value`, `rediss://` for TLS (with the feature
    /// `tls`; certificates are always verified), `unix:///path/to.sock?db=0` for a Unix socket.
    ///
    /// `redis+sentinel://user:password@h1:26379,h2:26379,h3:26379/master/db?option=value`
    /// for the master that a majority of these sentinels names, asked again on every connect; user and password are those of
    /// the servers. [`replicas`](Self::replicas) describes what a fail-over may lose. `rediss+sentinel://` for TLS to the servers
    /// and to the sentinels.
    ///
    /// `redis+cluster://user:password@h1:7000,h2:7001,h3:7002/?option=value` for a Redis
    /// Cluster, whose other nodes are found through the named ones. The addresses that the nodes announce must be those by which they
    /// can be reached; with `rediss+cluster://`, for TLS, those of their certificates.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for any other text, for an option that is not known, and for
    /// a value that is out of range. The message never holds the URL.
    pub fn parse(url: &str) -> Result<Self, Error> {
        super::url::options(url)
    }

    /// The options of each member of a quorum, from `redlock://user:password@h1:6379,h2,h3/db?options`.
    pub(crate) fn parse_members(url: &str) -> Result<Vec<Self>, Error> {
        super::url::members(url)
    }

    /// The rules between options.
    pub(super) fn validate(&self) -> Result<(), Error> {
        if self.replicas > 0 && self.replica_wait >= self.timeout {
            return Err(Error::invalid(format!(
                "option replica_wait={:?} leaves no time for an answer; set it below timeout={:?}",
                self.replica_wait, self.timeout
            )));
        }
        Ok(())
    }

    /// The defaults, for a server.
    pub(super) fn new(server: ConnectionInfo) -> Result<Self, Error> {
        // RESP3: the server pushes a message when a lock is free, and a dead connection is noticed at once.
        let settings = (server.redis_settings().clone())
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        let tcp = server.tcp_settings().clone().set_nodelay(true);
        Ok(Self {
            server: server.set_redis_settings(settings).set_tcp_settings(tcp),
            sentinels: None,
            seeds: None,
            members: None,
            names: Names::parse("")?,
            max_ttl: Duration::from_secs(30),
            says_max_ttl: false,
            quarantine: true,
            accepts_eviction: false,
            replicas: 0,
            replica_wait: Duration::from_millis(100),
            timeout: Duration::from_secs(2),
        })
    }

    /// All keys begin with `prefix` and a `:`. Empty: none.
    ///
    /// Of prefixes that begin with each other, such as `a` and `a:b`, or of one and none, use one only, or keep the locks apart by their
    /// names: `b:x` under `a` is the lock `x` under `a:b`. Such clients need the same [`max_ttl`](Self::max_ttl), and the tokens of the lock
    /// grow only among the clients of one prefix.
    ///
    /// # Errors
    ///
    /// `Invalid` if it breaks the rules of a [`Key`](crate::Key).
    pub fn prefix(mut self, prefix: &str) -> Result<Self, Error> {
        self.names = Names::parse(prefix)?;
        Ok(self)
    }

    /// The longest TTL that any client may ask for under this prefix. Default 30 s; 100 ms to a day.
    ///
    /// It is one constant of the prefix: the server stores it, and a client with another is refused; with
    /// [`restart_quarantine`](Self::restart_quarantine) switched off it is not compared. A server that may have forgotten
    /// locks grants none for this long.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is out of range.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Result<Self, Error> {
        self.max_ttl = within("max_ttl", max_ttl, MAX_TTL_RANGE)?;
        Ok(self)
    }

    /// Whether a server that may have forgotten locks (it restarted, was replaced by a replica, or was flushed) grants
    /// nothing until the last of them has ended, [`max_ttl`](Self::max_ttl) later. Default on, whatever the server has on disk: that may
    /// be the copy of a replica, or an older one. Off: two may hold after a restart. For tests and throw-away servers.
    #[must_use]
    pub fn restart_quarantine(mut self, on: bool) -> Self {
        self.quarantine = on;
        self
    }

    /// Whether a server is used that may drop locks when its memory is full: `maxmemory` is set, and `maxmemory-policy` is not
    /// `noeviction`. Default off: such a server is refused.
    ///
    /// On: a warning is logged once for each store, and the capability says
    /// [`Fencing::None`](crate::store::Fencing::None). When the server drops a lock, another caller may hold it until the first
    /// holder's next renewal finds that out; when it drops a counter, tokens may go back. Managed services set `volatile-lru` by
    /// default: change `maxmemory-policy` to `noeviction` there, and leave this off.
    #[must_use]
    pub fn accept_eviction(mut self, on: bool) -> Self {
        self.accepts_eviction = on;
        self
    }

    /// How many replicas must confirm a grant before the caller gets it, and a renewal before it counts. Default 0. With fewer
    /// confirmations the grant is taken back and the acquire is refused. A claim that waits keeps its place: its grant is in doubt
    /// until it is asked again and confirmed, or withdrawn. A renewal proves nothing then, and the hold lapses unless a
    /// later one is confirmed.
    ///
    /// Copying is asynchronous: after a fail-over the new master may lack the newest grants. Without `replicas` tokens do
    /// not promise to grow behind sentinels or with replicas, in a cluster too, and a deposed master that comes back may
    /// grant for some seconds beside the new one. With `replicas` it may do so only while as many replicas are cut off
    /// together with it; and a master grants nothing while it has too few.
    #[must_use]
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// How long an acquire or a renewal waits for the replicas. Default 100 ms; 1 ms to a minute. Keep it below the
    /// [`request_timeout`](crate::Settings::request_timeout) of the managers.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is out of range.
    pub fn replica_wait(mut self, wait: Duration) -> Result<Self, Error> {
        self.replica_wait = within("replica_wait", wait, TIMEOUT_RANGE)?;
        Ok(self)
    }

    /// How long any answer of the server may take, connecting included. Default 2 s; 1 ms to a minute. Managers bound
    /// their requests by [`request_timeout`](crate::Settings::request_timeout); this is the bound for other callers.
    ///
    /// After a failed attempt to connect, or a connection that did nothing for a caller, the next one begins after 100 ms, then after
    /// twice as long each time, up to 2 s or a tenth of `max_ttl`. A request that would wait longer than 200 ms for it fails with
    /// the error of the last attempt.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is out of range.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        self.timeout = within("timeout", timeout, TIMEOUT_RANGE)?;
        Ok(self)
    }

    /// The command that waits until enough replicas have what its connection wrote.
    pub(super) fn wait_for_replicas(&self) -> Cmd {
        let mut wait = ::redis::cmd("WAIT");
        wait.arg(self.replicas)
            .arg(self.replica_wait.as_millis().to_string());
        wait
    }

    /// Whether a copy that may lack grants may replace the server and nobody waits for the copies, or the server may drop
    /// grants itself.
    pub(super) fn may_lose_grants(&self, has_replicas: bool) -> bool {
        let may_lag = self.replicas == 0 && (has_replicas || self.sentinels.is_some());
        may_lag || self.accepts_eviction
    }

    /// The nodes that a URL names; `None` where there is no cluster.
    pub(super) fn seeds(&self) -> Option<&Seeds> {
        self.seeds.as_ref()
    }

    /// Whether the locks are spread over the nodes of a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        self.seeds.is_some()
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
        let is_tls = matches!(self.server.addr(), ConnectionAddr::TcpTls { .. });
        self.server.clone().set_addr(tcp(is_tls, host, port))
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

    /// Whether the URL gave it.
    pub(crate) fn says_max_ttl(&self) -> bool {
        self.says_max_ttl
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
            return seeds.to_string();
        }
        self.server.addr().to_string()
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("address", &self.address())
            .field(
                "tls",
                &matches!(self.server.addr(), ConnectionAddr::TcpTls { .. }),
            )
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
