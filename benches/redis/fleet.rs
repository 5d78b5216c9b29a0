//! The servers of all rows, started together so that their quarantine is waited out once; and what a server counts.

use std::time::Duration;

use crate::server::RedisServer;

/// The default `max_ttl`, what members of a quorum add to it, and what the whole seconds of an uptime may hide.
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
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = |name: &str| {
        let start = format!("cmdstat_{name}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start));
        let digits = line.and_then(|line| line.split(',').next());
        digits.map_or(0, |digits| digits.parse().expect("a number"))
    };
    REQUESTS.iter().map(|name| calls(name)).sum()
}

/// How many keys the server has.
pub(crate) fn keys(server: &RedisServer) -> u64 {
    server.cli(&["DBSIZE"]).parse().expect("a number")
}
