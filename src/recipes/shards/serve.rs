//! The loop of a member: it looks at who takes part, obeys the [`Plan`], and reports to it what
//! happened.

use std::any::Any;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::Terms;
use super::assignment;
use super::member::Member;
use super::pace::TAKEN;
use super::plan::{Order, Plan, WorkEnd};
use super::shard::{OwnShards, Shard, Tenure};
use crate::clock::Clock;
use crate::manager::{LockGuard, LockManager};
use crate::model::caught::Caught;
use crate::model::error::{Error, ErrorKind};
use crate::model::span::nanos;
use crate::store::LockInfo;

/// How long one call waits for a shard that another member owns. The next one follows.
const WAIT: Duration = Duration::from_secs(600);
/// Members that start together see each other before one of them asks for what is the others'. It
/// waits at most so long.
const SETTLE: Duration = Duration::from_millis(250);
/// The first pause between two checks whether a shard that was released is owned again. Each is
/// twice the one before.
const FOLLOW_PAUSE: Duration = Duration::from_millis(5);

/// What came of a task.
enum TaskEnd {
    Joined(Result<Option<LockGuard>, Error>),
    /// The members' key, as the store reports it.
    Members(Result<Option<LockInfo>, Error>),
    /// The membership was given up.
    Resigned,
    /// `None`: another member owns the shard.
    Asked(u32, u64, Result<Option<LockGuard>, Error>),
    /// Whether another member waits for the shard.
    Looked(u32, bool),
    /// Another member took the shard that was released, or is late.
    Followed(u32),
    Ended(u32, WorkEnd),
}

/// What a member waits for.
enum Next {
    Stop,
    TaskEnd(TaskEnd),
    /// The membership was lost.
    Lost,
    Time,
}

/// A member, while it takes part.
pub(super) struct Serve<W> {
    manager: LockManager,
    terms: Terms,
    own: Arc<OwnShards>,
    work: Arc<W>,
    stop: CancellationToken,
    me: Member,
    membership: Option<LockGuard>,
    /// All that takes part, as far as it was seen.
    members: Vec<Member>,
    plan: Plan,
    tasks: JoinSet<TaskEnd>,
    /// The call that joins, if one is in progress.
    joining: Option<AbortHandle>,
    /// When the members are looked at next; `None` while they are.
    look_at: Option<Duration>,
    asking: HashMap<u32, AbortHandle>,
    owned: HashMap<u32, CancellationToken>,
    is_leaving: bool,
    /// Its membership is being released.
    is_resigning: bool,
    /// Why this member leaves, unless it was stopped.
    failure: Option<Error>,
}

/// Without the panic's own text, which may contain a secret.
fn panicked<T>(payload: Box<dyn Any + Send>) -> Result<T, Error> {
    drop(Caught::by(payload));
    Err(Error::unavailable(
        "what asked for a shard panicked; fix the fence",
    ))
}

impl<W, F, E> Serve<W>
where
    W: Fn(Shard) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    pub(super) fn new(
        manager: &LockManager,
        terms: Terms,
        own: &Arc<OwnShards>,
        work: W,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        let name = manager.handle.context().label();
        Ok(Self {
            me: Member::named(name, terms.weight, terms.count)?,
            plan: Plan::new(terms.ttl(manager)),
            manager: manager.clone(),
            terms,
            own: Arc::clone(own),
            work: Arc::new(work),
            stop,
            membership: None,
            members: Vec::new(),
            tasks: JoinSet::new(),
            joining: None,
            look_at: None,
            asking: HashMap::new(),
            owned: HashMap::new(),
            is_leaving: false,
            is_resigning: false,
            failure: None,
        })
    }

    fn clock(&self) -> Clock {
        self.manager.handle.context().clock().clone()
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock().boot())
    }

    /// Takes part until it is stopped or fails. Dropped, it ends everything in the background.
    pub(super) async fn run(mut self) -> Result<(), Error> {
        // However many shards this member waits for, it is one caller that waits.
        let _counted = self.manager.handle.context().counted()?;
        let clock = self.clock();
        self.join(Duration::ZERO);
        loop {
            let now = self.now();
            if self.look_at.is_some_and(|at| at <= now) {
                self.look_at_members();
            }
            let orders = self.plan.orders(now);
            self.obey(orders);
            if self.plan.is_done() && !self.is_resigning {
                return self.failure.map_or(Ok(()), Err);
            }
            match self.next(&clock).await {
                Next::Stop => self.leave(),
                Next::TaskEnd(event) => self.take(event),
                Next::Lost => {
                    self.membership = None;
                    self.join(Duration::ZERO);
                }
                Next::Time => {}
            }
        }
    }

    /// What happens next.
    async fn next(&mut self, clock: &Clock) -> Next {
        let wake_at = self.look_at.into_iter().chain(self.plan.next_at()).min();
        let woken = async {
            match wake_at {
                Some(at) => clock.sleep_until(nanos(at)).await,
                None => std::future::pending().await,
            }
        };
        let membership = self.membership.as_ref();
        let lost = async {
            match membership {
                Some(membership) => drop(membership.lost().await),
                None => std::future::pending().await,
            }
        };
        let tasks = &mut self.tasks;
        let event = async {
            loop {
                match tasks.join_next().await {
                    Some(Ok(event)) => return event,
                    // A task that was stopped reports nothing.
                    Some(Err(_)) => {}
                    None => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled(), if !self.is_leaving => Next::Stop,
            event = event => Next::TaskEnd(event),
            () = lost => Next::Lost,
            () = woken => Next::Time,
        }
    }

    fn join(&mut self, pause: Duration) {
        if self.is_leaving {
            return;
        }
        let lock = self.terms.membership(&self.manager, &self.me);
        let clock = self.clock();
        self.joining = Some(self.tasks.spawn(async move {
            clock.sleep(pause).await;
            TaskEnd::Joined(lock.acquire_within(WAIT).await)
        }));
    }

    fn leave(&mut self) {
        self.is_leaving = true;
        let orders = self.plan.leave(self.now());
        self.obey(orders);
        if let Some(joining) = self.joining.take() {
            joining.abort();
        }
        if let Some(membership) = self.membership.take() {
            self.is_resigning = true;
            self.tasks.spawn(async move {
                let _ = membership.release().await;
                TaskEnd::Resigned
            });
        }
    }

    /// Another attempt would fail too.
    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        if !self.is_leaving {
            self.leave();
        }
    }

    /// How long it waits before its first look. One that joins again does not wait.
    fn settle(&self) -> Duration {
        match self.members.is_empty() {
            true => SETTLE.min(self.terms.ttl(&self.manager) / 24),
            false => Duration::ZERO,
        }
    }

    fn look_at_members(&mut self) {
        self.look_at = None;
        let (manager, key) = (self.manager.clone(), self.terms.members_key());
        self.tasks
            .spawn(async move { TaskEnd::Members(manager.inspect(key).await) });
    }

    fn look_again(&mut self) {
        let jitter = &self.manager.handle.context().jitter;
        let most = self.terms.ttl(&self.manager) / 6;
        self.look_at = Some(self.now() + most - jitter.up_to(most / 4));
    }

    fn obey(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Ask(shard, round) => self.ask(shard, round, Duration::ZERO),
                Order::Withdraw(shard) => {
                    if let Some(asking) = self.asking.remove(&shard) {
                        asking.abort();
                    }
                }
                Order::Look(shard) => {
                    let (manager, key) = (self.manager.clone(), self.terms.key(shard));
                    self.tasks.spawn(async move {
                        let info = manager.inspect(key).await.ok().flatten();
                        TaskEnd::Looked(shard, info.and_then(|info| info.queue) > Some(0))
                    });
                }
                Order::Follow(shard) => {
                    let (manager, key) = (self.manager.clone(), self.terms.key(shard));
                    self.tasks.spawn(async move {
                        let mut pause = FOLLOW_PAUSE;
                        while pause < TAKEN {
                            let info = manager.inspect(key.clone()).await.ok().flatten();
                            if info.is_some_and(|info| info.holders > 0) {
                                break;
                            }
                            manager.handle.context().pause(pause).await;
                            pause *= 2;
                        }
                        TaskEnd::Followed(shard)
                    });
                }
                Order::Leave(shard) => {
                    if let Some(leaving) = self.owned.get(&shard) {
                        leaving.cancel();
                    }
                }
            }
        }
    }

    fn ask(&mut self, shard: u32, round: u64, wait: Duration) {
        let lock = self.terms.lock(&self.manager, shard);
        let asking = self.tasks.spawn(async move {
            // A fence is not ours, and may panic.
            let asked = AssertUnwindSafe(lock.acquire_within(wait)).catch_unwind();
            TaskEnd::Asked(shard, round, asked.await.unwrap_or_else(panicked))
        });
        self.asking.insert(shard, asking);
    }

    fn take(&mut self, event: TaskEnd) {
        let now = self.now();
        match event {
            TaskEnd::Joined(Ok(Some(membership))) => {
                self.joining = None;
                if self.is_leaving {
                    drop(membership);
                } else {
                    self.membership = Some(membership);
                    self.look_at = Some(now + self.settle());
                }
            }
            TaskEnd::Joined(Ok(None)) => self.join(Duration::ZERO),
            TaskEnd::Joined(Err(error)) if error.is_retryable() => {
                tracing::debug!(target: "leasehold::shards", %error, "the membership was not granted");
                let pause = self.manager.handle.context().retry_pause();
                self.join(pause);
            }
            TaskEnd::Members(Ok(info)) => {
                self.look_again();
                let labels = info.map(|info| info.labels).unwrap_or_default();
                self.saw(labels.iter().filter_map(Member::of).collect());
            }
            TaskEnd::Members(Err(error)) if error.is_retryable() => {
                tracing::debug!(target: "leasehold::shards", %error, "the members were not seen");
                self.look_again();
            }
            TaskEnd::Resigned => {
                self.is_resigning = false;
                self.look_at = Some(now);
            }
            TaskEnd::Asked(shard, round, Ok(Some(guard))) => self.granted(shard, round, guard),
            TaskEnd::Asked(shard, round, Ok(None)) => {
                if self.plan.waits(shard, round) {
                    self.ask(shard, round, WAIT);
                }
            }
            TaskEnd::Asked(shard, round, Err(error)) if error.is_retryable() => {
                tracing::debug!(target: "leasehold::shards", shard, %error, "a shard was asked for in vain");
                self.plan.failed(shard, round, now);
            }
            // The others are served.
            TaskEnd::Asked(shard, round, Err(error))
                if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Denied) =>
            {
                if self.plan.failed(shard, round, now) {
                    tracing::warn!(target: "leasehold::shards", shard, %error, "a shard has no owner here");
                }
            }
            TaskEnd::Asked(.., Err(error))
            | TaskEnd::Joined(Err(error))
            | TaskEnd::Members(Err(error)) => {
                self.fail(error);
            }
            TaskEnd::Looked(shard, is_waited_for) => {
                self.plan.looked(shard, is_waited_for, now);
            }
            TaskEnd::Followed(shard) => self.plan.followed(shard),
            TaskEnd::Ended(shard, how) => {
                self.owned.remove(&shard);
                let order = self.plan.ended(shard, how, now);
                self.obey(order.into_iter().collect());
            }
        }
    }

    fn granted(&mut self, index: u32, round: u64, guard: LockGuard) {
        if !self.plan.granted(index, round, self.now()) {
            return;
        }
        self.asking.remove(&index);
        let leaving = CancellationToken::new();
        self.owned.insert(index, leaving.clone());
        let tenure = Tenure {
            index,
            guard,
            leaving,
            drain_limit: self.terms.drain_limit,
            own: Arc::clone(&self.own),
        };
        let work = Arc::clone(&self.work);
        self.tasks.spawn(async move {
            let how = tenure.run(|shard| work(shard)).await;
            TaskEnd::Ended(index, how)
        });
    }

    /// Those who take part, in the order in which they joined.
    fn saw(&mut self, mut members: Vec<Member>) {
        if self.is_leaving {
            if members.iter().all(|member| member.label == self.me.label) {
                self.plan.is_alone(self.now());
            }
            return;
        }
        if let Some(first) = members
            .first()
            .filter(|first| first.shards != self.me.shards)
        {
            let error = Error::invalid(format!(
                "the members disagree about the number of shards: key={} ours={} others={}; stop all members, and start them with one number",
                self.terms.members_key(),
                self.me.shards,
                first.shards
            ));
            return self.fail(error);
        }
        // The hold of a member that joined again may outlive its lease for a while. It is no second
        // member.
        let mut seen = HashSet::new();
        members
            .retain(|member| member.shards == self.me.shards && seen.insert(member.label.clone()));
        if members == self.members {
            return;
        }
        let owners = assignment::owners(&members, self.me.shards);
        let me = members
            .iter()
            .position(|member| member.label == self.me.label);
        // A member that does not see itself asks for nothing.
        let ours = (0..).zip(owners).filter(|(_, owner)| Some(*owner) == me);
        let target: BTreeSet<u32> = ours.map(|(shard, _)| shard).collect();
        tracing::debug!(target: "leasehold::shards", members = members.len(), shards = target.len(), "the members have changed");
        self.members = members;
        let orders = self.plan.want(target, self.now());
        self.obey(orders);
    }
}
