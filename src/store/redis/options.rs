//! [`RedisOptions`]: which server, and how it is used.

use std::fmt;
use std::time::Duration;

use ::redis::{Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use super::cluster::Seeds;
use super::hosts::moved_to;
use super::names::Names;
use super::sentinel::Sentinels;
use crate::model::error::Error;

/// Below this a heartbeat cannot be told from the scheduler's noise; above, nobody waits for a quarantine to end.
const MAX_TTL_RANGE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(86_400)];
const TIMEOUT_RANGE: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(60)];

/// Which Redis server, and how it is used (feature `redis`).
///
/// ```
/// use leasehold::store::RedisOptions;
///
/// let options = RedisOptions::parse("redis://:secret@db.example:6379/0?prefix=app&max_ttl=1m")?;
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// | option | default | |
/// |---|---|---|
/// | `prefix` | none | all keys begin with it and a `:`; the rules of a [`Key`](crate::Key) |
/// | `max_ttl` | `30s` | [`max_ttl`](Self::max_ttl) |
/// | `restart_quarantine` | `on` | [`restart_quarantine`](Self::restart_quarantine) |
/// | `replicas` | `0` | [`replicas`](Self::replicas) |
/// | `replica_wait` | `100ms` | [`replica_wait`](Self::replica_wait) |
/// | `timeout_millis` | `2000` | [`timeout`](Self::timeout) |
/// | `sentinel_user`, `sentinel_password` | none | what the sentinels ask for, behind `redis+sentinel://` |
///
/// `Debug` shows neither user nor password.
#[derive(Clone)]
pub struct RedisOptions {
    /// Behind sentinels and in a cluster its address is not used: they name the server.
    pub(super) server: ConnectionInfo,
    pub(super) sentinels: Option<Sentinels>,
    seeds: Option<Seeds>,
    pub(crate) names: Names,
    pub(super) max_ttl: Duration,
    says_max_ttl: bool,
    pub(super) quarantine: bool,
    pub(super) replicas: u32,
    pub(super) replica_wait: Duration,
    pub(super) timeout: Duration,
}

impl RedisOptions {
    /// Reads a URL: `redis://user:password@host:port/db?option=value`, `rediss://` for TLS (with the feature
    /// `redis-tls`; certificates are always verified), `unix:///path/to.sock?db=0` for a Unix socket.
    ///
    /// `redis+sentinel://user:password@h1:26379,h2:26379,h3:26379/master/db?option=value` (with the feature `redis-sentinel`)
    /// for the master that a majority of these sentinels names, asked anew on every connect; user and password are those of
    /// the servers. What a fail-over may lose is said at [`replicas`](Self::replicas). `rediss+sentinel://` for TLS to the servers
    /// and to the sentinels.
    ///
    /// `redis+cluster://user:password@h1:7000,h2:7001,h3:7002/?option=value` (with the feature `redis-cluster`) for a Redis
    /// Cluster, of which the named nodes tell the others. The addresses that the nodes announce must be those by which they
    /// can be reached; with `rediss+cluster://`, for TLS, those of their certificates.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what is no such URL, for an option that is not known, and for
    /// a value that is out of range. The message never holds the URL.
    pub fn parse(url: &str) -> Result<Self, Error> {
        if url.starts_with("rediss+") && !cfg!(feature = "redis-tls") {
            return Err(no_tls());
        }
        if let Some((sentinels, server)) = Sentinels::parse(url)? {
            return Self::parse_with(&server, Some(sentinels));
        }
        if let Some((seeds, server)) = Seeds::parse(url)? {
            let options = Self::parse_with(&server, None)?;
            return Ok(Self {
                seeds: Some(seeds),
                ..options
            });
        }
        Self::parse_with(url, None)
    }

    fn parse_with(url: &str, mut sentinels: Option<Sentinels>) -> Result<Self, Error> {
        let url = ::redis::parse_redis_url(url).ok_or_else(|| {
            Error::invalid("this is no Redis URL; write redis://user:password@host:6379/0?prefix=app, rediss:// or unix://")
        })?;
        if url.fragment().is_some() {
            return Err(Error::invalid(
                "a Redis URL takes no #fragment: certificates are always verified; leave it out",
            ));
        }
        let given: Vec<(String, String)> = url
            .query_pairs()
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        // A raw `?` in a password makes options of what is behind it, up to the `@` of the host.
        let may_quote = !url.query().unwrap_or_default().contains('@');
        let is_socket = !url.has_host();
        if url.scheme() == "rediss" && !cfg!(feature = "redis-tls") {
            return Err(no_tls());
        }
        // The client's own texts may quote a part of the URL.
        let server = url.into_connection_info().map_err(|error| {
            Error::invalid(format!(
                "the Redis URL was refused: reason={}; check host, port, database number and scheme",
                error.category()
            ))
        })?;
        let mut options = Self::of(server)?;
        for (index, (name, value)) in given.iter().enumerate() {
            let is_repeated = given[..index].iter().any(|(other, _)| other == name);
            let taken = if is_repeated {
                Err(Error::invalid(format!(
                    "the URL says an option twice: {}; say it once",
                    quoted(name)
                )))
            } else {
                options.take(name, value, is_socket, sentinels.as_mut())
            };
            options = taken.map_err(|why| if may_quote { why } else { unquotable() })?;
        }
        options.sentinels = sentinels;
        Ok(options)
    }

    /// Takes one option of a URL.
    fn take(
        mut self,
        name: &str,
        value: &str,
        is_socket: bool,
        sentinels: Option<&mut Sentinels>,
    ) -> Result<Self, Error> {
        match (name, sentinels) {
            ("prefix", _) => self.prefix(value),
            ("max_ttl", _) => {
                self.says_max_ttl = true;
                self.max_ttl(span(name, value)?)
            }
            ("restart_quarantine", _) => Ok(self.restart_quarantine(switch(name, value)?)),
            ("replicas", _) => Ok(self.replicas(number(name, value)?)),
            ("replica_wait", _) => self.replica_wait(span(name, value)?),
            ("timeout_millis", _) => {
                self.timeout(Duration::from_millis(number(name, value)?.into()))
            }
            ("db" | "user" | "pass", _) if is_socket => Ok(self),
            ("sentinel_user", Some(sentinels)) => {
                sentinels.user(value);
                Ok(self)
            }
            ("sentinel_password", Some(sentinels)) => {
                sentinels.password(value);
                Ok(self)
            }
            _ => Err(Error::invalid(format!(
                "a Redis URL has no such option: {}; use prefix, max_ttl, restart_quarantine, replicas, replica_wait, timeout_millis, and behind redis+sentinel:// sentinel_user, sentinel_password",
                quoted(name)
            ))),
        }
    }

    /// What holds between the options.
    pub(super) fn validate(&self) -> Result<(), Error> {
        if self.replicas > 0 && self.replica_wait >= self.timeout {
            return Err(Error::invalid(format!(
                "option replica_wait={:?} leaves no time for an answer; set it below timeout={:?}",
                self.replica_wait, self.timeout
            )));
        }
        Ok(())
    }

    fn of(server: ConnectionInfo) -> Result<Self, Error> {
        // RESP3: the server tells us by push when a lock is free, and a dead connection is noticed at once.
        let settings = (server.redis_settings().clone())
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        let tcp = server.tcp_settings().clone().set_nodelay(true);
        Ok(Self {
            server: server.set_redis_settings(settings).set_tcp_settings(tcp),
            sentinels: None,
            seeds: None,
            names: Names::parse("")?,
            max_ttl: Duration::from_secs(30),
            says_max_ttl: false,
            quarantine: true,
            replicas: 0,
            replica_wait: Duration::from_millis(100),
            timeout: Duration::from_secs(2),
        })
    }

    /// All keys begin with `prefix` and a `:`. Empty: none.
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
    /// It is one constant of the prefix: it stands in the server, and a client with another is refused; with
    /// [`restart_quarantine`](Self::restart_quarantine) switched off nobody compares it. A server that may have forgotten
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
    /// nothing until the last of them has ended, [`max_ttl`](Self::max_ttl) later. Default on, and without effect on the
    /// restart of a server that persists every write, and did so before; a server without data is taken for one that lost its disk.
    /// Off: two may hold after a restart. For tests and throw-away servers.
    #[must_use]
    pub fn restart_quarantine(mut self, on: bool) -> Self {
        self.quarantine = on;
        self
    }

    /// How many replicas must confirm a grant before it is given out, and a renewal before it counts. Default 0. With fewer
    /// confirmations the grant is taken back and the acquire is refused. A claim that queues keeps its place: its grant is in doubt
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
    /// their requests by [`request_timeout`](crate::Settings::request_timeout); this is the bound for whoever does not.
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

    /// Whether a copy of the server that may lack grants may take its place, and nobody waits for the copies.
    pub(super) fn may_lose_grants(&self, has_replicas: bool) -> bool {
        self.replicas == 0 && (has_replicas || self.sentinels.is_some())
    }

    /// The nodes that a URL names; `None` where there is no cluster.
    pub(super) fn seeds(&self) -> Option<&Seeds> {
        self.seeds.as_ref()
    }

    /// Whether the locks are spread over the nodes of a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        self.seeds.is_some()
    }

    /// The same for one node of a cluster.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        Self {
            server: moved_to(&self.server, host, port),
            seeds: None,
            ..self.clone()
        }
    }

    /// Whether another server may take the place of this one.
    pub(crate) fn is_behind_sentinels(&self) -> bool {
        self.sentinels.is_some()
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
            .field("replicas", &self.replicas)
            .field("replica_wait", &self.replica_wait)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

fn no_tls() -> Error {
    Error::unsupported(
        "leasehold was built without TLS for Redis; build it with the feature redis-tls",
    )
}

fn within(name: &str, span: Duration, [least, most]: [Duration; 2]) -> Result<Duration, Error> {
    if (least..=most).contains(&span) {
        return Ok(span);
    }
    Err(Error::invalid(format!(
        "option {name}={span:?} is out of range; set it from {least:?} to {most:?}"
    )))
}

/// An option's name, for messages: only what may be one, since a part of a password may have come in its place.
fn quoted(name: &str) -> String {
    let may_be_one = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    if (1..=32).contains(&name.len()) && name.bytes().all(may_be_one) {
        format!("name={name}")
    } else {
        "its name is not small letters and underscores, and is not shown".to_owned()
    }
}

fn unquotable() -> Error {
    Error::invalid(
        "an option of the Redis URL is refused, and is not shown, since an @ stands behind the ?; write ?, / and # in a password as %3F, %2F and %23, and @ in an option as %40",
    )
}

fn refuse(name: &str, value: &str, use_instead: &str) -> Error {
    let shown: String = value.chars().take(40).collect();
    Error::invalid(format!(
        "option {name}={shown:?} cannot be read; use {use_instead}"
    ))
}

fn span(name: &str, value: &str) -> Result<Duration, Error> {
    humantime::parse_duration(value)
        .map_err(|_| refuse(name, value, "a duration such as 30s or 500ms"))
}

fn number(name: &str, value: &str) -> Result<u32, Error> {
    value
        .parse()
        .map_err(|_| refuse(name, value, "a whole number"))
}

fn switch(name: &str, value: &str) -> Result<bool, Error> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(refuse(name, value, "on or off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_with_its_options() {
        let url = "redis://me:secret@db:7000/2?prefix=app&max_ttl=5s&restart_quarantine=off&replicas=1&timeout_millis=200";
        let options = RedisOptions::parse(url).unwrap();
        assert_eq!(options.address(), "db:7000");
        assert_eq!(options.names.prefix(), "app:");
        assert_eq!(options.max_ttl, Duration::from_secs(5));
        assert!(!options.quarantine);
        assert_eq!(options.replicas, 1);
        assert_eq!(options.timeout, Duration::from_millis(200));
        assert_eq!(options.server.redis_settings().db(), 2);
        let socket =
            RedisOptions::parse("unix:///run/redis.sock?db=3&user=me&pass=secret").unwrap();
        assert_eq!(socket.server.redis_settings().db(), 3);
        assert!(socket.server.redis_settings().password() == Some("secret"));
    }

    #[test]
    fn a_password_is_never_shown() {
        let options = RedisOptions::parse("redis://me:sesame@db:7000").unwrap();
        let shown = format!("{options:?}");
        assert!(
            !shown.contains("sesame") && !shown.contains("me:"),
            "{shown}"
        );
        for url in [
            "redis://me:sesame@db:nonsense",
            "redis://me:sesame@db/nonsense",
            "redis://me:sesame@0.0.0.0",
            "redis://me:sesame@db?colour=blue",
            "redis://me:12?sesame@db",
            "redis://me:12?sesame&more@db",
            "redis://me:12?max_ttl=sesame@db",
            "redis://me:12?prefix=sesame%20@db",
            "redis://me:12?prefix=a&prefix=sesame@db",
            "redis://me:12/sesame@db",
            "redis://me:12#sesame@db",
            "redis://db?Sesame9=1",
            "redis://me:sesame@db?max_ttl=soon",
            "redis://me:sesame@db#insecure",
            "http://me:sesame@db",
        ] {
            let error = RedisOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{url}");
            assert!(!format!("{error:?} {error}").contains("sesame"), "{error}");
        }
    }

    #[test]
    fn a_refusal_names_option_value_and_range() {
        let message = |query: &str| {
            RedisOptions::parse(&format!("redis://db?{query}"))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            message("max_ttl=1ms"),
            "invalid: option max_ttl=1ms is out of range; set it from 100ms to 86400s"
        );
        let slow = RedisOptions::parse("redis://db?replicas=1&replica_wait=3s").unwrap();
        assert!(
            slow.validate()
                .unwrap_err()
                .to_string()
                .contains("replica_wait=3s")
        );
        assert!(message("restart_quarantine=maybe").contains("use on or off"));
        assert!(message("colour=blue").contains("name=colour"));
        for twice in ["prefix=a&prefix=b", "max_ttl=5s&max%5Fttl=6s"] {
            assert!(message(twice).contains("twice"), "{twice}");
        }
        assert!(message("replicas=-1").contains("replicas=\"-1\""));
        assert!(message("prefix={x}").contains("not allowed"));
    }
}
