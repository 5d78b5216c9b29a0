//! A Redis Cluster: which node a request goes to, and what follows when it is the wrong one.
//!
//! All keys of a lock are in one [`slot`], and a slot is at one node. We keep our own connections
//! to every master, and do not use the client's cluster connection: an attempt carries the
//! [mark](super) of the server that it is sent to. A client that redirects by itself would give one
//! server the mark of another.
//!
//! A slot that moved: the node refuses and names the other one, which is asked then. A node that
//! cannot be reached: the others are asked which node has its slots. [The
//! protocol](crate::redis) has the rest: a slot that is moving, the markers, what is assumed.

mod map;
mod nodes;
mod renew;
mod route;
mod slot;

pub(super) use map::Address;
pub(crate) use nodes::Cluster;
pub(super) use renew::renew;
pub(super) use route::Passage;
pub(super) use slot::Slot;
