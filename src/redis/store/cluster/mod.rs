//! A Redis Cluster: which node a request goes to, and what follows when it is the wrong one.
//!
//! All keys of a lock are in one [`slot`], and a slot is at one node. We keep our own connections
//! to every master, and do not use the client's cluster connection: an attempt carries the
//! [mark](super) of the server that it is sent to. A client that redirects by itself would give one
//! server the mark of another.
//!
//! - A slot that **moved**: the node refuses and names the other node. Nothing was done; the
//!   request is made again there.
//! - A slot that **is moving**: its keys may be at either node. A request that names one key (a
//!   renewal, the release of an exclusive lock) is answered by the node that has it. An attempt
//!   names several keys, some of which never exist: it is refused until the slot has arrived, so
//!   that no lock is granted half here and half there. It waits for a tenth of a second. So does
//!   whatever else looks at the keys beside the lock: the end of a reader's hold, a withdrawal, a
//!   downgrade.
//! - A node that **cannot be reached**: the others are asked which node has its slots.
//!
//! # One marker for each slot
//!
//! The script that grants reads the marker, which must be in its slot. So each slot has one,
//! `app:{<tag>}:leasehold:marker`. A slot that was moved brings it along, with the run of the node
//! that it came from: then the new node's age and past decide, as after a restart. A slot whose
//! marker this store has seen, and which has none at another node, was given away without its data:
//! nothing is granted for `max_ttl`.
//!
//! `INFO` shows that a node was a replica for as long as it runs, and not when it was promoted. So
//! the first slot of a node has a marker too, which says to every client since when the node has
//! been what it is: slots that are used for the first time long after need not wait. A slot that
//! was used before the fail-over waits once, whenever it is used again.
//!
//! # What is not promised
//!
//! A slot that is given to another node *without its data* (`--cluster fix`, `CLUSTER ADDSLOTS`)
//! has no marker there. To a client that never used it, it looks like an unused slot. Let `max_ttl`
//! pass before you give it away; and as long after a fail-over, a restart or a flush before you
//! move slots, even with their data: the receiving node cannot know what the other node had lost.
//!
//! The addresses are those that the nodes announce: clients must be able to reach them.

mod map;
mod nodes;
mod renew;
mod route;
mod seeds;
mod slot;

pub(crate) use nodes::Cluster;
pub(super) use renew::renew;
pub(super) use route::Passage;
pub(super) use seeds::Seeds;
pub(super) use slot::Slot;
