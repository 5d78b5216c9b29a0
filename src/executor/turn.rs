//! [`Turns`]: runs of one lease that wait for each other.
//!
//! A run takes the turn of every lock that it is under, in the order of their keys, so that no two
//! runs wait for each other in a circle.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::coop::unconstrained;

use super::outcome::{Cause, RunError, UndoReport};
use crate::lease::{Lease, LeaseError};
use crate::model::error::Error;
use crate::model::of_task::OfTask;

tokio::task_local! {
    /// The turns that the current run has.
    static TAKEN: OfTask<Vec<usize>>;
}

/// The turns of the locks of an executor, in the order of their keys.
#[derive(Clone)]
pub(crate) struct Turns(Vec<Arc<Mutex<()>>>);

impl Turns {
    pub(crate) fn of(lease: &Lease) -> Self {
        Self(lease.turns())
    }

    /// Calls `run` when it is its turn; until then the thread waits.
    pub(crate) fn blocking<O, T, E>(
        &self,
        lease: &Lease,
        run: impl FnOnce() -> Result<O, RunError<T, E>>,
    ) -> Result<O, RunError<T, E>> {
        let (taken, _turns) = block_on(self.take(lease))?;
        OfTask::sync_scope(&TAKEN, taken, run)
    }

    /// Awaits `run` when it is its turn.
    pub(crate) async fn awaiting<O, T, E>(
        &self,
        lease: &Lease,
        run: impl Future<Output = Result<O, RunError<T, E>>>,
    ) -> Result<O, RunError<T, E>> {
        let (taken, _turns) = self.take(lease).await?;
        OfTask::scope(&TAKEN, taken, run).await
    }

    async fn take<T, E>(
        &self,
        lease: &Lease,
    ) -> Result<(Vec<usize>, Vec<OwnedMutexGuard<()>>), RunError<T, E>> {
        let mut taken = OfTask::of(&TAKEN).unwrap_or_default();
        let own = self.0.iter().map(|turn| Arc::as_ptr(turn).addr());
        if own.clone().any(|turn| taken.contains(&turn)) {
            return Err(RunError::RolledBack {
                cause: Cause::Refused(Error::invalid(
                    "a run in turn was begun inside another run in turn of the same lock, and would wait for itself; do both in one run",
                )),
                undo: UndoReport::default(),
            });
        }
        taken.extend(own);
        let all = async {
            let mut turns = Vec::with_capacity(self.0.len());
            for turn in &self.0 {
                turns.push(Arc::clone(turn).lock_owned().await);
            }
            turns
        };
        tokio::select! {
            biased;
            turns = all => Ok((taken, turns)),
            reason = lease.lost() => Err(RunError::NotStarted {
                why: LeaseError::Lost(reason),
            }),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits on this thread, which needs no runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        std::thread::park();
    }
}
