//! [`ZooKeeperStore`]: locks in Apache ZooKeeper (feature `zookeeper`).
#![doc = include_str!("store/PROTOCOL.md")]
//!
//! # Access rights
//!
//! With credentials, only clients with the same credentials may use the nodes that we make;
//! without, everybody may. Clients of one chroot that have different credentials need the same list
//! in [`acl=`](ZooKeeperAcl) (a `+` in it is `%2B` in a URL).
//!
//! # Drivers
//!
//! Two client libraries implement one small trait. `driver=zookeeper-async` in the URL chooses the
//! second, which needs the feature of that name.
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

mod fence;
pub(crate) mod store;

pub use fence::{ZkBatch, ZkFence};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use store::simulation;
pub use store::{
    AclEntry, DriverKind, ZooKeeperAcl, ZooKeeperMode, ZooKeeperOptions, ZooKeeperStore,
};
