//! The fence and the store of locks on real PostgreSQL servers, which these tests start and end.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "tls")]
#[path = "../support/certificates.rs"]
mod certificates;
#[path = "../support/claims.rs"]
mod claims;
#[path = "../support/shards.rs"]
mod crew;
#[path = "../support/one_time.rs"]
mod one_time;
#[path = "../support/permits.rs"]
mod pool;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/rotation.rs"]
mod rotation_of;
#[path = "../support/postgres.rs"]
mod server;
#[path = "../support/shard_faults.rs"]
mod shard_faults;
#[path = "../support/stopped.rs"]
mod stopped;

use server::canary;

mod clocks;
mod commit;
mod deadline;
mod doubt;
mod fence_life;
mod full;
mod handles;
mod idle;
mod isolation;
mod kills;
mod migrations;
mod once;
mod owners;
mod pipelined;
mod pooler;
mod raise;
mod rotation;
mod several;
mod store_connect;
mod store_crowd;
mod store_faults;
mod store_kinds;
mod store_life;
mod store_locks;
mod store_odd;
mod store_permits;
mod store_queue;
mod store_shards;
#[cfg(feature = "tls")]
mod store_tls;
mod store_world;
mod trips;
mod truth;
mod unsent;
mod urls;
mod world;
mod zombie;
