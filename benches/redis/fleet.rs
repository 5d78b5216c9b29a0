//! The servers of all rows, started together so that their quarantine is waited out once; and what
//! a server counts.

use std::time::Duration;

use crate::server::RedisServer;

/// The default `max_ttl`, what members of a quorum add to it, and what the whole seconds of an
/// uptime may hide.
const QUARANTINE: Duration = Duration::from_secs(30 + 1 + 2);

/// Starts servers, and returns when they are old enough to be trusted.
pub(crate) fn start(count: usize) -> Vec<RedisServer> {
    let servers: Vec<_> = (0..count).map(|_| RedisServer::start()).collect();
    if count > 0 {
        println!("{count} servers: waiting {QUARANTINE:?} for the end of their quarantine");
        std::thread::sleep(QUARANTINE);
    }
    servers
}

/// The commands that only clients send: none of our scripts calls one.
const REQUESTS: [&str; 9] = [
    "evalsha",
    "eval",
    "subscribe",
    "unsubscribe",
    "ssubscribe",
    "sunsubscribe",
    "blpop",
    "rpush",
    "fcall",
];

/// How many requests the server has executed.
pub(crate) fn requests(server: &RedisServer) -> u64 {
    count(server, &REQUESTS, "calls=")
}

/// How many subscriptions were begun and ended among the [`requests`].
pub(crate) fn subscriptions(server: &RedisServer) -> u64 {
    count(server, &REQUESTS[2..6], "calls=")
}

/// For how many microseconds the server has executed commands of these names. What a script calls
/// counts for both.
pub(crate) fn busy_micros(server: &RedisServer, commands: &[&str]) -> u64 {
    count(server, commands, "usec=")
}

/// The sum of one field of the statistics of commands.
fn count(server: &RedisServer, commands: &[&str], field: &str) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let of = |name: &&str| {
        let start = format!("cmdstat_{name}:");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start));
        let mut fields = line.into_iter().flat_map(|line| line.split(','));
        let digits = fields.find_map(|one| one.strip_prefix(field));
        digits.map_or(0, |digits| digits.parse().expect("a number"))
    };
    commands.iter().map(of).sum()
}

/// How many keys the server has.
pub(crate) fn keys(server: &RedisServer) -> u64 {
    server.cli(&["DBSIZE"]).parse().expect("a number")
}
