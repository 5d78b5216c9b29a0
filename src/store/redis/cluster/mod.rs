//! A Redis Cluster: which node is asked for a lock, and what follows when it is the wrong one.
//!
//! All keys of a lock are in one [`slot`], and a slot is at one node. We keep our own links to every master instead of the
//! client's cluster connection: an attempt passes along the run of the very server that it is sent to, and a client that went
//! on to another by itself would show one server the other's run, and so pass its [quarantine](super::quarantine).
//!
//! - A slot that **moved**: the node refuses and names the other. Nothing was done; the request is made anew there.
//! - A slot that **moves now**: what it has may be here or there. What names one key (a renewal, the release of an exclusive
//!   lock) is answered by whoever has it. An attempt names several keys, some of which are never there: it is refused until
//!   the slot has arrived, so that no lock is granted half here and half there. It waits for a tenth of a second.
//! - A node that **cannot be reached**: the others are asked who has its slots.
//!
//! # One marker for each slot
//!
//! The script that grants looks at the marker, which must be in its slot. So each slot has one,
//! `app:{<tag>}:leasehold:marker`. A slot that was moved brings it along, with the name of the node that it came from: then
//! the new node's age and past decide, as after a restart. A slot whose marker this store has seen, and which has none at
//! another node, was given away without its data: nothing is granted for `max_ttl`.
//!
//! A node that was a replica keeps that mark for as long as it runs. When it was promoted is written down by the first client
//! that meets it, `app:{<tag>}:leasehold:witness`: so that slots that are used for the first time long after need no
//! quarantine ([`witness`]). A slot that was used before the fail-over has one, whenever it is used again.
//!
//! # What is not promised
//!
//! A slot that is given to another node *without its data* (`--cluster fix`, `CLUSTER ADDSLOTS`) has no marker there. To a
//! client that never used it, it looks like one that nobody used. Let `max_ttl` pass before you give it away; and as long after a
//! fail-over or a restart before you move slots, even with their data: what the node had lost, the one that takes them cannot
//! know.
//!
//! The addresses are those that the nodes announce: clients must be able to reach them.

mod map;
mod nodes;
mod renew;
mod route;
mod seeds;
mod slot;
mod witness;

pub(crate) use nodes::Cluster;
pub(super) use route::{Passage, Route};
pub(super) use seeds::Seeds;
pub(super) use slot::Slot;
