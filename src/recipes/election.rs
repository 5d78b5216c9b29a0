//! Leader election: one of many candidates leads, and the next one after it ends.
//!
//! Leadership is a hold: only a store's proof wins it, it ends by its own deadline whether or not a
//! notification arrives, and the leader's work runs guarded. Only a [`Leadership`] can be lost, and
//! only [`campaign`](Election::campaign) returns one, so "lost" is never reported for an office
//! that was not won.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::{GuardedCell, LockManager, store::MemoryStore};
//!
//! let locks = LockManager::new(MemoryStore::new()?)?;
//! let election = locks.election("scheduler");
//! let planned = GuardedCell::new(0);
//!
//! let leadership = election.campaign("host-a").await?;
//! let _done = leadership.guarded(|tx| {
//!     *tx.write(&planned) += 1;
//!     Ok(())
//! })?;
//! let leader = election.leader().await?.ok_or("nobody leads")?;
//! assert_eq!(leader.name.unwrap().as_str(), "host-a");
//! leadership.resign().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [The guide](crate::docs::leading) has a whole program, which also moves the office in order.
//!
//! Each term has a token of its own, larger than that of the term before. If the store keeps a
//! queue, candidates are elected in the order of their campaigns.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::fence::Fence;
use crate::lease::Lease;
use crate::manager::{LockManager, in_runtime};
use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::token::FencingToken;
pub use crate::recipes::leadership::Leadership;
use crate::recipes::lock::Lock;
use crate::recipes::pass_on::{self, Wanted, Why};
pub use crate::recipes::term::WhileLeader;
use crate::recipes::term::{Orders, OwnTerm, stopped};
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::watch;

/// An office that one candidate holds at a time. Cloning is cheap.
#[derive(Clone, Debug)]
#[must_use = "nobody is elected until somebody campaigns"]
#[doc(alias = "LeaderElection")]
pub struct Election {
    pub(super) manager: LockManager,
    lock: Lock,
    preference: u8,
    own_term: Arc<watch::Sender<Option<Lease>>>,
}

/// Who leads, as the store reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LeaderInfo {
    /// The name under which it campaigned, if the store keeps it.
    pub name: Option<Label>,
    /// The token of its term, if the store keeps it.
    pub term: Option<FencingToken>,
}

impl LockManager {
    /// The election of a key. A malformed key is an error of every later call.
    pub fn election<K>(&self, key: K) -> Election
    where
        K: TryInto<Key>,
        K::Error: Into<Error>,
    {
        let lock = self.lock(key);
        let lock = if self.capability().is_fair() {
            lock.fair()
        } else {
            lock
        };
        Election {
            manager: self.clone(),
            lock,
            preference: 0,
            own_term: Arc::new(watch::Sender::new(None)),
        }
    }
}

impl Election {
    /// Uses this TTL instead of the manager's: for how long a leader that died keeps the office.
    pub fn ttl(self, ttl: Duration) -> Self {
        let lock = self.lock.ttl(ttl);
        Self { lock, ..self }
    }

    /// Ties a fence to the office, as [`Lock::fence`]: it is raised to the new term before the
    /// leader leads.
    pub fn fence(self, fence: impl Fence) -> Self {
        let lock = self.lock.fence(fence);
        Self { lock, ..self }
    }

    /// How much this candidate is preferred: 0 by default. A leader in
    /// [`while_leader`](Self::while_leader) passes its office on, in order and within seconds, when
    /// a candidate waits that is preferred more. Until then candidates are elected in the order of
    /// their campaigns. On a store without a [queue](crate::store::Queue) it has no effect. A
    /// leader sees the first [`MAX_WAITERS`](crate::store::LockInfo::MAX_WAITERS) that wait: behind
    /// those a candidate is not preferred yet.
    ///
    /// Other processes see it behind the name: `host-a (prefer 3)`.
    pub fn prefer(self, preference: u8) -> Self {
        Self { preference, ..self }
    }

    /// Leads under this name, or fails when the manager's [`wait`](crate::Settings::wait) is over.
    ///
    /// # Errors
    ///
    /// `Contended` if the office was not free within that time; `Invalid` for a name that is not a
    /// [`Label`]; otherwise as [`Lock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the campaign is given up, and an office that was just won is resigned in the
    /// background.
    pub async fn campaign(&self, name: &str) -> Result<Leadership, Error> {
        let wait = self.manager.settings().wait;
        match self.campaign_within(name, wait).await? {
            Some(leadership) => Ok(leadership),
            None => Err(self.lock.contended().await),
        }
    }

    /// As [`campaign`](Self::campaign); `None` if the office was not free within `wait`.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), except for an office that is taken.
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign).
    pub async fn campaign_within(
        &self,
        name: &str,
        wait: Duration,
    ) -> Result<Option<Leadership>, Error> {
        let label = pass_on::candidate(name, self.preference)?;
        let lock = self.lock.clone().labelled(label);
        let guard = lock.acquire_within(wait).await?;
        Ok(guard.map(|guard| {
            let runtime = self.manager.handle.context().runtime();
            let term = OwnTerm::begin(&self.own_term, guard.lease(), runtime);
            Leadership::new(guard, term, self.preference)
        }))
    }

    /// Who leads now; `None` if nobody does.
    ///
    /// # Errors
    ///
    /// As [`LockManager::inspect`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn leader(&self) -> Result<Option<LeaderInfo>, Error> {
        let info = self.manager.inspect(self.lock.key()?.clone()).await?;
        let held = info.filter(|info| info.holders > 0);
        let name = |label: Label| match Wanted::of(&label) {
            Wanted::Office { name, .. } => Label::parse(name).map(Some),
            // It holds the office for a moment, and leads nobody.
            Wanted::StepDown { .. } => Ok(None),
        };
        let Some(info) = held else { return Ok(None) };
        let term = info.token;
        match info.label.map(name).transpose()? {
            Some(None) => Ok(None),
            name => Ok(Some(LeaderInfo {
                name: name.flatten(),
                term,
            })),
        }
    }

    /// Asks the leader to pass its office on to the next candidate, without a kill and without a
    /// gap longer than a handover. Returns whether somebody led. For operators: before a machine
    /// goes down, or to move the office.
    ///
    /// A leader in [`while_leader`](Self::while_leader) drains its work first, and campaigns again
    /// after its [`ttl`](Self::ttl). One that was elected by [`campaign`](Self::campaign) is asked
    /// through [`Leadership::asked_to_leave`], and may decline.
    ///
    /// # Errors
    ///
    /// `Contended` if the leader has not passed the office on within the manager's
    /// [`wait`](crate::Settings::wait), or does not see the request because
    /// [`MAX_WAITERS`](crate::store::LockInfo::MAX_WAITERS) candidates wait before it;
    /// `Unsupported` on a store without a queue; otherwise as [`Lock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the request is withdrawn. The leader may have seen it.
    pub async fn step_down(&self) -> Result<bool, Error> {
        let Some(leader) = self.leader().await? else {
            return Ok(false);
        };
        let key = self.lock.key()?.clone();
        let Some(term) = leader.term else {
            return Err(Error::unsupported(format!(
                "this store does not say which term it is: key={key}; revoke the lock instead"
            )));
        };
        let request = self
            .manager
            .lock(key)
            .fair()
            .labelled(pass_on::step_down(term)?);
        let context = self.manager.handle.context();
        let is_over = async {
            loop {
                context.pause(context.settings().retry_delay).await;
                match self.leader().await {
                    Ok(Some(now)) if now.term == Some(term) => {}
                    Ok(_) => return,
                    Err(_) => {}
                }
            }
        };
        let asked = async {
            tokio::select! {
                biased;
                held = request.acquire_within(self.manager.settings().wait) => match held? {
                    Some(office) => { let _ = office.release().await; Ok(true) }
                    None => Err(request.contended().await),
                },
                () = is_over => Ok(true),
            }
        };
        in_runtime(context.runtime(), asked).await
    }

    /// The leader: the current one first, then each change that is seen. The stream asks the store
    /// once in each [`max_poll_interval`](crate::Settings::max_poll_interval), so it may miss a
    /// shorter term, and it is late by up to that time. Use it for people and to find the leader,
    /// never to decide that you lead. A failed request is returned as an error, and the stream
    /// continues; it ends with the manager.
    pub fn observe(
        &self,
    ) -> impl Stream<Item = Result<Option<LeaderInfo>, Error>> + Send + 'static {
        let begin = Observing {
            election: self.clone(),
            reported: None,
            has_looked: false,
        };
        unfold(begin, Observing::next)
    }

    /// Campaigns, runs `work` while it leads, and campaigns again when the leadership is lost,
    /// until the work has completed in one term. Then it resigns.
    ///
    /// The work is dropped as soon as the loss is known, and is called again with the next term.
    /// That is a convenience: a change that must not happen without the leadership belongs in
    /// [`guarded`](crate::LockGuard::guarded).
    ///
    /// While it leads, it asks the store once in each
    /// [`max_poll_interval`](crate::Settings::max_poll_interval) whether it is to leave: for a
    /// candidate that is [preferred](Self::prefer), or because of [`step_down`](Self::step_down).
    ///
    /// In a spawned task the work must be an `async move` closure that owns what it uses, or clones
    /// of it. For a closure that borrows, the compiler reports that `Send` or `AsyncFnMut` "is not
    /// general enough".
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use leasehold::{GuardedCell, LockManager};
    /// use leasehold::election::Leadership;
    /// use leasehold::store::MemoryStore;
    ///
    /// let locks = LockManager::new(MemoryStore::new()?)?;
    /// let election = locks.election("scheduler");
    /// let planned = Arc::new(GuardedCell::new(0));
    ///
    /// let ours = Arc::clone(&planned);
    /// let task = tokio::spawn(async move {
    ///     let work = async move |leadership: &Leadership| {
    ///         let plan = leadership.guarded(|tx| Ok(*tx.write(&ours) += 1));
    ///         tokio::task::yield_now().await;
    ///         plan.is_ok()
    ///     };
    ///     election.while_leader("host-a", work).await
    /// });
    /// assert!(task.await??);
    /// assert_eq!(*planned.read(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), where another campaign would fail too. While the office is
    /// taken, the store cannot be reached, or the term is lost before it begins (a newer leader has
    /// raised the fence), it campaigns again, without a limit. Bound it with
    /// [`until`](WhileLeader::until), and let its runs end with [`drain`](WhileLeader::drain).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the work is dropped with it, and the office is resigned in the background.
    pub fn while_leader<'a, T, W>(
        &'a self,
        name: &'a str,
        work: W,
    ) -> WhileLeader<impl Future<Output = Result<Option<T>, Error>> + use<'a, T, W>>
    where
        W: AsyncFnMut(&Leadership) -> T,
    {
        let (orders, ordered) = watch::channel(Orders::default());
        let led = async move {
            let runtime = self.manager.handle.context().runtime();
            in_runtime(runtime, self.led(name, work, ordered)).await
        };
        WhileLeader::new(led, orders)
    }

    /// The own term: the lease of the leadership that this election, or a clone of it, holds now;
    /// `None` while it does not lead. It is cleared when the term ends, for whatever reason.
    ///
    /// For a health endpoint, or for code that waits until this process leads. The notification may
    /// arrive late: code that acts as the leader uses [`guarded`](crate::LockGuard::guarded), and a
    /// reader checks [`Lease::is_live`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use leasehold::{LockManager, store::MemoryStore};
    /// # let locks = LockManager::new(MemoryStore::new()?)?;
    /// let election = locks.election("scheduler");
    /// let state = election.state();
    /// let leads = || state.borrow().as_ref().is_some_and(|lease| lease.is_live());
    /// assert!(!leads());
    /// let leadership = election.campaign("host-a").await?;
    /// assert!(leads());
    /// leadership.resign().await?;
    /// assert!(!leads());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn state(&self) -> watch::Receiver<Option<Lease>> {
        self.own_term.subscribe()
    }

    /// `None` if it was stopped.
    async fn led<T>(
        &self,
        name: &str,
        mut work: impl AsyncFnMut(&Leadership) -> T,
        mut orders: watch::Receiver<Orders>,
    ) -> Result<Option<T>, Error> {
        let context = self.manager.handle.context();
        loop {
            let campaign = tokio::select! {
                biased;
                () = stopped(&mut orders) => return Ok(None),
                campaign = self.campaign(name) => campaign,
            };
            let mut pause = context.retry_pause();
            match campaign {
                Ok(leadership) => {
                    let mut why = None;
                    let done = {
                        let mut working = pin!(work(&leadership));
                        let done = tokio::select! {
                            biased;
                            () = stopped(&mut orders) => None,
                            asked = leadership.asked() => { why = Some(asked); None }
                            value = &mut working => Some(value),
                            _ = leadership.lost() => None,
                        };
                        let limit = orders.borrow().drain;
                        match done {
                            None if !limit.is_zero() => {
                                self.drained(&leadership, working, limit).await
                            }
                            done => done,
                        }
                    };
                    let _ = leadership.resign().await;
                    if done.is_some() || orders.borrow().stops {
                        return Ok(done);
                    }
                    if why == Some(Why::AskedTo) {
                        // Whoever waits leads now. If nobody does, this one is not elected again at
                        // once.
                        pause = self.lock.ttl_asked()?;
                    }
                }
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error),
            }
            tokio::select! {
                biased;
                () = stopped(&mut orders) => return Ok(None),
                () = context.pause(pause) => {}
            }
        }
    }

    /// The work goes on until it waits while no run is in progress, and for at most `limit`.
    async fn drained<F: Future>(
        &self,
        leadership: &Leadership,
        mut work: Pin<&mut F>,
        limit: Duration,
    ) -> Option<F::Output> {
        let context = self.manager.handle.context();
        let is_drained = || leadership.lease().is_drained();
        let ends = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if is_drained() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        // The end of a run elsewhere wakes nobody while the hold is open.
        let others_end = async {
            while !is_drained() && !context.is_closing() {
                context.pause(context.settings().retry_delay).await;
            }
        };
        tokio::select! {
            biased;
            _ = leadership.lost() => None,
            value = ends => value,
            () = context.pause(limit) => None,
            () = others_end => None,
        }
    }
}

/// The state that an observer has received.
struct Observing {
    election: Election,
    /// `None`: nothing yet.
    reported: Option<Option<LeaderInfo>>,
    has_looked: bool,
}

impl Observing {
    async fn next(mut self) -> Option<(Result<Option<LeaderInfo>, Error>, Self)> {
        loop {
            let context = self.election.manager.handle.context();
            if self.has_looked {
                let pause = context.pause(context.settings().max_poll_interval);
                in_runtime(context.runtime(), pause).await;
            }
            if context.is_closing() {
                return None;
            }
            self.has_looked = true;
            let leader = self.election.leader().await;
            match &leader {
                Ok(leader) if self.reported.as_ref() == Some(leader) => continue,
                Ok(leader) => self.reported = Some(leader.clone()),
                Err(_) => {}
            }
            return Some((leader, self));
        }
    }
}
