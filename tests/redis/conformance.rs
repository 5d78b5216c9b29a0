//! The behaviour suite on a real server.

use std::time::Duration;

use crate::server::RedisServer;
use leasehold::conformance::{self, Harness};
use leasehold::store::RedisStore;
use leasehold::{Clock, Error};

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
        Duration::from_millis(600)
    }

    fn clock(&self) -> Clock {
        Clock::system().expect("the machine's clocks")
    }
}

async fn conforms(server: RedisServer, query: &'static str) {
    let harness = OnServer { server, query };
    conformance::run(&harness).await.assert_passed();
}

#[tokio::test]
async fn a_redis_server_keeps_the_contract() {
    conforms(RedisServer::start(), "prefix=app&restart_quarantine=off").await;
}

#[tokio::test]
async fn a_redis_server_votes_as_a_member_of_a_quorum_must() {
    let harness = OnServer {
        server: RedisServer::start(),
        query: "prefix=app&restart_quarantine=off",
    };
    conformance::run_member(&harness).await.assert_passed();
}

#[tokio::test]
async fn a_redis_server_that_persists_every_write_keeps_it_with_the_quarantine_on() {
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    conforms(RedisServer::start_with(&durable), "").await;
}

#[tokio::test]
async fn a_redis_server_with_a_replica_keeps_it() {
    let master = RedisServer::start();
    let replica =
        RedisServer::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    while !master
        .cli(&["INFO", "replication"])
        .contains("state=online")
    {
        crate::server::breathe().await;
    }
    conforms(master, "restart_quarantine=off&replicas=1&replica_wait=1s").await;
    drop(replica);
}
