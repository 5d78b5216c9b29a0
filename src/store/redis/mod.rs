//! [`RedisStore`]: locks in one Redis server, or in a cluster of them (feature `redis`).
//!
//! # Keys in the server
//!
//! With the prefix `app`, the lock `accounts/7` has these keys:
//!
//! | key | value | lives |
//! |---|---|---|
//! | `app:accounts/7` | the owner token; `leasehold:readers` for readers, `leasehold:barred` for nobody | the longest TTL |
//! | `app:{app:accounts/7}:fence` | last token, its owner, its label | a week after the last grant |
//! | `app:{app:accounts/7}:gone:<owner>` | an attempt that was withdrawn or revoked | `max_ttl` |
//! | `app:{app:accounts/7}:queue` | who waits, by arrival | the longest place |
//! | `app:{app:accounts/7}:alone` | those of them that share with nobody, by arrival | the longest place |
//! | `app:{app:accounts/7}:places` | until when the place of each is kept | the longest place |
//! | `app:{app:accounts/7}:readers` | until when each reader holds | the longest TTL |
//! | `app:{app:accounts/7}:grants` | token and label of each reader | the longest TTL |
//! | `app:{leasehold}:marker` | the server's run (and promotion), until when it grants nothing, `max_ttl`, `durable` if every write is on disk; in a cluster one for each slot, `app:{<tag>}:leasehold:marker` | always |
//! | `app:{<tag>}:leasehold:witness` | in a cluster: when the slot's node became what it is | always |
//!
//! The lock is a plain key, so any client that does `SET app:accounts/7 <random> NX PX <ttl>` and compares before it deletes
//! takes turns with us, in any language. The key exists for as long as anybody holds, readers too, and while the time of a
//! revoked hold runs out: so such a client is kept out then, and we wait for its value. All keys of a lock are in one slot,
//! and all begin with the prefix, so an access list of one pattern (`~app:* &app:*`) is enough, if it allows `INFO`
//! (`+info`).
//!
//! # How it answers
//!
//! Every operation is one script, executed by the server at one instant. Token = max(last + 1, the server's time in
//! microseconds): it also grows after the counter expired or the server lost all data (I8).
//!
//! - **An attempt may be executed after its withdrawal** (a proxy delayed it): the tombstone refuses it.
//! - **A server that was restarted or flushed may have forgotten locks** that are still held: it grants nothing until the last
//!   of them has ended, [`max_ttl`](RedisOptions::max_ttl) later (`quarantine.rs`).
//! - **A connection that timed out once is given up**, since its queue holds commands of unknown fate
//!   (`connection/reconnecting.rs`).
//!
//! # Order of waiters
//!
//! A claim that queues has a place from the first busy answer, for as long as it asks again in time, and for up to a day
//! between two attempts. The next attempt of any claim drops all dead waiters at once. A reader waits for those before it that
//! share with nobody; whoever shares with nobody waits for all before it. A claim that does not queue asks `acquire.lua`,
//! which sends it to `enter.lua` where there is a queue. A release wakes all waiters, and the first is served. A client that
//! sees only the plain key passes the queue.
//!
//! A revocation takes a lock from any holder, other clients included: they lose it as we do, by finding another value. The
//! bar lasts for the rest of the revoked lease. A value that never expires is not barred, since nobody knows when its holder
//! ends.
//!
//! # What is not promised
//!
//! Behind Sentinel and in a cluster a master that was paused or cut off, and returns, grants for some time until it learns
//! that it was deposed; in a cluster it stops by itself when it has missed the others for the node time-out. Without
//! [`replicas`](RedisOptions::replicas) two may hold then; with it, only if as many replicas were cut off together with it.
//! The servers' own `min-replicas-to-write` bounds that too.
//!
//! A server's clock that steps forward ends leases early, for every store that counts by it. With asynchronous replicas
//! and without [`replicas`](RedisOptions::replicas), a fail-over may lose the newest grants and their tokens: the
//! quarantine still keeps the next holder out for `max_ttl`, but the capability then reports
//! [`Fencing::None`](super::Fencing::None).

mod acquire;
mod attempt_route;
mod client;
mod cluster;
mod connection;
mod downgrade;
pub(crate) mod fault;
mod inspect;
mod marker_history;
mod member;
mod names;
mod options;
mod quarantine;
mod renew;
mod replicated;
mod reply;
mod revoke;
mod script;
mod sentinel;
mod servers;
mod startup;
mod store;
mod url;
mod waiting;

pub(crate) use connection::{Failure, Target};
pub use options::RedisOptions;
pub(crate) use script::{Call, Script};
pub(crate) use servers::Servers;
pub use store::RedisStore;
