//! [`FileStore`]: locks among the processes of one machine, in a directory, without a server (on
//! Linux).
//!
//! **What is stored.** The state of a key is the [`Line`](crate::store::line) of the memory store,
//! in one small file. `flock` makes each request one step: lock, read, decide, write, unlock. A key
//! that nobody holds and nobody waits for has no file, except that each process may leave one,
//! which says that its key is free: see [`kept`].
//!
//! **A write is one `pwrite`** into the older of two slots, with a checksum and a sequence number.
//! If a process is killed before or within it, nothing happened. A file that is neither of ours nor
//! torn in this way is `Corrupt`, and is not touched.
//!
//! **The directory** is looked at again in each request: if it was moved or replaced, nothing is
//! granted. Each process keeps a shared lock on the folder of its boot, so that a process with
//! another boot id, which a container may have, is refused and does not delete the folder.
//!
//! **Time** is `CLOCK_BOOTTIME`, which all processes of the machine read alike. The files of
//! another boot are deleted: their holders are gone. So no write needs to reach the disk.
//!
//! **Tokens** are `max(last + 1, base + boot time in microseconds)`. The base is set once for each
//! boot, above everything that was issued before; see [`tokens`].
//!
//! **Waiters** are woken by a datagram to the socket of their process, which names the claim. A
//! file that several processes watch would wake all of them; and a socket whose process has died
//! answers so, and that waiter is skipped at once. A process without a socket polls. One that has a
//! socket listens before it asks, so a turn behind others is three steps: it takes its place, asks
//! when it is woken, and releases. It looks at the file again only if no message comes for 20 ms.
//!
//! **Crowds.** A request to a key for which hundreds wait does not read all of them again: see
//! [`crowds`]. And not every waiter writes the file to keep its place. Whoever of a process writes
//! it keeps the places of all of its process that still wait for a message, for a quarter longer
//! than they ask for, so the others find that there is nothing to do. A waiter that nobody polls
//! asks no more: its place ends at most three quarters later than its last request said. One of a
//! process's waiters checks for all of them whether another process died; if it does not, another
//! one does, more rarely. One request of a process at a time tries again while another process is
//! in its step; the holder's requests, and that of a claim that was called, do not wait behind it.
//!
//! **Death.** With [`OnDeath::Now`] a process keeps a lock on its life file, which the system frees
//! when it dies. Whoever finds a hold of such a process looks at that file.

mod codec;
mod crowds;
mod directory;
mod errors;
mod kept;
mod key_file;
mod options;
mod peers;
mod process;
mod slots;
mod stale;
mod step;
mod store;
mod tokens;
mod turns;
mod wake;

pub use options::{FileOptions, OnDeath};
pub use store::FileStore;

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod full;
#[cfg(test)]
mod races;
#[cfg(test)]
mod tests;
