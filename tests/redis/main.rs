//! The Redis store and its fence against real servers, which the tests start, stop and kill
//! themselves.

#![cfg(feature = "redis")]

#[cfg(test)]
#[path = "../support/bare_thread.rs"]
mod bare_thread;
#[cfg(test)]
#[path = "../support/certificates.rs"]
mod certificates;
#[cfg(test)]
#[path = "../support/claims.rs"]
mod claims;
#[cfg(test)]
#[path = "../support/shards.rs"]
mod crew;
#[cfg(test)]
#[path = "../sim/dice.rs"]
#[allow(dead_code, reason = "the simulation throws them in more ways")]
mod dice;
#[cfg(test)]
#[path = "../support/in_doubt.rs"]
mod in_doubt;
#[cfg(test)]
#[path = "../support/one_time.rs"]
mod one_time;
#[cfg(test)]
#[path = "../support/permits.rs"]
mod pool;
#[cfg(test)]
#[path = "../support/proxy.rs"]
mod proxy;
#[cfg(test)]
#[path = "../support/rotation.rs"]
mod rotation_of;
#[cfg(test)]
#[path = "../support/redis.rs"]
mod server;
#[cfg(test)]
#[path = "../support/shard_faults.rs"]
mod shard_faults;
#[cfg(test)]
#[path = "../support/stopped.rs"]
mod stopped;

#[cfg(test)]
mod access;
#[cfg(test)]
mod clocks;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod cluster_change;
#[cfg(test)]
mod crowds;
#[cfg(test)]
mod dials;
#[cfg(test)]
mod doubt;
#[cfg(test)]
mod eviction;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fence;
#[cfg(test)]
mod foreign;
#[cfg(test)]
mod full;
#[cfg(test)]
mod handover_change;
#[cfg(test)]
mod judged;
#[cfg(test)]
mod kills;
#[cfg(test)]
mod manager;
#[cfg(test)]
mod meddler;
#[cfg(test)]
mod message;
#[cfg(test)]
mod message_ends;
#[cfg(test)]
mod model;
#[cfg(test)]
mod moving_slots;
#[cfg(test)]
mod nested;
#[cfg(test)]
mod order;
#[cfg(test)]
mod other_holder;
#[cfg(test)]
mod past;
#[cfg(test)]
mod permits;
#[cfg(test)]
mod quorum;
#[cfg(test)]
mod quorum_crowd;
#[cfg(test)]
mod read_write;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod revocation;
#[cfg(test)]
mod rotation;
#[cfg(test)]
mod sentinel;
#[cfg(test)]
mod shards;
#[cfg(test)]
mod store;
#[cfg(test)]
mod storms;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod tokens;
