//! The state machine of one key, which every store of this crate without a server shares: [`Line`].
//!
//! It is pure: the time and the source of tokens are arguments, and it answers with data. A store
//! keeps a line for each key, makes each request one step (a mutex, a file lock), and then wakes
//! whoever [`Wakes`] names.
//!
//! **One queue.** A claim that has to wait keeps a place, whatever its kind, unless it is asked
//! only once. Places are served in the order of arrival.
//!
//! **Handover.** Whoever frees the key grants it in the same step to the first live place, for a
//! second at most, and wakes only that claim (of readers: all up to the next writer). That claim
//! asks again, and then holds for its full TTL under the token that the handover gave. A waiter
//! that died costs the others this time once, and its place is used up. So a key with a queue is
//! never free between two holders, and a release costs the same however many wait.
//!
//! **Crowds.** A request costs the same however many wait ([`row`]). A claim that has many before
//! it gets no time after which to ask again: it is woken. So it asks only to keep its place, and a
//! claim that is called is not late because of the others.

mod queue;
mod requests;
mod row;
mod state;
mod tombstones;
mod waiters;

#[cfg(target_os = "linux")]
pub(crate) use queue::Wakes;
pub(crate) use requests::{Asked, not_held};
#[cfg(target_os = "linux")]
pub(crate) use row::Row;
#[cfg(target_os = "linux")]
pub(crate) use state::{Held, Place};
pub(crate) use state::{Line, Origin};
pub(crate) use tombstones::Tombstones;
pub(crate) use waiters::{Waiters, Woken};
