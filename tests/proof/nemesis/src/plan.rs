//! [`Plan`]: what a worker process is told on its command line.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::Settings;
use serde::{Deserialize, Serialize};

/// The key of the lock.
pub const KEY: &str = "nemesis/counter";

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreKind {
    Redis,
    Redlock,
    ZooKeeper,
    Postgres,
    Files,
}

/// Where the counter is, and whether a fence guards it.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// In the driver, which compares no tokens.
    Open,
    /// In the driver, behind a `FenceGate`.
    Gate,
    /// In the lock's own server, behind the fence of this kind.
    Server,
}

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Tasks that take turns at one lock and count.
    Count { tasks: u32 },
    /// So many locks that are held until they are lost.
    Hold { locks: u32 },
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Plan {
    pub p: u32,
    pub kind: StoreKind,
    pub url: String,
    /// For the counter, which is behind a fence in the same servers.
    pub counter_url: String,
    pub ttl: Duration,
    pub resource: Resource,
    pub work: Work,
    /// The socket of the driver's counter.
    pub socket: PathBuf,
    /// Reports its memory, descriptors, threads and tasks every second.
    pub has_gauge: bool,
}

/// The longest TTL of locks that are only held.
pub const LONGEST_HOLD: Duration = Duration::from_secs(10);

impl Plan {
    pub fn settings(&self) -> Settings {
        let default = Settings::default();
        Settings {
            ttl: self.ttl,
            max_ttl: match self.work {
                Work::Count { .. } => self.ttl,
                // Processes with different TTLs hold at once, and all clients of a database must
                // name the same.
                Work::Hold { .. } => LONGEST_HOLD,
            },
            request_timeout: (self.ttl / 4).min(default.request_timeout),
            ..default
        }
    }
}

impl StoreKind {
    pub const ALL: [Self; 5] = [
        Self::Redis,
        Self::Redlock,
        Self::ZooKeeper,
        Self::Postgres,
        Self::Files,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Redlock => "redlock",
            Self::ZooKeeper => "zookeeper",
            Self::Postgres => "postgres",
            Self::Files => "files",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// A session of ZooKeeper is at least two ticks of its server; the tests' tick is half a
    /// second.
    pub fn ttl(self) -> Duration {
        match self {
            Self::ZooKeeper => Duration::from_secs(4),
            _ => Duration::from_secs(2),
        }
    }

    /// The counter behind a fence.
    pub fn fenced(self) -> Resource {
        match self {
            Self::Redis | Self::Postgres | Self::ZooKeeper => Resource::Server,
            Self::Redlock | Self::Files => Resource::Gate,
        }
    }
}
