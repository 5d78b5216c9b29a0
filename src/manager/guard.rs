//! [`LockGuard`]: the RAII value of a hold.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::context::ManagerContext;
use super::end::end_hold_within;
use super::handle::Handle;
use super::hold::Hold;
use super::message::Message;
use super::runtime::in_runtime;
use super::sink::HoldSink;
use crate::executor::{Executor, own_runs};
use crate::handler::Attachments;
use crate::lease::Lease;
use crate::model::error::{Ended, Error, ErrorKind};
use crate::model::key::Key;
use crate::model::shared_runtime::SharedRuntime;
use crate::model::token::FencingToken;
use crate::store::Released;

/// A held lock. Its manager renews it until it is released, dropped or lost.
///
/// Holding a guard is *not* the proof that the lock is still ours: the lease says that, and
/// [guarded](Self::guarded) runs ask it.
///
/// Dropping the guard ends the hold: from then on no run begins or commits. In the background, runs
/// in progress end, and then the lock is released. [`release`](Self::release) does the same and
/// reports the result. Dropping never blocks.
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct LockGuard {
    hold: Arc<Hold>,
    is_ended: bool,
    is_claimed: bool,
    /// Of the runs of the guard itself; made with the first of them.
    executor: OnceLock<Executor>,
    /// Dropped last, so that the manager ends the hold before it may shut down.
    pub(super) handle: Handle,
}

impl LockGuard {
    pub(super) fn new(handle: &Handle, hold: Arc<Hold>) -> Self {
        Self {
            hold,
            is_ended: false,
            is_claimed: true,
            executor: OnceLock::new(),
            handle: handle.clone(),
        }
    }

    /// The guard as the caller gets it, with its fence raised: only now the hold counts as one that
    /// a job was done under.
    pub(crate) fn for_caller(self) -> Self {
        self.hold.guard_is_out();
        self.claimed()
    }

    /// Something else has to be done within `span` before the caller gets the guard. If it is not,
    /// because nobody polls the call, the hold ends.
    pub(crate) fn expect_within(&mut self, span: Duration) {
        self.is_claimed = false;
        let context = self.context();
        (context.holds).expect(&self.hold, &context.clock.stamp(), span);
    }

    /// The call goes on, and will be done within `span` from now on.
    pub(crate) fn expect_again_within(&mut self, span: Duration) {
        self.context().holds.claim(&self.hold);
        self.expect_within(span);
    }

    /// All is done. If that took too long, the lease is over.
    pub(crate) fn claimed(mut self) -> Self {
        if !std::mem::replace(&mut self.is_claimed, true) {
            self.context().holds.claim(&self.hold);
        }
        self
    }

    own_runs!();

    /// What runs mutations under this lock on several threads: give a clone of it to every worker.
    #[must_use]
    pub fn executor(&self) -> Executor {
        Executor::new(
            &self.hold.lease,
            Arc::new(self.sink()),
            self.context().settings.commit_budget,
        )
    }

    pub(super) fn sink(&self) -> HoldSink {
        HoldSink::new(self.context(), &self.hold)
    }

    pub(super) fn attachments(&self) -> Arc<Attachments> {
        Arc::clone(self.hold.attachments())
    }

    pub(super) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(super) fn context(&self) -> &Arc<ManagerContext> {
        self.handle.context()
    }

    /// The hold has ended, or another guard has its grant: dropping this guard does nothing.
    pub(super) fn set_ended(&mut self) {
        self.is_ended = true;
    }

    pub(crate) fn runtime(&self) -> &SharedRuntime {
        &self.context().runtime
    }

    /// The lease: deadline, remaining time, token, signals.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.hold.lease
    }

    /// The key of the lock.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.hold.lease.key()
    }

    /// The fencing token of the grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.lease.token()
    }

    /// What is left of the lease; zero if it is not live. See [`Lease::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.lease.remaining()
    }

    /// Completes when the lease has ended. See [`Lease::lost`]: a convenience, never the proof.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub async fn lost(&self) -> Ended {
        self.hold.lease.lost().await
    }

    /// Ends the hold and reports the result. No run begins or commits any more. Runs in progress
    /// end, and the lease is renewed until they have. Then the lock is released, or handed off to
    /// the next caller in this process.
    ///
    /// The answer is [`Released::Released`], [`Released::AlreadyGone`] or [`Released::Withheld`]:
    /// none of them needs an action of the caller. It never replaces the outcome of a run.
    ///
    /// Handlers wrap the release, on this task; they may take one `request_timeout` before it and
    /// one after it, and cannot prevent it.
    ///
    /// # Errors
    ///
    /// `InDoubt` if the store did not confirm the release. Nothing is left to do for the caller:
    /// the manager repeats the release in the background until it is confirmed or the TTL is over.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: when this future is dropped, the end continues in the background, without the
    /// handlers that were dropped with it.
    ///
    /// # Deadlock
    ///
    /// It waits for runs in progress, without a limit, and the lock is renewed all the while.
    /// Inside of such a run it is an `Invalid` error, and the hold ends in the background as that
    /// of a dropped guard. Do not await it while a run under it is not polled: use
    /// [`release_within`](Self::release_within) there.
    pub async fn release(self) -> Result<Released, Error> {
        self.release_within(Duration::MAX).await
    }

    /// As [`release`](Self::release), but waits for runs in progress for at most `limit`. If one is
    /// still in progress then, the lease ends, renewals stop, and the answer is
    /// [`Released::Withheld`]: the lock is free when its TTL is over. The run does not commit any
    /// more.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: when this future is dropped, the end continues in the background, without the
    /// limit.
    pub async fn release_within(mut self, limit: Duration) -> Result<Released, Error> {
        let context = self.context();
        if limit == Duration::MAX {
            context.ensure_not_inside(self.key(), "waits for its own end")?;
        }
        let released = {
            let ending = pin!(end_hold_within(context, &self.hold, Ended::Released, limit));
            in_runtime(&context.runtime, ending).await
        };
        self.set_ended();
        match released {
            Released::Unknown(error) => Err(unconfirmed(self.key(), error)),
            answer => Ok(answer),
        }
    }

    /// Ends the hold for all that share this guard, as [`release_within`](Self::release_within).
    pub(crate) async fn end_within(&self, limit: Duration) -> Released {
        end_hold_within(self.context(), &self.hold, Ended::Released, limit).await
    }

    /// Ends the hold in the background, for all that share this guard.
    pub(crate) fn end_in_background(&self) {
        self.hold.lease.close();
        let message = Message::End(Arc::clone(&self.hold), Ended::Dropped);
        self.context().inbox.send(message);
    }
}

impl LockGuard {
    /// As [`release`](Self::release), with the rest that the lock leaves after work that was done
    /// ([`Rest::AfterWork`]).
    ///
    /// # Errors
    ///
    /// Unless the store confirmed the rest. `InDoubt`: it may have begun.
    ///
    /// [`Rest::AfterWork`]: super::Rest::AfterWork
    pub(crate) async fn release_as_done(self) -> Result<(), Error> {
        self.hold.leave_rest();
        let hold = Arc::clone(&self.hold);
        let released = self.release().await;
        if hold.progress.has_rest() {
            return Ok(());
        }
        let (kind, what) = match (hold.lease.lost_reason(), released) {
            // No rest was asked for, whatever the answer is.
            (Some(ended), _) if ended.is_loss() => (ErrorKind::Lost(ended), ended.to_string()),
            (_, Err(error)) => return Err(error),
            (_, Ok(withheld @ Released::Withheld { .. })) => {
                (ErrorKind::InDoubt, withheld.to_string())
            }
            // By a shutdown that came first.
            (Some(ended), Ok(Released::Released)) => (ErrorKind::Lost(ended), ended.to_string()),
            (_, Ok(released)) => (ErrorKind::Lost(Ended::Gone), released.to_string()),
        };
        let key = hold.lease.key();
        let error = Error::new(kind, format!("the key does not rest: {what}: key={key}"));
        Err(error.of_key(key))
    }
}

fn unconfirmed(key: &Key, why: Error) -> Error {
    Error::in_doubt(format!(
        "the store did not confirm a release: key={key}; it is repeated in the background until it is confirmed or the ttl is over"
    ))
    .because(why)
    .of_key(key)
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !self.is_ended {
            self.end_in_background();
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("lease", &self.hold.lease)
            .finish_non_exhaustive()
    }
}
