//! [`ZooKeeperOptions`]: where the ensemble is and how its locks look in its tree, from a URL.

use std::time::Duration;

use super::acl::{AclEntry, ZooKeeperAcl};
use crate::model::credentials::Credentials;
use crate::model::error::{BoxError, Error};
use crate::model::options::Accepts::{Span, Text, Words};
use crate::model::options::{Field, Options, Range};
use crate::store::access::{Login, files};
use crate::store::url::{HostPort, StoreUrl};

/// Where a ZooKeeper ensemble is, and how its locks look in its tree (feature `zookeeper`).
///
/// As a URL:
/// `zookeeper://[user:password@]h1:2181,h2:2181[/chroot][?session_timeout=10s&mode=queue]`. User
/// and password are percent-encoded. `Debug` does not show the password.
///
/// ```
/// use std::time::Duration;
/// use leasehold::zookeeper::ZooKeeperOptions;
///
/// let url = "zookeeper://zk1:2181,zk2:2181/locks?session_timeout=15s";
/// let options = ZooKeeperOptions::parse(url)?;
/// assert_eq!(options.session_timeout, Duration::from_secs(15));
/// assert_eq!(options.tick_time, Duration::from_secs(2));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ZooKeeperOptions {
    /// The servers, as `host:port` with commas between.
    pub servers: String,
    /// The node under which every key lives: empty, or `/` and a path. It is made when it is
    /// missing.
    pub chroot: String,
    /// The session time-out to ask for. The server may grant another one, which then is the TTL of
    /// every lock. Default 10 s; 1 s to 10 minutes, and at least [`MIN_TICKS`](Self::MIN_TICKS)
    /// ticks.
    pub session_timeout: Duration,
    /// The servers' `tickTime`, or more. Default 2 s; 10 ms to a minute. A deadline counts from a
    /// heartbeat that is at least a tick older than the newest: with less than the true tick a
    /// lease may outlive its lock.
    pub tick_time: Duration,
    /// Who we are, by ZooKeeper's `digest` scheme: with a user, whose name has no colon.
    pub credentials: Option<Credentials>,
    /// Who may use the nodes that we make. Default none: [`Creator`](ZooKeeperAcl::Creator) with
    /// credentials, [`Open`](ZooKeeperAcl::Open) without.
    pub acl: Option<ZooKeeperAcl>,
    /// How a lock is laid out.
    pub mode: ZooKeeperMode,
    /// The client library that talks to the servers.
    pub driver: DriverKind,
    /// Replaces the credentials at each session, if they change.
    pub(super) login: Login,
}

/// The client library that talks to the servers (feature `zookeeper`): `driver=zookeeper-client` or
/// `driver=zookeeper-async` in a URL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DriverKind {
    /// The crate `zookeeper-client`. The default.
    Client,
    /// The crate `zookeeper-async` (feature of that name), isolated: one request in flight, and any
    /// trouble with the connection ends the session and every hold. It does not learn which
    /// time-out the server granted, so [`session_timeout`](ZooKeeperOptions::session_timeout) must
    /// be one that the servers grant in full: at most [`MAX_TICKS`](ZooKeeperOptions::MAX_TICKS)
    /// ticks unless they are configured otherwise.
    #[cfg(feature = "zookeeper-async")]
    Async,
}

impl DriverKind {
    fn named(name: &str) -> Result<Self, Error> {
        match name {
            "zookeeper-client" => Ok(Self::Client),
            #[cfg(feature = "zookeeper-async")]
            "zookeeper-async" => Ok(Self::Async),
            #[cfg(not(feature = "zookeeper-async"))]
            "zookeeper-async" => Err(Error::unsupported(
                "the driver zookeeper-async is not built in; build with the feature of that name",
            )),
            _ => Err(Error::invalid(
                "no driver has this name; use zookeeper-client or zookeeper-async",
            )),
        }
    }
}

/// How a lock is laid out in the tree. All of our clients of a key should use the same; those that
/// do not still exclude each other. Other libraries know only the queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ZooKeeperMode {
    /// A queue of ephemeral sequential nodes, first come, first served, of readers and writers too.
    /// Takes turns with some locks of Apache Curator and of kazoo on the same path: see [the
    /// table](crate::docs::coming_from).
    Queue,
    /// One ephemeral node: one request less where nobody contends, unfair, without readers, and a
    /// release wakes every waiter.
    Simple,
}

const EXAMPLE: &str = "zookeeper://user:password@h1:2181,h2:2181/chroot?session_timeout=10s";
const PORT: u16 = 2_181;
const TIMEOUTS: Range = [Duration::from_secs(1), Duration::from_secs(600)];
const TICKS: Range = [Duration::from_millis(10), Duration::from_secs(60)];

impl ZooKeeperOptions {
    #[rustfmt::skip]
    pub(crate) const OPTIONS: Options<Self> = Options { of: "ZooKeeper", fields: &[
        Field::new("session_timeout", "10s", Span(TIMEOUTS, |o, span| o.session_timeout = span),
            "the TTL of every lock; at least four ticks"),
        Field::new("tick_time", "2s", Span(TICKS, |o, span| o.tick_time = span),
            "the servers' `tickTime`, or more; a smaller value is unsafe"),
        Field::new("mode", "queue", Words(&["queue", "simple"], |o, word| o.mode = if word == "simple" { ZooKeeperMode::Simple } else { ZooKeeperMode::Queue }),
            "`simple`: one ephemeral node, unfair, without readers, one request less"),
        Field::new("acl", "", Text("creator, open or scheme:id:permissions", |o, text| { o.acl = Some(ZooKeeperAcl::parse(text)?); Ok(()) }),
            "who may use our nodes; by default with a user `creator`, otherwise `open`"),
        Field::new("driver", "zookeeper-client", Text("zookeeper-client or zookeeper-async", |o, name| { o.driver = DriverKind::named(name)?; Ok(()) }),
            "the client library; the second needs the feature of its name"),
        Field::new("user_file", "", Text("the path of a file", |o, path| { o.login.user_file = Some(files::path(path)?); Ok(()) }),
            "the user, read for each session"),
        Field::new("password_file", "", Text("the path of a file", |o, path| { o.login.password_file = Some(files::path(path)?); Ok(()) }),
            "the password, read for each session"),
    ] };

    /// The least number of ticks in a session time-out.
    ///
    /// A deadline counts from a heartbeat that is a tick and up to two heartbeats old. With four
    /// ticks nearly half of the time-out is left after a heartbeat, which is three heartbeats.
    pub const MIN_TICKS: u32 = 4;

    /// What a server grants at most, unless its `maxSessionTimeout` says otherwise. A driver that
    /// does not learn what was granted refuses to ask for more.
    #[cfg(feature = "zookeeper-async")]
    pub const MAX_TICKS: u32 = 20;

    /// Options with the defaults, for these servers.
    #[must_use]
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            chroot: String::new(),
            session_timeout: Duration::from_secs(10),
            tick_time: Duration::from_secs(2),
            credentials: None,
            acl: None,
            mode: ZooKeeperMode::Queue,
            driver: DriverKind::Client,
            login: Login::default(),
        }
    }

    /// Asks `provider` for the credentials of each session, within the time that a session may take
    /// to open. A session that is open keeps its own. They replace
    /// [`credentials`](Self::credentials), whose user stays if the provider names none.
    ///
    /// ZooKeeper knows a user by name *and* password: the nodes that one password made admit no
    /// other, unless `acl` names both.
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

    /// The same with what the login says now, if it says anything.
    pub(super) fn with_login(&self, now: Option<Credentials>) -> Result<Self, Error> {
        let mut options = self.clone();
        if let Some(now) = now {
            let user = self.credentials.as_ref().and_then(Credentials::user);
            options.credentials = Some(now.or_of(user));
            options.validate()?;
        }
        Ok(options)
    }

    /// Parses a URL and checks it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) with the part that is wrong. The message
    /// never shows the credentials.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let url = StoreUrl::parse(url, EXAMPLE)?;
        if url.scheme() != "zookeeper" {
            return Err(Error::invalid(format!(
                "this is no ZooKeeper URL; write {EXAMPLE}"
            )));
        }
        let servers = url.hosts(PORT)?;
        let servers: Vec<_> = servers.iter().map(HostPort::to_string).collect();
        let mut options = Self::new(servers.join(","));
        if !url.path().is_empty() {
            options.chroot = format!("/{}", url.path());
        }
        let (user, password) = (url.user()?, url.password()?);
        Self::OPTIONS.read(url.scheme(), url.options(), &mut options)?;
        (options.login).check(user.is_some(), password.is_some())?;
        let is_fixed = options.login.is_fixed();
        options.credentials = match (user, password) {
            (None, None) => None,
            (Some(_), None) if is_fixed => {
                return Err(Error::invalid(
                    "a ZooKeeper URL has a user without a password; write user:password@ before the servers, or password_file=",
                ));
            }
            // The password comes with each session.
            (user, password) => {
                let user = user.unwrap_or_default();
                Some(Credentials::new(user, password.unwrap_or_default()))
            }
        };
        options.validate()?;
        Ok(options)
    }

    /// Checks every field against its range and against the others.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), naming the first field that is out of
    /// range, its value and what is allowed.
    pub fn validate(&self) -> Result<(), Error> {
        if self.servers.is_empty() || self.servers.split(',').any(str::is_empty) {
            return Err(Error::invalid(
                "a zookeeper url names no server, or an empty one; use host:port,host:port",
            ));
        }
        let within = |name, value, range| Self::OPTIONS.within(name, value, range).map(drop);
        within("session_timeout", self.session_timeout, TIMEOUTS)?;
        within("tick_time", self.tick_time, TICKS)?;
        check_chroot(&self.chroot)?;
        if let Some(credentials) = &self.credentials {
            let user = credentials.user().unwrap_or_default();
            if user.is_empty() || user.contains(':') {
                return Err(Error::invalid(
                    "a zookeeper user may not be empty or have a colon; fix the credentials",
                ));
            }
        }
        let is_nobody = self.credentials.is_none() && self.login.is_fixed();
        if self.acl == Some(ZooKeeperAcl::Creator) && is_nobody {
            return Err(Error::invalid(
                "zookeeper acl=creator needs credentials; write user:password@ before the servers, or acl=open",
            ));
        }
        #[cfg(feature = "zookeeper-async")]
        if self.driver == DriverKind::Async {
            let range = [TIMEOUTS[0], self.tick_time * Self::MAX_TICKS];
            within("session_timeout", self.session_timeout, range)?;
        }
        self.check_ticks(self.session_timeout)
    }

    /// The access list of the nodes that we make.
    pub(crate) fn acl_entries(&self) -> Vec<AclEntry> {
        let default = match self.credentials {
            Some(_) => ZooKeeperAcl::Creator,
            None => ZooKeeperAcl::Open,
        };
        self.acl.as_ref().unwrap_or(&default).entries()
    }

    /// Whether a session time-out has ticks enough: for the one that is asked for, and again for
    /// the one that is granted.
    pub(crate) fn check_ticks(&self, session_timeout: Duration) -> Result<(), Error> {
        if session_timeout >= self.tick_time * Self::MIN_TICKS {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "zookeeper session_timeout={session_timeout:?} has fewer than {} ticks of tick_time={:?}; a lease counts from a \
             heartbeat that is at least a tick old, because a follower reports a session to its leader only every half tick: \
             ask for a longer session (and allow it by the servers' maxSessionTimeout), or set tick_time to the servers' \
             tickTime if that is shorter",
            Self::MIN_TICKS,
            self.tick_time,
        )))
    }
}

/// Credentials as the scheme `digest` has them.
pub(super) fn digest(credentials: &Credentials) -> String {
    let user = credentials.user().unwrap_or_default();
    format!("{user}:{}", credentials.expose())
}

fn check_chroot(chroot: &str) -> Result<(), Error> {
    let Some(path) = chroot.strip_prefix('/') else {
        return if chroot.is_empty() {
            Ok(())
        } else {
            Err(Error::invalid(
                "a zookeeper chroot starts with a slash; write /name",
            ))
        };
    };
    // A chroot is written by the operator, but a key's rules are the strictest that suit every
    // tool.
    let key = crate::model::key::Key::parse(path)
        .map_err(|_| Error::invalid("a zookeeper chroot has the rules of a key; choose another"))?;
    if key.as_str().split('/').next() == Some("zookeeper") {
        return Err(Error::invalid(
            "the chroot /zookeeper is zookeeper's own; choose another",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        ZooKeeperOptions::parse(url).unwrap_err().to_string()
    }

    #[test]
    fn a_url_says_servers_chroot_and_times() {
        let options = ZooKeeperOptions::parse(
            "zookeeper://a:1,b:2/x/y/?session_timeout=30s&tick_time=500ms&mode=simple",
        )
        .unwrap();
        assert_eq!(options.servers, "a:1,b:2");
        assert_eq!(options.chroot, "/x/y");
        assert_eq!(options.session_timeout, Duration::from_secs(30));
        assert_eq!(options.tick_time, Duration::from_millis(500));
        assert_eq!(options.mode, ZooKeeperMode::Simple);
        assert_eq!(options.credentials, None);
        assert_eq!(
            ZooKeeperOptions::parse("zookeeper://a:1").unwrap(),
            ZooKeeperOptions::new("a:1")
        );
    }

    #[test]
    fn credentials_are_decoded_and_never_shown() {
        let options = ZooKeeperOptions::parse("zookeeper://me:s%3Acr%40t@a:1").unwrap();
        assert_eq!(digest(options.credentials.as_ref().unwrap()), "me:s:cr@t");
        assert_eq!(options.servers, "a:1");
        assert!(!format!("{options:?}").contains("cr@t"));
    }

    #[test]
    fn too_few_ticks_are_refused_with_the_reason() {
        let message = refusal("zookeeper://a:1?session_timeout=7s");
        assert!(
            message.contains("session_timeout=7s") && message.contains("tick_time=2s"),
            "{message}"
        );
        assert!(message.contains("every half tick"), "{message}");
        ZooKeeperOptions::parse("zookeeper://a:1?session_timeout=8s").unwrap();
    }

    #[test]
    fn what_is_unknown_is_refused_not_ignored() {
        assert!(refusal("zookeeper://a:1?session-timeout=9s").contains("session-timeout"));
        assert!(refusal("zookeeper://a:1?mode=queue&mode=simple").contains("name=mode"));
        assert!(refusal("zookeeper://a:1/zookeeper/x").contains("zookeeper's own"));
        assert!(refusal("zookeeper://").contains("names its servers"));
    }
}
