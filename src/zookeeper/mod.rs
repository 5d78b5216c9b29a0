//! [`ZooKeeperStore`]: locks in Apache ZooKeeper (feature `zookeeper`).
//!
//! # The lock
//!
//! A key is a node under the chroot, and each claim an ephemeral sequential node below it, with the names that Apache Curator's
//! `InterProcessMutex` and `InterProcessReadWriteLock` use: `_c_<guid>-lock-0000000007`, `_c_<guid>-__READ__0000000007`,
//! `_c_<guid>-__WRIT__0000000007`. First come, first served. A reader waits for the nearest writer before it, every other claim
//! for the node directly before it, and each watches only that node. Every child that ends in a sequence number contends,
//! whichever client made it, and wants to be alone unless its name says that it reads. So some locks of Java services (Curator)
//! and Python services (kazoo) take turns with ours on the same path;
//! [a table](crate::docs::coming_from) says which do and which do not. The [simple mode](ZooKeeperMode::Simple) is one ephemeral
//! node, unfair, without readers.
//!
//! The node of a nested key (`jobs/0`) is a child of the outer key's node (`jobs`). It is no contender of the outer key. Curator
//! sorts all children by name, so a later segment of a key that begins with `0`, `-` or `.` gets a `~` before it in the tree:
//! `jobs/0` is at `jobs/~0`. For a Java peer at `/jobs/0` put `/jobs` in the chroot.
//!
//! An acquire that is not first answers `Busy` and *keeps its place*: ask again with the same claim to read the queue again,
//! [withdraw](crate::store::Store::withdraw) to leave it. The fencing token is the `czxid` of the claim's node: it grows over the whole
//! ensemble and never goes back. Readers that hold together have different tokens, and may be granted in another order than that
//! of their tokens; a writer's token is larger than those of all readers before it.
//!
//! A write hold that [becomes a read hold](crate::store::Store::downgrade) keeps its node, its token and its place; the node's data say that
//! it only reads now. Our readers behind it enter. Curator's read only names, so they wait for its end.
//!
//! # Revocation
//!
//! [`revoke`](crate::store::Store::revoke) deletes the holders' nodes, and the same write makes a *barrier*: a node with the first holder's own
//! sequence number, so everybody who waited for the holder waits for the barrier, clients of other libraries too. The barrier is
//! an ephemeral node of a session of its own, which nobody keeps. Its time-out is the longest lease of the old holders (their
//! nodes say how long that is; another library's client is assumed to have a session like ours) and two ticks. The server
//! deletes the barrier at the end of that session, whether or not the process that made it is still alive. With [`Revoke::Now`](crate::store::Revoke::Now)
//! it is deleted at once.
//!
//! # The lease
//!
//! One session serves all locks of a store. Its negotiated time-out is the TTL of every grant, whatever the claim asks
//! for. A lease is counted from proof only (I1, I3):
//!
//! - A ping or a read proves nothing: a server that has lost its leader answers both. A heartbeat is a *write* through the
//!   quorum: one request that writes the session's own node and checks that each held node exists.
//! - The newest proven write does not renew from the time at which it was sent, because the leader may not know of it yet. It
//!   renews from an earlier one, at least a tick old; `proof.rs` gives the reason. Set `tick_time` to the servers' tick.
//! - The session is proven every sixth of its time-out, without any caller; a renewal counts as such a heartbeat.
//! - A session may be counted from the first attempt to connect. If that was more than a heartbeat ago when the session is there,
//!   the session is proven twice, a tick apart, before its first use. Otherwise its locks could be over before their first renewal.
//! - When the session is over, so is every grant of it, and a new session opens by itself. Nothing is carried over: a node
//!   is ours only if its `ephemeralOwner` is the current session.
//!
//! A grant that is not renewed for a TTL is deleted by the store, although its session lives: a hold that ended in doubt ends
//! that way, as on every other store. If the store is closed or dropped before, it ends its connection and not its session, and
//! the server deletes the node when the session's time-out has passed.
//!
//! # Access rights
//!
//! With credentials, only clients with the same credentials may use the nodes that we make; without, everybody may. Clients of one
//! chroot that have different credentials need the same list in [`acl=`](ZooKeeperAcl) (a `+` in it is `%2B` in a URL).
//!
//! # Drivers
//!
//! Two client libraries implement one small trait. `driver=zookeeper-async` in the URL chooses the second, which needs the feature
//! of that name.
//!
//! | property | `zookeeper-client` (default) | `zookeeper-async` |
//! |---|---|---|
//! | behaviour suite, queue, faults, the three-server test of the lease | passed | passed |
//! | the connection breaks for less than the session | holds stay | every hold is lost: it may open another session silently |
//! | negotiated time-out | known and checked | the operator must know it; at most 20 ticks |
//! | thousands of holds | one request for 500 of them | no: one request for each, one after the other |
//! | nodes of old keys | containers, which the server deletes | stay |
//! | readers and writers, downgrade | yes | yes |
//! | [revocation](crate::store::Store::revoke) | yes | refused: it has no `multi`, so another client could enter in between |
//! | data under a [fence](crate::zookeeper::ZkFence) | one `multi` | refused: it has no `multi` |
//!
//! # Not promised
//!
//! Whether another library's client keeps *its* deadline. Exclusion beyond the lease, without a fence at the resource. In simple
//! mode, the right node when an operator deletes the holder's node by hand in the moment of its release: the path is used again,
//! and a delete compares the version of a node, which is 0 for both, and never its owner. So the release may delete the node that
//! the next holder made in between. The next holder learns this from its next heartbeat, at the latest at the end of its lease, and
//! a third client may enter before that, with a larger token. [Revoke](crate::store::Store::revoke) the lock instead, or use the queue,
//! whose nodes have names that are used once.

mod fence;
pub(crate) mod store;

pub use fence::{ZkBatch, ZkFence};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use store::simulation;
pub use store::{
    AclEntry, Credentials, DriverKind, ZooKeeperAcl, ZooKeeperMode, ZooKeeperOptions,
    ZooKeeperStore,
};
