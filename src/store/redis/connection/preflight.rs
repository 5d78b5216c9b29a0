//! What a server reports about itself on every connect: `INFO`, and nothing that needs an operator's rights.
//!
//! A server that does not allow `INFO` or `CONFIG` (managed services, access lists) counts as not durable, never as an error.

use std::collections::HashMap;
use std::time::Duration;

use ::redis::{ErrorKind as Redis, RedisError, ServerErrorKind};

use super::super::fault;
use super::opened::Opened;
use super::target::Target;
use crate::model::error::Error;

/// The counts of the commands that remove all data. The acquire script adds up the same.
const FLUSHES: [&str; 3] = ["cmdstat_flushall", "cmdstat_flushdb", "cmdstat_swapdb"];

/// What a server reported about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct Server {
    /// New with each start of the process. `None`: the server does not allow us to read it.
    pub(in super::super) run_id: Option<String>,
    /// The run, and for a server that was a replica in it also the last promotion: its data are new with each.
    pub(in super::super) incarnation: Option<String>,
    /// At least this long; `None`: unknown.
    pub(in super::super) uptime: Option<Duration>,
    /// It was a replica once in this run: its data are a copy, however long it runs.
    pub(in super::super) was_replica: bool,
    /// Its data were flushed once in this run.
    pub(in super::super) was_flushed: bool,
    /// Every write is on disk before it is answered.
    pub(in super::super) durable: bool,
    /// Replicas that copy from it.
    pub(in super::super) replicas: u32,
    /// Changes when it restarts, and when its data are flushed or replaced by those of another server. The acquire script
    /// reads the same.
    pub(in super::super) account: String,
}

impl Server {
    /// A word: the incarnation, or `?` if the server hides it.
    pub(in super::super) fn incarnation_or_hidden(&self) -> &str {
        self.incarnation.as_deref().unwrap_or("?")
    }
}

/// Reads and judges.
pub(super) async fn preflight(opened: &mut Opened, target: &Target) -> Result<Server, Error> {
    let address = &target.options.address();
    let mut command = ::redis::cmd("INFO");
    command.arg("all");
    let asked = command.query_async::<String>(&mut opened.connection);
    let text = match opened.limit.of(asked).await {
        Ok(text) => text,
        Err(error) if is_no_permission(&error) => return Ok(Server::default()),
        Err(error) => return Err(fault::not_connected(&error, address)),
    };
    let info = Info::parse(&text);
    info.judge(address)?;
    if let Some(policy) = info.evicting_policy() {
        target.judge_eviction(policy)?;
    }
    let mut server = info.server();
    // `INFO` reports that there is a log, but not whether each write waits for it.
    if info.number("aof_enabled") == Some(1) {
        server.durable =
            info.text("aof_last_write_status") == Some("ok") && fsyncs_always(opened).await;
    }
    Ok(server)
}

fn is_no_permission(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        Redis::Server(ServerErrorKind::NoPerm | ServerErrorKind::ResponseError)
    )
}

/// With `no-appendfsync-on-rewrite` a server skips the sync while it rewrites its log.
async fn fsyncs_always(opened: &mut Opened) -> bool {
    let mut command = ::redis::cmd("CONFIG");
    // One pattern, since a server of version 6 takes only one name.
    command.arg("GET").arg("*appendfsync*");
    let asked = command.query_async::<HashMap<String, String>>(&mut opened.connection);
    let settings = opened.limit.of(asked).await;
    settings.is_ok_and(|settings| {
        let is = |name: &str, wanted: &str| settings.get(name).is_some_and(|value| value == wanted);
        is("appendfsync", "always") && is("no-appendfsync-on-rewrite", "no")
    })
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
        if version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok())
            .is_some_and(|major: u32| major < 6)
        {
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

    /// By which rule the server drops keys when its memory is full; `None` if it drops none.
    fn evicting_policy(&self) -> Option<&'a str> {
        let policy = self.text("maxmemory_policy").unwrap_or("noeviction");
        let is_limited = self.number("maxmemory").unwrap_or(0) > 0;
        (is_limited && policy != "noeviction").then_some(policy)
    }

    fn server(&self) -> Server {
        let flushes = self.flushes();
        let copied = self.text("master_replid2").unwrap_or_default();
        let was_replica = copied.bytes().any(|digit| digit != b'0');
        let run = self.text("run_id").unwrap_or_default();
        let run_id = Some(run).filter(|id| is_word(id));
        Server {
            run_id: run_id.map(str::to_owned),
            incarnation: run_id.map(|run| match was_replica && is_word(copied) {
                true => format!("{run}-{copied}"),
                false => run.to_owned(),
            }),
            // Both ends of the server's count are whole seconds.
            uptime: self
                .number("uptime_in_seconds")
                .map(|seconds| Duration::from_secs(seconds.saturating_sub(1))),
            was_replica,
            was_flushed: flushes > 0,
            durable: false,
            replicas: self
                .number("connected_slaves")
                .and_then(|n| n.try_into().ok())
                .unwrap_or(0),
            account: format!("{flushes}:{copied}:{run}"),
        }
    }

    /// How often anything was flushed in this run, or two databases were swapped.
    fn flushes(&self) -> u64 {
        let calls = |name: &&str| {
            let stats = self.text(name)?.strip_prefix("calls=")?;
            stats.split(',').next()?.parse::<u64>().ok()
        };
        FLUSHES.iter().filter_map(calls).sum()
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
        # Replication\r\nrole:master\r\nconnected_slaves:1\r\nmaster_replid2:0000\r\n\
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
        assert_eq!(server.incarnation.as_deref(), Some("00ff"));
        assert_eq!(server.uptime, Some(Duration::from_secs(9)));
        assert_eq!(server.replicas, 1);
        assert!(!server.was_replica && !server.was_flushed && !server.durable);
        assert_eq!(server.account, "0:0000:00ff");
        let text = format!(
            "{}cmdstat_flushall:calls=1,usec=3\r\ncmdstat_flushdb:calls=2,usec=3\r\n\
             cmdstat_swapdb:calls=4,usec=3\r\n",
            INFO.replace("0000", "0a00")
        );
        let server = Info::parse(&text).server();
        assert!(server.was_replica && server.was_flushed);
        assert_eq!(server.run_id.as_deref(), Some("00ff"));
        assert_eq!(server.incarnation.as_deref(), Some("00ff-0a00"));
        assert_eq!(server.account, "7:0a00:00ff");
    }

    #[test]
    fn a_server_may_drop_locks_if_its_memory_is_limited_and_its_policy_allows_it() {
        assert_eq!(Info::parse(INFO).evicting_policy(), None);
        let limited = INFO.replace("maxmemory:0", "maxmemory:9");
        let policy = Info::parse(&limited).evicting_policy();
        assert_eq!(policy, Some("allkeys-lru"));
        let limited = limited.replace("allkeys-lru", "noeviction");
        assert_eq!(Info::parse(&limited).evicting_policy(), None);
    }

    #[test]
    fn replicas_loading_and_old_servers_are_refused() {
        assert!(refusal(("role:master", "role:slave")).contains("replica"));
        assert!(refusal(("role:master", "role:master\r\nloading:1")).contains("loading"));
        assert!(refusal(("7.0.15", "5.0.7")).contains("version=5.0.7"));
    }

    #[test]
    fn a_server_that_hides_its_info_counts_as_not_durable() {
        let unknown = Server {
            account: "0::".into(),
            ..Server::default()
        };
        assert_eq!(Info::parse("").server(), unknown);
        Info::parse("").judge("h:1").unwrap();
    }
}
