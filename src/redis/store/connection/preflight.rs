//! What a server reports about itself on every connect: `INFO`, and nothing that needs an
//! operator's rights.
//!
//! A script asks, as the scripts that judge the server do: a proxy that answers `INFO` by itself,
//! or refuses it, would describe another server than the one behind it.
//!
//! A server that does not allow `INFO` (managed services, access lists) is no error here: it
//! [grants nothing](super::super::judge) unless `restart_quarantine=off`. `CONFIG` is asked for
//! what `INFO` does not say. One that allows neither is taken for one that drops no keys, with a
//! warning, and that has the defaults.

use std::collections::HashMap;
use std::time::Duration;

use ::redis::{ErrorKind as Redis, RedisError, ServerErrorKind};

use super::super::fault;
use super::opened::Opened;
use super::target::Target;
use crate::model::error::Error;

/// For how long a server remembers that it was a replica, if it does not say so: its default.
const REMEMBERS: Duration = Duration::from_secs(3_600);
/// So much of an id distinguishes servers.
const ID_DIGITS: usize = 16;
/// What a server reported about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct Server {
    /// New with each start of the process. `None`: the server does not allow us to read it.
    pub(in super::super) run_id: Option<String>,
    /// The beginnings of the run's id and of the id of its data, which is new with each promotion,
    /// and the number of the database: as `judge.lua` writes them.
    pub(in super::super) id: Option<String>,
    /// For how long it remembers at least that it was a replica; zero: for ever.
    pub(in super::super) backlog: Duration,
    /// Replicas that copy from it.
    pub(in super::super) replicas: u32,
}

impl Server {
    /// The name of its run in texts of ours.
    pub(in super::super) fn run(&self) -> &str {
        self.run_id.as_deref().unwrap_or("?")
    }
}

/// Reads and judges.
pub(super) async fn preflight(opened: &mut Opened, target: &Target) -> Result<Server, Error> {
    let address = &target.options.address();
    let mut asked = info(opened, &[]).await;
    if matches!(&asked, Err(error) if error.kind() == Redis::Server(ServerErrorKind::ResponseError))
    {
        // A proxy that chooses the server by the first key passes on no script without one. A node
        // of a cluster may not have this key.
        let key = target.options.names.marker(None);
        asked = info(opened, &[key]).await.or(asked);
    }
    let text = match asked {
        Ok(text) => text,
        Err(error) if is_no_permission(&error) => String::new(),
        Err(error) => return Err(fault::not_connected(&error, address)),
    };
    let info = Info::parse(&text);
    info.judge(address)?;
    let memory = info.memory();
    let memory = match memory {
        Memory::Unknown => {
            let settings = config(opened, "maxmemory*").await;
            Memory::of(["maxmemory", "maxmemory-policy"].map(|name| settings.get(name)))
        }
        known => known,
    };
    target.judge_memory(&memory)?;
    let mut server = info.server();
    server.id = (server.id).map(|id| format!("{id}-{}", target.options.database()));
    if let Some(seconds) = (config(opened, "repl-backlog-ttl")
        .await
        .get("repl-backlog-ttl"))
    .and_then(|seconds| seconds.parse().ok())
    {
        server.backlog = Duration::from_secs(seconds);
    }
    Ok(server)
}

/// By a script with these keys, which it does not touch.
async fn info(opened: &mut Opened, keys: &[String]) -> Result<String, RedisError> {
    let mut command = ::redis::cmd("EVAL");
    command.arg("return redis.call('INFO', 'all')");
    command.arg(keys.len()).arg(keys);
    let asked = command.query_async(&mut opened.connection);
    opened.limit.of(asked).await
}

fn is_no_permission(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        Redis::Server(ServerErrorKind::NoPerm | ServerErrorKind::ResponseError)
    )
}

/// The settings by these names; none if that is refused.
async fn config(opened: &mut Opened, names: &str) -> HashMap<String, String> {
    let mut command = ::redis::cmd("CONFIG");
    command.arg("GET").arg(names);
    let asked = command.query_async(&mut opened.connection);
    opened.limit.of(asked).await.unwrap_or_default()
}

/// What a server does when its memory is full.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Memory {
    /// It refuses what needs more.
    Keeps,
    /// It drops keys by this policy.
    Drops(String),
    Unknown,
}

impl Memory {
    /// By the limit and the policy.
    fn of([limit, policy]: [Option<impl AsRef<str>>; 2]) -> Self {
        let limit = limit.and_then(|limit| limit.as_ref().parse::<u64>().ok());
        match policy.as_ref().map(AsRef::as_ref) {
            Some("noeviction") => Self::Keeps,
            _ if limit == Some(0) => Self::Keeps,
            Some(policy) => Self::Drops(policy.to_owned()),
            None => Self::Unknown,
        }
    }
}

/// The lines of `INFO`.
struct Info<'a>(HashMap<&'a str, &'a str>);

impl<'a> Info<'a> {
    fn parse(text: &'a str) -> Self {
        Self(
            text.lines()
                .filter_map(|line| line.trim_end().split_once(':'))
                .collect(),
        )
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).copied()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Refuses a server that cannot keep a lock.
    fn judge(&self, address: &str) -> Result<(), Error> {
        let version = self.text("redis_version").unwrap_or_default();
        if self.is_before(6) {
            return Err(Error::unsupported(format!(
                "this redis is too old: address={address} version={version}; use version 6 or later"
            )));
        }
        if self.text("role") == Some("slave") {
            return Err(Error::unavailable(format!(
                "this redis is a replica: address={address}; connect to its master, or wait until it is promoted"
            )));
        }
        if self.number("loading") == Some(1) {
            return Err(Error::unavailable(format!(
                "this redis is still loading its data: address={address}; try later"
            )));
        }
        Ok(())
    }

    fn is_before(&self, version: u32) -> bool {
        let major = self
            .text("redis_version")
            .and_then(|all| all.split('.').next());
        let major = major.and_then(|major| major.parse().ok());
        major.is_some_and(|major: u32| major < version)
    }

    fn memory(&self) -> Memory {
        Memory::of(["maxmemory", "maxmemory_policy"].map(|name| self.text(name)))
    }

    fn server(&self) -> Server {
        let id = |name| self.text(name).filter(|id| is_word(id));
        let begin = |id: &'a str| id.get(..ID_DIGITS).unwrap_or(id);
        let (run_id, data_id) = (id("run_id"), id("master_replid"));
        Server {
            run_id: run_id.map(str::to_owned),
            id: (run_id.zip(data_id)).map(|(run, data)| format!("{}-{}", begin(run), begin(data))),
            backlog: REMEMBERS,
            replicas: self
                .number("connected_slaves")
                .and_then(|n| n.try_into().ok())
                .unwrap_or(0),
        }
    }
}

/// It is written into the marker, between blanks.
fn is_word(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:00ff\r\nuptime_in_seconds:10\r\n\
        # Replication\r\nrole:master\r\nconnected_slaves:1\r\nmaster_replid:0b00\r\nmaster_replid2:0000\r\n\
        # Memory\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n";

    fn refusal(change: (&str, &str)) -> String {
        let text = INFO.replace(change.0, change.1);
        Info::parse(&text).judge("h:1").unwrap_err().to_string()
    }

    #[test]
    fn a_server_is_read_from_its_info() {
        Info::parse(INFO).judge("h:1").unwrap();
        let server = Info::parse(INFO).server();
        assert_eq!(server.run_id.as_deref(), Some("00ff"));
        assert_eq!(server.id.as_deref(), Some("00ff-0b00"));
        assert_eq!(server.replicas, 1);
        let long = INFO.replace("00ff", &"0123456789".repeat(4));
        let server = Info::parse(&long).server();
        assert_eq!(server.id.as_deref(), Some("0123456789012345-0b00"));
    }

    #[test]
    fn a_server_may_drop_locks_if_its_memory_is_limited_and_its_policy_allows_it() {
        let drops = || Memory::Drops("allkeys-lru".to_owned());
        assert_eq!(Info::parse(INFO).memory(), Memory::Keeps);
        let limited = INFO.replace("maxmemory:0", "maxmemory:9");
        assert_eq!(Info::parse(&limited).memory(), drops());
        let unlimited = INFO.replace("maxmemory:0", "other:0");
        assert_eq!(Info::parse(&unlimited).memory(), drops(), "it does not say");
        let limited = limited.replace("allkeys-lru", "noeviction");
        assert_eq!(Info::parse(&limited).memory(), Memory::Keeps);
        assert_eq!(Info::parse("").memory(), Memory::Unknown);
    }

    #[test]
    fn replicas_loading_and_old_servers_are_refused() {
        assert!(refusal(("role:master", "role:slave")).contains("replica"));
        assert!(refusal(("role:master", "role:master\r\nloading:1")).contains("loading"));
        assert!(refusal(("7.0.15", "5.0.7")).contains("version=5.0.7"));
    }

    #[test]
    fn a_server_that_hides_its_info_is_trusted_with_nothing() {
        let unknown = Server {
            backlog: REMEMBERS,
            ..Server::default()
        };
        assert_eq!(Info::parse("").server(), unknown);
        Info::parse("").judge("h:1").unwrap();
    }
}
