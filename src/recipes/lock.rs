//! [`Lock`]: a key, and how to ask for it.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::fence::{AnyFence, Fence, erase};
use crate::manager::{
    Handle, HoldTimes, LockGuard, LockManager, LockRequest, Patience, acquire, in_runtime,
};
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::store::{Fencing, LockInfo, LockMode};

/// How a message about a wait that was in vain ends, after who may hold.
pub(crate) const OR_NOT_YET: &str = "or the store grants nothing yet (a Redis server that restarted or was flushed: see the log); try later, or wait longer";

/// An exclusive lock: a key and how to ask for it. Nothing is held. Cloning is cheap.
#[derive(Clone, Debug)]
#[must_use = "a lock holds nothing until it is acquired"]
#[doc(alias = "mutex")]
pub struct Lock {
    handle: Handle,
    key: Result<Key, Error>,
    ttl: Option<Duration>,
    fence: Option<AnyFence>,
    lock_delay: Option<Duration>,
    max_hold: Option<Duration>,
    mode: LockMode,
    is_fair: bool,
    label: Option<Label>,
    allows_handoff: bool,
}

impl LockManager {
    /// The exclusive lock of a key. A malformed key is an error of every later call.
    pub fn lock<K>(&self, key: K) -> Lock
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        Lock {
            handle: self.handle.clone(),
            key: key.try_into().map_err(Into::into),
            ttl: None,
            fence: None,
            lock_delay: None,
            max_hold: None,
            mode: LockMode::Exclusive,
            is_fair: false,
            label: None,
            allows_handoff: true,
        }
    }
}

impl Lock {
    /// Uses this TTL instead of the manager's.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Ties a fence to the lock: it is raised to each new holder's token *before* the guard is handed out, so that no former
    /// holder can write between the new one's first read and its first write. If it cannot be raised within
    /// [`request_timeout`](crate::Settings::request_timeout), the lock is released and the acquire fails.
    ///
    /// The store's tokens have to grow ([`Fencing::Monotonic`]): else every acquire is `Unsupported`.
    pub fn fence(self, fence: impl Fence) -> Self {
        self.behind(erase(fence))
    }

    pub(crate) fn behind(mut self, fence: AnyFence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// Lets the next holder wait for this long after an end that was not a release, instead of the manager's
    /// [`lock_delay`](crate::Settings::lock_delay).
    pub fn lock_delay(mut self, lock_delay: Duration) -> Self {
        self.lock_delay = Some(lock_delay);
        self
    }

    /// Renews a hold for this long at most, instead of the manager's [`max_hold`](crate::Settings::max_hold); then it is lost.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Whether this lock takes part in handoffs. Default yes, unless it has a [fence](Self::fence) or is [fair](Self::fair).
    ///
    /// In a handoff, the next caller in this process gets the grant of the one before, without a request to the store: a new
    /// lease, and **the same fencing token**. The two do not overlap, because runs end before the handoff. But a resource that
    /// compares tokens cannot distinguish the two holders: a write that the first one sent outside of a run, with
    /// [`token`](LockGuard::token), and that arrives late, passes. Switch handoffs off for such writes, or tie the resource to the
    /// lock with [`fence`](Self::fence).
    pub fn handoff(mut self, allows_handoff: bool) -> Self {
        self.allows_handoff = allows_handoff;
        self
    }

    /// First come, first served over all processes: every caller has a place in the store's queue, and no hold is handed off
    /// within a process. A caller who died is skipped when its place has ended, which is a matter of seconds.
    ///
    /// It costs a request for each caller where the plain lock asks once for a process. On a store without a queue every
    /// acquire is `Unsupported`.
    pub fn fair(mut self) -> Self {
        self.is_fair = true;
        self
    }

    /// The same key, to be read or written.
    pub(crate) fn in_mode(mut self, mode: LockMode) -> Self {
        self.mode = mode;
        self
    }

    /// Held under this name, by a grant of its own each time: without handoffs.
    pub(crate) fn labelled(mut self, label: Label) -> Self {
        self.label = Some(label);
        self.allows_handoff = false;
        self
    }

    pub(crate) fn key(&self) -> Result<&Key, Error> {
        self.key.as_ref().map_err(Clone::clone)
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Holds the lock, or fails when the manager's [`wait`](crate::Settings::wait) is over. There is no wait without an
    /// end: what is asked over a network may never be answered.
    ///
    /// If a former holder in this process lost the lock in the middle of a run, its next local holder waits until that run has
    /// ended, undo included: the undo would erase the new holder's work too. Other processes do not wait for it. So do not ask for
    /// a lock inside of a run under the same lock: that wait ends with an error.
    ///
    /// # Errors
    ///
    /// `Contended` if it was not free within that time, because somebody else held it (the message says who, where the store
    /// knows) or the store granted nothing yet, or if as many callers wait as may; otherwise as the store failed last, or as a [handler](crate::handler) refused.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a place in the queue is given up, and what was asked of the store is withdrawn in the background.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        let wait = self.handle.context().settings().wait;
        match self.acquire_within(wait).await? {
            Some(guard) => Ok(guard),
            None => Err(self.contended().await),
        }
    }

    /// Holds the lock, or gives `None` if it was not free within `wait`: one budget for everything that it takes. A
    /// [store that grants nothing yet](crate::docs::stores) is as busy as one where somebody else holds it.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), except for a lock that is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<LockGuard>, Error> {
        let patience = if wait.is_zero() {
            Patience::Once
        } else {
            Patience::Within(wait)
        };
        self.ask(patience).await
    }

    /// Holds the lock, or gives `None` if it is not free now: one look, without a wait. A
    /// [store that grants nothing yet](crate::docs::stores) is as busy as one where somebody else holds it.
    ///
    /// # Errors
    ///
    /// As the store failed.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, Error> {
        self.ask(Patience::Once).await
    }

    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.handle.context().runtime()
    }

    /// The error of a wait in vain, with who holds the lock. Without the length of the wait, which a handler may have shortened.
    pub(crate) async fn contended(&self) -> Error {
        let context = self.handle.context();
        let key = match &self.key {
            Ok(key) => key,
            Err(error) => return error.clone(),
        };
        if context.has_former_runs(key) {
            return Error::contended(format!(
                "a former holder in this process still has a run in progress: key={key}; let that run end, and do not ask for the lock inside of it"
            ))
            .of_key(key);
        }
        let holder = in_runtime(self.runtime(), context.holder(key)).await;
        let holder = holder.map_or_else(|| format!("somebody else holds it, {OR_NOT_YET}"), holds);
        Error::contended(format!(
            "the lock was not free within the wait: key={key}; {holder}"
        ))
        .of_key(key)
    }

    async fn ask(&self, patience: Patience) -> Result<Option<LockGuard>, Error> {
        let key = self.key()?;
        let asked = self.ask_store(patience).await;
        asked.map_err(|error| error.of_key(key))
    }

    async fn ask_store(&self, patience: Patience) -> Result<Option<LockGuard>, Error> {
        let request = self.request()?;
        let fenced = async {
            let guard = acquire(&self.handle, request, patience).await?;
            match (guard, &self.fence) {
                (Some(guard), Some(fence)) => self.raise(fence, guard).await.map(Some),
                (guard, _) => Ok(guard),
            }
        };
        in_runtime(self.runtime(), fenced).await
    }

    async fn raise(&self, fence: &AnyFence, guard: LockGuard) -> Result<LockGuard, Error> {
        let limit = self.handle.context().settings().request_timeout;
        let raising = fence.raise(guard.key(), guard.token());
        let clock = guard.lease().clock().clone();
        let raised = clock.timeout(limit, raising).await.unwrap_or_else(|| {
            Err(Error::unavailable(format!(
                "the fence was not raised within request_timeout={limit:?}: key={}; look at it, or raise request_timeout",
                guard.key()
            )))
        });
        let is_shut_out =
            matches!(&raised, Err(error) if matches!(error.kind(), ErrorKind::Lost(_)));
        if self.mode == LockMode::Read && is_shut_out {
            // A reader beside us with a larger token has raised it: the writers of before are shut out.
            return Ok(guard);
        }
        // Nothing was done under this hold, so that nothing has to wait for its end.
        match raised {
            Ok(()) => Ok(guard),
            Err(error) => {
                let _ = guard.release().await;
                Err(error)
            }
        }
    }

    fn request(&self) -> Result<LockRequest, Error> {
        if self.fence.is_some() && self.handle.context().capability().fencing != Fencing::Monotonic
        {
            return Err(Error::unsupported(
                "this store does not promise that its tokens grow, and a fence needs that; use another store, or replicas=n",
            ));
        }
        Ok(LockRequest {
            key: self.key.clone()?,
            times: self.times()?,
            mode: self.mode,
            is_fair: self.is_fair,
            label: self.label.clone(),
            // Two holders with one token would be one to a fence.
            allows_handoff: self.allows_handoff && self.fence.is_none(),
        })
    }

    fn times(&self) -> Result<HoldTimes, Error> {
        let context = self.handle.context();
        let settings = context.settings();
        let own = HoldTimes {
            ttl: self.ttl.unwrap_or(settings.ttl),
            lock_delay: self.lock_delay.unwrap_or(settings.lock_delay),
            max_hold: self.max_hold.or(settings.max_hold),
        };
        if (self.ttl, self.lock_delay, self.max_hold) != (None, None, None) {
            // The lock's own times obey the same rules as the manager's.
            let mut ours = settings.clone();
            (ours.ttl, ours.lock_delay, ours.max_hold) = (own.ttl, own.lock_delay, own.max_hold);
            ours.validate()?;
        }
        if context.capability().ttl_per_lock {
            let ttl = own.ttl + own.lock_delay;
            return Ok(HoldTimes { ttl, ..own });
        }
        if own.ttl != settings.ttl || own.lock_delay >= own.ttl {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "this store has one ttl for all locks, of which the lock delay is a part: ttl={:?} lock_delay={:?}; leave out the lock's own ttl, and set a shorter lock_delay",
                    settings.ttl, own.lock_delay
                ),
            ));
        }
        Ok(own)
    }
}

/// Who holds a lock, for people.
fn holds(info: LockInfo) -> String {
    let mut text = match (&info.label, info.holders) {
        (_, 0) => "it was revoked, and the old lease has not ended".to_owned(),
        (Some(label), _) => format!("held by {label}"),
        (None, _) => "somebody else holds it".to_owned(),
    };
    if let Some(remaining) = info.remaining {
        let seconds = remaining.as_secs_f64();
        text += &format!(", {seconds:.1} s left unless it is renewed");
    }
    if let Some(waiting) = info.queue {
        text += &format!(", {waiting} in the store's queue");
    }
    text + "; try later, or wait longer"
}

/// `locks.lock("nightly").await?` is [`acquire`](Lock::acquire).
impl IntoFuture for Lock {
    type Output = Result<LockGuard, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.acquire().await })
    }
}
