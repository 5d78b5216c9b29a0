//! [`Event`]: everything that observers see.

use std::time::Duration;

use crate::lease::Lease;
use crate::model::commit::HeldKey;
use crate::model::error::{Ended, Error};
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::run_event::RunEvent;
use crate::model::run_sink::{Debt, Intent};
use crate::model::token::FencingToken;
use crate::store::Released;

/// Something that has happened. It borrows: copy the parts that you keep.
///
/// Events of one hold come in the order *acquire, run ..., lost, release*, as far as they happen on
/// one thread; events of different threads may overtake each other.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A caller began to wait, or stopped waiting: in the local queue, or for a lock that the store
    /// reports as busy.
    #[non_exhaustive]
    Wait {
        /// The key of the lock.
        key: &'a Key,
        /// Whether a caller began to wait; otherwise one stopped.
        began: bool,
        /// How many callers of this manager wait now. Of two events at once the older may come
        /// last.
        callers: usize,
    },
    /// A call for a lock is over.
    #[non_exhaustive]
    Acquire {
        /// The key of the lock.
        key: &'a Key,
        /// The holder's name for people.
        label: &'a Label,
        /// How it ended.
        outcome: AcquireOutcome<'a>,
        /// How long the call took, handlers and local queue included.
        wait: Duration,
    },
    /// One call of the store to renew many holds is over. Nothing that is held costs an event of
    /// its own.
    #[non_exhaustive]
    Renew {
        /// How many holds it was for.
        holds: usize,
        /// How many the store extended.
        extended: usize,
        /// How many the store reports as not ours any more.
        gone: usize,
        /// How many have no answer, or one that proves nothing: they are sent again.
        unknown: usize,
        /// From the sending to the answer, or to its time limit.
        round_trip: Duration,
        /// How late the manager's thread came to its timer before it sent this.
        timer_lag: Duration,
    },
    /// A guarded run went one step further. One event, also where the run is under several locks.
    #[non_exhaustive]
    Run {
        /// The key of the lock; of several locks, the first in the order of their keys.
        key: &'a Key,
        /// The fencing token of its hold.
        token: FencingToken,
        /// All locks that the run is under, sorted by key; never empty.
        locks: &'a [HeldKey],
        /// Which run: runs under one hold overlap. Unique in this process.
        run: u64,
        /// Which step.
        event: RunEvent,
    },
    /// A run is about to send an effect outside of the process: [`tx.step`](crate::Tx::step) was
    /// called.
    #[non_exhaustive]
    Intent {
        /// The effect, and the run that sends it.
        intent: &'a Intent,
    },
    /// A run left an effect behind that could not be undone safely.
    #[non_exhaustive]
    Debt {
        /// The effect, and its state.
        debt: &'a Debt,
    },
    /// A lease is lost, by any reason but its own release.
    #[non_exhaustive]
    Lost {
        /// The key of the lock.
        key: &'a Key,
        /// The holder's name for people.
        label: &'a Label,
        /// The fencing token of the hold.
        token: FencingToken,
        /// Why.
        reason: Ended,
    },
    /// A hold has ended.
    #[non_exhaustive]
    Release {
        /// The key of the lock.
        key: &'a Key,
        /// The holder's name for people.
        label: &'a Label,
        /// The fencing token of the hold.
        token: FencingToken,
        /// Why it ended.
        reason: Ended,
        /// Whether an [`Acquire`](Event::Acquire) has reported it as held: not if a handler refused
        /// the grant, its caller went away, or the lease ended before a caller of this process took
        /// a hold that was handed to it.
        was_reported: bool,
        /// How the release went; a hold that was handed off in this process counts as released.
        released: &'a Released,
        /// How long it was held, until its runs in progress had ended.
        held_for: Duration,
        /// How long the release took after that, handlers included.
        took: Duration,
    },
}

/// How a call for a lock ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum AcquireOutcome<'a> {
    /// The lock is held.
    #[non_exhaustive]
    Held {
        /// The lease, with the fencing token of the grant.
        lease: &'a Lease,
    },
    /// It was not free within the wait.
    Busy,
    /// It failed.
    Failed(&'a Error),
    /// The caller went away: the future of the call was dropped.
    Abandoned,
}
