//! A real PostgreSQL, directly and through a pooler.

use std::time::Duration;

use leasehold::Error;
use leasehold::clock::Clock;
use leasehold::postgres::PostgresStore;
use leasehold::testing::conformance;
use leasehold::testing::conformance::{Harness, Report};

use crate::postgres::{PgBouncer, PgServer};

struct OnServer {
    url: String,
    _server: PgServer,
    _pooler: Option<PgBouncer>,
}

impl Harness for OnServer {
    type Store = PostgresStore;

    async fn client(&self) -> Result<PostgresStore, Error> {
        PostgresStore::connect(&self.url).await
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn clock(&self) -> Clock {
        Clock::system().unwrap()
    }
}

/// It keeps what it confirms.
pub(crate) async fn plain() -> Report {
    let server = PgServer::start_with(&["fsync=on"]);
    let harness = OnServer {
        url: format!("{}?create=auto", server.url()),
        _server: server,
        _pooler: None,
    };
    conformance::run(&harness).await
}

/// One connection of the pooler serves several clients, one transaction after the other, and no
/// message arrives.
pub(crate) async fn through_a_pooler() -> Report {
    let server = PgServer::start_with(&["fsync=on"]);
    let pooler = PgBouncer::before(&server);
    let harness = OnServer {
        url: format!("{}?create=auto", pooler.url()),
        _server: server,
        _pooler: Some(pooler),
    };
    conformance::run(&harness).await
}
