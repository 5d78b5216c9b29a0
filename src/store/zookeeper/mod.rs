//! [`ZooKeeperStore`]: locks in Apache ZooKeeper (feature `zookeeper`).
//!
//! # The lock
//!
//! A key is a node under the chroot, and each claim an ephemeral sequential node below it, as Apache Curator's
//! `InterProcessMutex` and `InterProcessReadWriteLock` lay them out: `_c_<guid>-lock-0000000007`, `_c_<guid>-__READ__0000000007`,
//! `_c_<guid>-__WRIT__0000000007`. First come, first served; a reader waits for the nearest writer before it, whoever else for
//! the one just before it, and watches only that one. Every child that ends in a sequence number contends, whoever made it, and
//! wants to be alone unless its name says that it reads. So Java services (Curator) and Python services (kazoo's `Lock`, with
//! `extra_lock_patterns=["-lock-"]`) take turns with ours on the same path. The [simple mode](ZooKeeperMode::Simple) is one ephemeral
//! node, unfair, without readers.
//!
//! Curator's two recipes do not see each other's nodes. Ours see both; but a key that Java takes through one of them has to be
//! taken through the same one here: `lock` for `InterProcessMutex`, `read_write` for `InterProcessReadWriteLock`.
//!
//! An acquire that finds itself not first answers `Busy` and *keeps its place*: ask again with the same claim to look
//! again, [withdraw](super::Store::withdraw) to leave the queue. The fencing token is the `czxid` of the claim's node: it grows
//! over the whole ensemble, and never goes back. Readers that hold together have different tokens, and may be granted in another
//! order than that of their tokens; a writer's is larger than those of all readers before it.
//!
//! A write hold that [becomes a read hold](super::Store::downgrade) keeps its node, its token and its place; the node's data say that
//! it reads now. Our readers behind it enter; Curator's, who go by names alone, wait for its end.
//!
//! # Taking a lock away
//!
//! [`revoke`](super::Store::revoke) deletes the nodes of whoever holds, and in the same write puts a *bar* in their place: a node with
//! the holder's own number, which everybody who waited for the holder waits for, other libraries too. It stands for the longest
//! lease of those who held: their nodes say how long that is; a client of another library is believed to have a session like
//! ours. Each client that meets the bar counts that time in full, by its own clock, and the first who is through deletes it. So
//! does who made it, for as long as its process lives: [`close`](super::Store::close) waits for it, a manager's shutdown only for its
//! `request_timeout`. With [`Revoke::Now`](super::Revoke::Now) the bar is deleted at once.
//!
//! # The lease
//!
//! One session serves all locks of a store. Its negotiated time-out is the TTL of every grant, whatever the claim asks
//! for. A lease is counted from proof only (I1, I3):
//!
//! - A ping or a read proves nothing: a server that has lost its leader answers both. A heartbeat is a *write* through the
//!   quorum: one request that writes the session's own node and checks that each held node exists.
//! - The newest proven write does not renew from its own sending, because the leader may not have heard of the session yet.
//!   It renews from an earlier one, at least a tick old. `proof.rs` tells why; `tick_time` is the operator's word for how
//!   long the servers' tick is.
//! - The session is proven every sixth of its time-out, by itself; a renewal counts as such a heartbeat.
//! - When the session is over, so is every grant of it, and a new one is opened by itself. Nothing is carried over: a node
//!   is ours only if its `ephemeralOwner` is the current session.
//!
//! A grant that nobody renews for a TTL is deleted by the store, although its session lives on: a hold whose end is in
//! doubt ends that way, as it does on every other store.
//!
//! # Drivers
//!
//! Two client libraries stand behind one small trait; `driver=zookeeper-async` in the URL chooses the second, which needs the
//! feature of that name.
//!
//! | | `zookeeper-client` (default) | `zookeeper-async` |
//! |---|---|---|
//! | behaviour suite, queue, faults, the three-server test of the lease | passed | passed |
//! | a connection breaks for less than the session | holds stay | every hold is lost: it may open another session silently |
//! | negotiated time-out | known and checked | the operator's word; at most 20 ticks |
//! | thousands of holds | one request for 500 of them | no: one request for each, one after the other |
//! | nodes of old keys | containers, which the server deletes | stay |
//! | readers and writers, downgrade | yes | yes |
//! | [taking a lock away](super::Store::revoke) | yes | refused: it has no `multi`, and would let somebody in between |
//! | data under a [fence](crate::fence::ZkFence) | one `multi` | refused: it has none |
//!
//! # Not promised
//!
//! Whether another client of the same path keeps *its* deadline is not ours to say. Without a fence at the resource no lock
//! gives more than its lease.

mod acquire;
mod barrier_session;
mod client;
mod downgrade;
mod drivers;
mod fenced;
mod lock_info;
mod opening;
mod options;
mod proof;
mod queue;
mod renewal;
mod revoke;
mod session;
mod session_thread;
mod store;

pub(crate) use drivers::{Change, Fault, Refused};
pub use options::{Credentials, DriverKind, ZooKeeperMode, ZooKeeperOptions};
pub use store::ZooKeeperStore;
