//! The servers and the proxy of the tests.

#[path = "../../../support/postgres.rs"]
#[allow(unused_imports, reason = "the tests use the rest")]
pub(crate) mod postgres;
#[path = "../../../support/proxy.rs"]
pub(crate) mod proxy;
#[path = "../../../support/redis.rs"]
#[allow(unused_imports, reason = "the tests use the rest")]
pub(crate) mod redis;
#[path = "../../../support/zookeeper.rs"]
pub(crate) mod zookeeper;
