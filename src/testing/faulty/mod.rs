//! [`Faulty`]: a store that fails on purpose, by a seed.
//!
//! It simulates the network: requests and answers are lost, duplicated or delayed, and arrive after
//! they were withdrawn; the inner store restarts and forgets. The seed and the order of the
//! requests determine what it does. A clone is a handle to the same store, so a test can control a
//! store that a manager owns:
//!
//! ```
//! use leasehold::clock::ManualClock;
//! use leasehold::testing::{Faulty, Operation};
//! use leasehold::store::MemoryStore;
//!
//! let clock = ManualClock::new();
//! let store = Faulty::new(MemoryStore::with_clock(clock.clone()), clock, 42);
//! // The manager owns `store`, the test keeps `steer`.
//! let steer = store.clone();
//! // From now on every heartbeat is lost.
//! steer.block(Operation::Renew);
//! steer.unblock(Operation::Renew);
//! assert_eq!(steer.counts(Operation::Renew).asked, 0);
//! ```

mod faults;
mod steering;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use self::steering::{Bar, Fate, Steering};
use crate::clock::Clock;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::{
    Acquired, Capability, Claim, Grant, Hint, LockInfo, Member, Raised, Released, Renewed, Revoke,
    Revoked, Store, Vote,
};

pub use faults::{Counts, Faults, Operation};

/// A store that fails on purpose (feature `testing`). Without faults it behaves as its inner store.
///
/// Cloning is cheap; all clones are the same.
#[derive(Clone)]
pub struct Faulty<S> {
    store: S,
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    seed: u64,
    steering: Mutex<Steering>,
    unbarred: watch::Sender<()>,
    restart: Option<Box<dyn Fn() + Send + Sync>>,
}

/// The request or its answer was lost; the caller learns nothing else.
struct Silence;

impl<S: Store> Faulty<S> {
    /// Puts a simulated network in front of `store`. Its faults are off at first and follow from
    /// `seed`; delays use `clock`.
    pub fn new(store: S, clock: impl Into<Clock>, seed: u64) -> Self {
        Self::build(store, clock.into(), seed, None)
    }

    /// Like [`new`](Self::new), for a store that can restart: `hook` loses what a restart loses, as
    /// `MemoryStore::forget` does.
    pub fn on_restart(
        store: S,
        clock: impl Into<Clock>,
        seed: u64,
        hook: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self::build(store, clock.into(), seed, Some(Box::new(hook)))
    }

    fn build(
        store: S,
        clock: Clock,
        seed: u64,
        restart: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Self {
        Self {
            store,
            shared: Arc::new(Shared {
                clock,
                seed,
                steering: Mutex::new(Steering::new(seed)),
                unbarred: watch::Sender::new(()),
                restart,
            }),
        }
    }

    /// Sets the faults from now on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a probability outside of 0 to 1, and
    /// for restarts of a store without a hook.
    pub fn set(&self, faults: Faults) -> Result<(), Error> {
        faults.validate(self.shared.restart.is_some())?;
        self.shared.steering.lock().faults = faults;
        Ok(())
    }

    /// Loses every request of this kind from now on: the caller gets `InDoubt` at once, and the
    /// store never sees it.
    pub fn block(&self, operation: Operation) {
        self.set_bar(operation, Some(Bar::Blocked));
    }

    /// Stops every request of this kind from now on, as a stopped server does. It is executed after
    /// [`unblock`](Self::unblock), if its caller still waits for it.
    pub fn stall(&self, operation: Operation) {
        self.set_bar(operation, Some(Bar::Stalled));
    }

    /// Passes requests of this kind again.
    pub fn unblock(&self, operation: Operation) {
        self.set_bar(operation, None);
    }

    fn set_bar(&self, operation: Operation, bar: Option<Bar>) {
        self.shared.steering.lock().set_bar(operation, bar);
        self.shared.unbarred.send_replace(());
    }

    /// Restarts the inner store with its hook.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if it was made without one.
    pub fn restart(&self) -> Result<(), Error> {
        let hook = self.shared.restart.as_ref().ok_or_else(|| {
            Error::unsupported("this store has no restart hook; make it with `on_restart`")
        })?;
        hook();
        self.shared.steering.lock().restarts += 1;
        Ok(())
    }

    /// Delivers the late acquires that are not withdrawn yet.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: acquires that did not arrive before the drop are lost.
    pub async fn deliver(&self) {
        let late = self.shared.steering.lock().take_late(None);
        self.arrive(late).await;
    }

    /// What happened to requests of this kind.
    #[must_use]
    pub fn counts(&self, operation: Operation) -> Counts {
        self.shared.steering.lock().counts(operation)
    }

    /// The number of restarts.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.shared.steering.lock().restarts
    }

    /// The seed. Print it when a test fails.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    async fn arrive(&self, late: Vec<Claim>) {
        for claim in late {
            self.tally(Operation::Acquire, |counts| counts.delivered += 1);
            // The caller got `InDoubt` long ago; nobody waits for this answer.
            drop(self.store.acquire(&claim).await);
        }
    }

    fn tally(&self, operation: Operation, add: impl FnOnce(&mut Counts)) {
        add(self.shared.steering.lock().count(operation));
    }

    /// Waits while the operation is stalled. An error if it is blocked.
    async fn pass_bar(&self, operation: Operation) -> Result<(), Silence> {
        let mut unbarred = self.shared.unbarred.subscribe();
        let mut counted = false;
        loop {
            let bar = self.shared.steering.lock().bar(operation);
            match bar {
                None => return Ok(()),
                Some(Bar::Blocked) => {
                    self.tally(operation, |counts| counts.lost_before += 1);
                    return Err(Silence);
                }
                Some(Bar::Stalled) => {
                    if !counted {
                        self.tally(operation, |counts| counts.stalled += 1);
                        counted = true;
                    }
                    // The sender lives in `self`, so this ends only when a bar changes.
                    let _ = unbarred.changed().await;
                }
            }
        }
    }

    /// The faults before the store sees a request.
    async fn send(&self, operation: Operation) -> Result<Fate, Silence> {
        let fate = {
            let mut steering = self.shared.steering.lock();
            steering.count(operation).asked += 1;
            steering.fate(operation)
        };
        self.pass_bar(operation).await?;
        if fate.restart {
            // `set` refuses restarts without a hook.
            let _ = self.restart();
        }
        if let Some(delay) = fate.delay {
            self.tally(operation, |counts| counts.delayed += 1);
            self.shared.clock.sleep(delay).await;
        }
        if fate.lost_before {
            self.tally(operation, |counts| counts.lost_before += 1);
            return Err(Silence);
        }
        Ok(fate)
    }

    /// One request with all of its faults.
    async fn request<T, F>(
        &self,
        operation: Operation,
        ask: impl Fn() -> F + Send,
    ) -> Result<T, Error>
    where
        T: Send,
        F: Future<Output = T> + Send,
    {
        let fate = self.send(operation).await.map_err(|lost| self.lost(lost))?;
        self.ask(operation, fate, ask).await
    }

    async fn ask<T, F>(
        &self,
        operation: Operation,
        fate: Fate,
        ask: impl Fn() -> F + Send,
    ) -> Result<T, Error>
    where
        T: Send,
        F: Future<Output = T> + Send,
    {
        self.tally(operation, |counts| counts.delivered += 1);
        let answer = ask().await;
        if fate.duplicate {
            self.tally(operation, |counts| {
                counts.delivered += 1;
                counts.duplicated += 1;
            });
            drop(ask().await);
        }
        if fate.lost_after {
            self.tally(operation, |counts| counts.lost_after += 1);
            return Err(self.lost(Silence));
        }
        Ok(answer)
    }

    /// An acquire, which may also arrive after its withdrawal.
    async fn attempt<T, F>(&self, claim: &Claim, ask: impl Fn() -> F + Send) -> Result<T, Error>
    where
        T: Send,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let operation = Operation::Acquire;
        let fate = self.send(operation).await.map_err(|lost| self.lost(lost))?;
        if fate.late {
            let mut steering = self.shared.steering.lock();
            if steering.hold_up(claim) {
                steering.count(operation).late += 1;
            } else {
                steering.count(operation).lost_before += 1;
            }
            return Err(self.lost(Silence));
        }
        self.ask(operation, fate, ask).await?
    }

    fn lost(&self, _: Silence) -> Error {
        Error::in_doubt(format!(
            "no answer, on purpose: store={} seed={}; it may or may not have happened",
            self.store.name(),
            self.shared.seed
        ))
    }
}

impl<S: Store> fmt::Debug for Faulty<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty")
            .field("store", &self.store)
            .field("seed", &self.shared.seed)
            .field("steering", &*self.shared.steering.lock())
            .finish()
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Faulty<S> {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn capability(&self) -> Capability {
        self.store.capability()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        self.attempt(claim, || self.store.acquire(claim)).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        match self
            .request(Operation::Renew, || self.store.renew(grants))
            .await
        {
            Ok(answers) => answers,
            Err(e) => grants.iter().map(|_| Renewed::Unknown(e.clone())).collect(),
        }
    }

    async fn release(&self, grant: &Grant) -> Released {
        self.request(Operation::Release, || self.store.release(grant))
            .await
            .unwrap_or_else(Released::Unknown)
    }

    async fn rest(&self, grant: &Grant, rest: Duration) -> Released {
        self.request(Operation::Release, || self.store.rest(grant, rest))
            .await
            .unwrap_or_else(Released::Unknown)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        let withdrawn = self
            .request(Operation::Withdraw, || self.store.withdraw(claim))
            .await;
        let late = self.shared.steering.lock().take_late(Some(claim));
        self.arrive(late).await;
        withdrawn?
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        self.request(Operation::Subscribe, || self.store.subscribe(claim))
            .await?
    }

    /// No request, so nothing of it can be lost.
    fn listen(&self, claim: &Claim) -> Option<Hint> {
        self.store.listen(claim)
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        self.request(Operation::Downgrade, || self.store.downgrade(grant))
            .await?
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        self.request(Operation::Revoke, || self.store.revoke(key, how))
            .await?
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        self.request(Operation::Inspect, || self.store.inspect(key))
            .await?
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        self.request(Operation::List, || self.store.list(prefix))
            .await?
    }

    /// Never fails on purpose, so that a manager can always end.
    async fn close(&self) -> Result<(), Error> {
        self.store.close().await
    }
}

/// A vote is an [`Operation::Acquire`], a raise an [`Operation::Raise`].
#[deny(clippy::missing_trait_methods)]
impl<S: Member> Member for Faulty<S> {
    async fn ready(&self) -> Result<(), Error> {
        self.store.ready().await
    }

    async fn vote(&self, claim: &Claim, floor: Option<FencingToken>) -> Result<Vote, Error> {
        self.attempt(claim, || self.store.vote(claim, floor)).await
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<Raised, Error> {
        self.request(Operation::Raise, || self.store.raise(claim, token))
            .await?
    }
}

#[cfg(test)]
mod tests;
