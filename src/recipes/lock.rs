//! [`Lock`]: a key, and how to ask for it.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::busy::busy;
use crate::fence::{AnyFence, Fence, erase};
use crate::lease::Lease;
use crate::manager::{Handle, HoldTimes, LockGuard, LockManager, Rest, Wish, acquire, in_runtime};
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::shared_runtime::SharedRuntime;
use crate::model::span::in_millis;
use crate::store::{Fencing, LockInfo, LockMode, Share};

/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// An exclusive lock: a key and how to ask for it. Nothing is held. Cloning is cheap.
#[derive(Clone, Debug)]
#[must_use = "a lock holds nothing until it is acquired"]
#[doc(alias = "mutex")]
pub struct Lock {
    handle: Handle,
    wish: Result<Wish, Error>,
}

impl LockManager {
    /// The exclusive lock of a key. A malformed key is an error of every later call.
    pub fn lock<K>(&self, key: K) -> Lock
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        self.lock_of(key.try_into().map_err(Into::into))
    }

    pub(crate) fn lock_of(&self, key: Result<Key, Error>) -> Lock {
        let context = self.handle.context();
        Lock {
            handle: self.handle.clone(),
            wish: key.map(|key| {
                Wish::new(
                    key,
                    context.settings(),
                    &context.capability(),
                    context.label(),
                )
            }),
        }
    }
}

impl Lock {
    /// Uses this TTL instead of the manager's.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.wishing(|wish| wish.times.ttl = ttl)
    }

    /// Ties a fence to the lock: it is raised to each new holder's token *before* the guard is
    /// returned, so no former holder can write between the new one's first read and its first
    /// write.
    ///
    /// A fence that cannot be reached, or at which a transaction of a former holder is still open,
    /// is raised later: [`acquire`](Self::acquire) tries again while it holds the lock, until its
    /// wait is over, and for at most [`wait`](crate::Settings::wait). The first attempt may take
    /// [`request_timeout`](crate::Settings::request_timeout), and each further one twice as long,
    /// or what is left of the wait if that is less, but never less than the first.
    /// [`try_acquire`](Self::try_acquire) makes one attempt. If all fail, or the manager is shut
    /// down, the lock is released and the acquire fails.
    ///
    /// The store's tokens must grow ([`Fencing::Monotonic`]); otherwise every acquire is
    /// `Unsupported`.
    pub fn fence(self, fence: impl Fence) -> Self {
        self.behind(erase(fence))
    }

    pub(crate) fn behind(self, fence: AnyFence) -> Self {
        self.wishing(|wish| wish.fence = Some(fence))
    }

    /// After an end that was not a release, the next holder waits for this long, instead of the
    /// manager's [`lock_delay`](crate::Settings::lock_delay).
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        self.wishing(|wish| wish.times.lock_delay = lock_delay)
    }

    /// Renews a hold for at most this long, instead of the manager's
    /// [`max_hold`](crate::Settings::max_hold); then it is lost.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.wishing(|wish| wish.times.max_hold = Some(max_hold))
    }

    /// Lets the key *rest* after the release, until `at_least` has passed since the grant: nobody
    /// is granted it before. For a job that timers of several hosts start, a little apart: whoever
    /// comes late finds the key resting, however short the job was.
    ///
    /// The release writes the rest in the same step that frees the key, also that of a dropped
    /// guard. A rest is no hold: it may be longer than [`max_ttl`](crate::Settings::max_ttl) (30
    /// days at most), nobody renews it, no waiter is handed it, and
    /// [`inspect`](LockManager::inspect) shows it. While it lasts,
    /// [`try_acquire`](Self::try_acquire) returns `None`, and [`acquire`](Self::acquire) waits or
    /// fails with `Contended` and [`retry_after`](Error::retry_after).
    ///
    /// A caller that never got the guard has done no job: if the fence cannot be raised, a handler
    /// refuses the grant, or the call is dropped, the key does not rest.
    ///
    /// Not promised: a hold that was not released has no rest. The TTL alone ends the hold of a
    /// process that died, of a lease that lapsed, and of a release that was
    /// [withheld](crate::store::Released::Withheld). A store that loses its locks loses rests too,
    /// and they may be longer than the time for which it then grants nothing.
    ///
    /// Such a lock takes part in no handoff. On a store whose [capability](LockManager::capability)
    /// does not say `rests`, every acquire is `Unsupported`: on ZooKeeper a record ends with its
    /// session, and a quorum would need a majority for it.
    pub fn hold_at_least(self, at_least: Duration) -> Self {
        self.wishing(|wish| wish.times.rest = Some(Rest::SinceGrant(at_least)))
    }

    /// Lets the key rest for so long after [`LockGuard::release_as_done`], and after no other end.
    pub(crate) fn rests_after_work(self, keep: Duration) -> Self {
        self.wishing(|wish| wish.times.rest = Some(Rest::AfterWork(keep)))
    }

    /// Says what the lock is held for: 1 to 100 characters without control characters. Otherwise
    /// every later call is `Invalid`.
    ///
    /// Other processes and operators see it behind the holder's name: in
    /// [`inspect`](LockManager::inspect), `leasehold list`, the error of a wait in vain, and the
    /// log. A grant is handed off only to a caller with the same purpose. To give all locks of a
    /// manager one purpose, of whichever kind, give it a
    /// [label](crate::LockManagerBuilder::label) with it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = leasehold::LockManager::connect("memory:").await?;
    /// let lock = locks.lock("db").purpose("nightly backup");
    /// let _guard = lock.acquire().await?;
    /// let info = locks.inspect("db").await?.ok_or("it is free")?;
    /// let label = info.label.ok_or("it has no label")?;
    /// assert_eq!(label.purpose(), Some("nightly backup"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn purpose(mut self, purpose: &str) -> Self {
        self.wish = self.wish.and_then(|mut wish| {
            wish.label = wish.label.with_purpose(purpose)?;
            Ok(wish)
        });
        self
    }

    /// Whether this lock takes part in handoffs. Default yes, unless it has a [fence](Self::fence)
    /// or is [fair](Self::fair).
    ///
    /// In a handoff, the next caller in this process gets the grant of the one before, without a
    /// request to the store: a new lease, and **the same fencing token**. The two do not overlap,
    /// because runs end before the handoff. But a resource that compares tokens cannot distinguish
    /// the two holders: a write that the first one sent outside of a run, with
    /// [`token`](LockGuard::token), and that arrives late, passes. Switch handoffs off for such
    /// writes, or tie the resource to the lock with [`fence`](Self::fence).
    pub fn handoff(self, allows_handoff: bool) -> Self {
        self.wishing(|wish| wish.may_hand_off = allows_handoff)
    }

    /// First come, first served over all processes: every caller has a place in the store's queue,
    /// and no hold is handed off within a process. A caller that died is skipped when its place
    /// expires, after a few seconds.
    ///
    /// Every caller sends requests of its own; with the plain lock one caller of a process does. On
    /// a store without a queue every acquire is `Unsupported`.
    pub fn fair(self) -> Self {
        self.wishing(|wish| wish.is_fair = true)
    }

    /// The same key, to be read or written.
    pub(crate) fn in_mode(self, mode: LockMode) -> Self {
        self.wishing(|wish| wish.mode = mode)
    }

    /// A part of the same key, beside those who hold other parts.
    pub(crate) fn in_share(self, share: Share) -> Self {
        self.wishing(|wish| (wish.mode, wish.share) = (LockMode::Read, Some(share)))
    }

    /// Holds the lock under this name, each time with a new grant: without handoffs.
    pub(crate) fn labelled(self, label: Label) -> Self {
        self.wishing(|wish| {
            wish.label = label.for_the_same_as(&wish.label);
            wish.may_hand_off = false;
        })
    }

    /// One of several locks that a caller waits for at once: the caller counts among those that
    /// wait, and this lock does not.
    pub(crate) fn counted_once(self) -> Self {
        self.wishing(|wish| wish.is_counted = true)
    }

    /// A lock whose fence cannot be raised at once is released, so that others may have it.
    pub(crate) fn raised_once(self) -> Self {
        self.wishing(|wish| wish.is_raised_once = true)
    }

    fn wishing(mut self, change: impl FnOnce(&mut Wish)) -> Self {
        if let Ok(wish) = &mut self.wish {
            change(wish);
        }
        self
    }

    pub(crate) fn key(&self) -> Result<&Key, Error> {
        self.wish().map(|wish| &wish.key)
    }

    /// The TTL of its holds.
    pub(crate) fn ttl_asked(&self) -> Result<Duration, Error> {
        self.wish().map(|wish| wish.times.ttl)
    }

    fn wish(&self) -> Result<&Wish, Error> {
        self.wish.as_ref().map_err(Clone::clone)
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Holds the lock, or fails when the manager's [`wait`](crate::Settings::wait) is over. Every
    /// wait has a limit, because a request that is sent over a network may never be answered.
    ///
    /// If a former holder in this process lost the lock in the middle of a run, its next local
    /// holder waits until that run has ended, undo included: otherwise the undo would erase the new
    /// holder's work too. Other processes do not wait for it.
    ///
    /// A run that asks for a lock that it is under would wait for itself. It gets an error at once,
    /// also if it has lost the lock. A task or thread that the run started is outside of it: it
    /// waits until the limit.
    ///
    /// A call that nobody polls (in another branch of a `select!`, or in a runtime that computes)
    /// does not keep the lock from others for ever: its turn passes to the next caller, what it was
    /// granted ends, and it gets nothing once its wait is over.
    ///
    /// # Errors
    ///
    /// `Invalid` inside of a run under the same lock. `Contended` if another caller held it for all
    /// that time (the message names the holder if the store knows), or if the limit of waiters is
    /// reached. `NotReady` if the [store grants nothing
    /// yet](crate::docs::stores::redis#wait-after-a-restart). Otherwise as the store failed last,
    /// or as a [handler](crate::handler) refused.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the place in the queue is given up, and the request to the store is withdrawn
    /// in the background.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        let wait = self.handle.context().settings().wait;
        match self.acquire_within(wait).await? {
            Some(guard) => Ok(guard),
            None => Err(self.contended().await),
        }
    }

    /// Holds the lock, or returns `None` if another caller held it for all of `wait`: one budget
    /// for all steps.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), except for a lock that somebody else holds. A store that
    /// grants nothing yet, to anybody, is an error: [`NotReady`](ErrorKind::NotReady), with
    /// [`retry_after`](Error::retry_after).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        let wish = self.wish()?;
        // Pinned here: a future that is passed by value is copied, and has its place twice.
        let fenced = pin!(async {
            self.ensure_valid(wish)?;
            let clock = self.handle.context().clock();
            let began = clock.stamp();
            let limit = (!wait.is_zero()).then_some(wait);
            match (acquire(&self.handle, wish, limit).await?, &wish.fence) {
                (Some(guard), Some(fence)) => {
                    let left = if wish.is_raised_once {
                        Duration::ZERO
                    } else {
                        wait.saturating_sub(clock.stamp().since(&began))
                    };
                    self.raise(fence, guard, left).await.map(Some)
                }
                (guard, _) => Ok(guard),
            }
        });
        let held = in_runtime(self.runtime(), fenced).await;
        held.map(|guard| guard.map(LockGuard::for_caller))
            .map_err(|error| error.of_key(&wish.key))
    }

    /// Holds the lock, or returns `None` if it is not free now: one attempt, without a wait.
    /// [`inspect`](LockManager::inspect) says who holds it.
    ///
    /// # Errors
    ///
    /// As [`acquire_within`](Self::acquire_within).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, Error> {
        self.acquire_within(Duration::ZERO).await
    }

    pub(crate) fn runtime(&self) -> &SharedRuntime {
        self.handle.context().runtime()
    }

    /// Whether the caller is inside of a run that has to end before this lock can be granted.
    pub(crate) fn is_inside_run(&self) -> bool {
        let context = self.handle.context();
        self.key().is_ok_and(|key| context.is_inside_run(key))
    }

    /// The error when a wait ended without the lock, with the holder.
    pub(crate) async fn contended(&self) -> Error {
        let context = self.handle.context();
        let key = match self.key() {
            Ok(key) => key,
            Err(error) => return error,
        };
        if context.has_former_runs(key) {
            return Error::contended(format!(
                "a former holder in this process still has a run in progress: key={key}; let that run end, and do not ask for the lock inside of it"
            ))
            .of_key(key);
        }
        busy(key, self.holder().await.as_ref())
    }

    /// Who holds the lock; `None` if nobody does, or the store does not say it in time.
    pub(crate) async fn holder(&self) -> Option<LockInfo> {
        let key = self.key().ok()?;
        let look = self.handle.context().holder(key);
        in_runtime(self.runtime(), look).await
    }

    async fn raise(
        &self,
        fence: &AnyFence,
        mut guard: LockGuard,
        wait: Duration,
    ) -> Result<LockGuard, Error> {
        let raised = self.raised(fence, &mut guard, wait).await;
        // A reader beside us with a larger token may have raised it: the writers of before are shut
        // out.
        let is_shut_out =
            matches!(&raised, Err(error) if matches!(error.kind(), ErrorKind::Lost(_)));
        let is_read = self
            .wish
            .as_ref()
            .is_ok_and(|wish| wish.mode == LockMode::Read);
        let raised = match raised {
            Err(_) if is_read && is_shut_out => Ok(()),
            raised => raised,
        };
        let raised = raised.and_then(|()| self.is_usable(guard.lease()));
        // Nothing was done under this hold, so nothing has to wait for its end.
        match raised {
            Ok(()) => Ok(guard),
            Err(error) => {
                let _ = guard.release().await;
                Err(error)
            }
        }
    }

    /// Raises the fence while the lock is held, and tries again until `wait` is over: a transaction
    /// of a former holder may keep it for a while. Each attempt has twice the time of the one
    /// before, for a fence that waits for such a transaction itself, and follows a longer pause.
    async fn raised(
        &self,
        fence: &AnyFence,
        guard: &mut LockGuard,
        wait: Duration,
    ) -> Result<(), Error> {
        let context = self.handle.context();
        let request = context.settings().request_timeout;
        let clock = guard.lease().clock().clone();
        let began = clock.stamp();
        let wait = wait.min(context.settings().wait);
        let left = || wait.saturating_sub(clock.stamp().since(&began));
        let (mut limit, mut pause) = (request, context.retry_pause());
        guard.expect_within(limit + request);
        loop {
            let raising = fence.raise(guard.key(), guard.token());
            let raised = clock.timeout(limit, raising).await.unwrap_or_else(|| {
                Err(Error::unavailable(format!(
                    "the fence was not raised within {:?}: key={}; check it, or raise wait",
                    in_millis(limit),
                    guard.key()
                )))
            });
            let error = match raised {
                Err(error) if may_be_raised_later(&error) && guard.lease().is_live() => error,
                raised => return raised,
            };
            if left() <= pause {
                return Err(error);
            }
            limit = (2 * limit).min(left().saturating_sub(pause)).max(request);
            guard.expect_again_within(pause + limit + request);
            context.pause(pause).await;
            if context.is_closing() || !guard.lease().is_live() {
                return Err(error);
            }
            pause = (2 * pause).min(context.settings().max_poll_interval);
        }
    }

    /// The raise took time, in which the process may have been stopped.
    fn is_usable(&self, lease: &Lease) -> Result<(), Error> {
        let left = lease.ensure(self.handle.context().settings().min_usable);
        left.map(|_| ()).map_err(|error| {
            Error::unavailable(format!(
                "the fence was raised too late: {error}; raise ttl or check the fence's latency"
            ))
        })
    }

    /// Checks what the store and the settings have to allow.
    fn ensure_valid(&self, wish: &Wish) -> Result<(), Error> {
        let context = self.handle.context();
        let (settings, capability) = (context.settings(), context.capability());
        let HoldTimes {
            ttl,
            lock_delay,
            max_hold,
            rest,
            ..
        } = wish.times;
        if wish.fence.is_some() && capability.fencing != Fencing::Monotonic {
            return Err(Error::unsupported(
                "this store does not promise that its tokens grow, and a fence needs that; use another store, or replicas=n",
            ));
        }
        if let Some(rest) = rest.filter(|rest| rest.span() > LONGEST_REST) {
            return Err(Error::invalid(format!(
                "a key cannot rest for so long: {}={:?} most={LONGEST_REST:?}; shorten it",
                rest.name(),
                rest.span()
            )));
        }
        if let Some(Rest::AfterWork(Duration::ZERO)) = rest {
            return Err(Error::invalid(
                "a job that is done is not remembered with keep=0ns; set a longer one",
            ));
        }
        let of_manager = (settings.ttl, settings.lock_delay, settings.max_hold);
        if (ttl, lock_delay, max_hold) != of_manager {
            // The lock's own times obey the same rules as the manager's.
            let mut ours = settings.clone();
            (ours.ttl, ours.lock_delay, ours.max_hold) = (ttl, lock_delay, max_hold);
            ours.validate()?;
        }
        if capability.ttl_per_lock {
            return Ok(());
        }
        if ttl != settings.ttl || lock_delay >= ttl {
            return Err(Error::unsupported(format!(
                "this store has one ttl for all locks, of which the lock delay is a part: ttl={:?} lock_delay={lock_delay:?}; leave out the lock's own ttl, and set a shorter lock_delay",
                settings.ttl
            )));
        }
        // The lock delay is taken from the lease, which must be one that can be renewed.
        let mut leased = settings.clone();
        (leased.ttl, leased.lock_delay) = (ttl - lock_delay, Duration::ZERO);
        leased.validate()
    }
}

/// Whether another attempt to raise a fence may succeed under the same token.
pub(super) fn may_be_raised_later(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::InDoubt)
}

impl IntoFuture for Lock {
    type Output = Result<LockGuard, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.acquire().await })
    }
}
