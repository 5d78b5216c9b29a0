//! Real Redis servers: alone, durable, with a replica, as nodes of a cluster, and as members of a
//! quorum.

use std::time::Duration;

use leasehold::Error;
use leasehold::clock::Clock;
use leasehold::redis::{RedisOptions, RedisStore};
use leasehold::store::quorum::Quorum;
use leasehold::testing::conformance;
use leasehold::testing::conformance::{Harness, Report};

use crate::redis::cluster::RedisCluster;
use crate::redis::{RedisServer, breathe};

struct OnServer {
    server: RedisServer,
    query: &'static str,
}

impl Harness for OnServer {
    type Store = RedisStore;

    async fn client(&self) -> Result<RedisStore, Error> {
        RedisStore::connect(&self.server.url(self.query)).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(1_200)
    }

    fn clock(&self) -> Clock {
        Clock::system().unwrap()
    }
}

/// As a store of its own, and as a member of a quorum.
pub(crate) async fn plain() -> Report {
    let harness = OnServer {
        server: RedisServer::start(),
        query: "prefix=app&restart_quarantine=off",
    };
    conformance::run_member(&harness).await
}

/// It persists every write, and the quarantine is on.
pub(crate) async fn durable() -> Report {
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    let server = RedisServer::start_with(&durable);
    // As if it had been used for long: a new server would be waited for.
    let marker = format!("v4 {} 0 30000", server.incarnation());
    server.cli(&["SET", "{leasehold}:marker", &marker]);
    let harness = OnServer { server, query: "" };
    conformance::run(&harness).await
}

pub(crate) async fn replicated() -> Report {
    let master = RedisServer::start();
    let replica =
        RedisServer::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    while !master
        .cli(&["INFO", "replication"])
        .contains("state=online")
    {
        breathe().await;
    }
    let harness = OnServer {
        server: master,
        query: "restart_quarantine=off&replicas=1&replica_wait=10s",
    };
    let report = conformance::run(&harness).await;
    drop(replica);
    report
}

struct OnCluster(RedisCluster);

impl Harness for OnCluster {
    type Store = RedisStore;

    async fn client(&self) -> Result<RedisStore, Error> {
        RedisStore::connect(&self.0.url("prefix=app&restart_quarantine=off")).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(1_200)
    }

    fn clock(&self) -> Clock {
        Clock::system().unwrap()
    }
}

pub(crate) async fn cluster() -> Report {
    conformance::run(&OnCluster(RedisCluster::of_masters(3))).await
}

struct OnServers(Vec<RedisServer>);

impl Harness for OnServers {
    type Store = Quorum<RedisStore>;

    async fn client(&self) -> Result<Quorum<RedisStore>, Error> {
        let members = self.0.iter().map(|server| {
            let options = RedisOptions::parse(&server.url("restart_quarantine=off"))?;
            RedisStore::member(options)
        });
        Quorum::new(members.collect::<Result<Vec<_>, _>>()?)
    }

    /// A quorum waits a part of it for slow members: long enough for a busy machine.
    fn ttl(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn clock(&self) -> Clock {
        Clock::system().unwrap()
    }
}

pub(crate) async fn quorum_of_3() -> Report {
    quorum(3).await
}

pub(crate) async fn quorum_of_5() -> Report {
    quorum(5).await
}

async fn quorum(members: usize) -> Report {
    let servers = (0..members).map(|_| RedisServer::start()).collect();
    conformance::run(&OnServers(servers)).await
}
