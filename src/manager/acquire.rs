//! How a caller comes to hold a lock: the local queue first, then hint and poll at the store.

use std::sync::Arc;
use std::time::Duration;

use super::guard::LockGuard;
use super::hold::{Hold, Origin};
use super::queue::{Entered, Next, Turn};
use super::shared::{Shared, closed};
use super::task::Msg;
use super::waits::Waits;
use crate::clock::Stamp;
use crate::lease::{Granted, Lease};
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::{Label, OwnerToken};
use crate::model::key::Key;
use crate::store::{
    Acquired, Capability, Claim, FAIR_STORES, Fencing, Grant, Hint, LockMode, READ_WRITE_STORES,
};

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) key: Key,
    pub(crate) spans: Spans,
    pub(crate) mode: LockMode,
    /// First come, first served over all processes.
    pub(crate) is_fair: bool,
    /// In place of the manager's.
    pub(crate) label: Option<Label>,
    /// Whether a hold of another caller may be taken over, with its token.
    pub(crate) takes_over: bool,
}

/// How long a hold lasts. A hold is handed on only to a caller who asked for the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spans {
    /// What the store is asked for: the lock delay included.
    pub(crate) ttl: Duration,
    /// How much of what the store keeps is for the next holder, and not for the lease.
    pub(crate) lock_delay: Duration,
    /// The longest that it is renewed for.
    pub(crate) max_hold: Option<Duration>,
}

impl Spans {
    /// How long a lease may count on what the store keeps for `ttl`.
    pub(super) fn leased(&self, ttl: Duration) -> Duration {
        ttl.saturating_sub(self.lock_delay)
    }
}

impl Want {
    /// Whether each caller asks the store for itself: because the store keeps the order, or because several may hold.
    pub(super) fn goes_beside(&self) -> bool {
        self.is_fair || self.mode != LockMode::Exclusive
    }

    /// What this manager asks of a store that may not be able to.
    fn ensure_possible(&self, store: &str, capability: &Capability) -> Result<(), Error> {
        let key = &self.key;
        if self.mode != LockMode::Exclusive && !capability.read_write {
            return Err(Error::unsupported(format!(
                "this store has no read and write locks: store={store} key={key}; use an exclusive lock, or a store whose capability says read_write: {READ_WRITE_STORES}"
            )));
        }
        if self.is_fair && !capability.is_fair() {
            return Err(Error::unsupported(format!(
                "this store keeps no queue: store={store} key={key}; leave out fair, or use a store whose capability says fair or queues: {FAIR_STORES}"
            )));
        }
        Ok(())
    }
}

/// How long a caller waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// One look.
    Once,
    /// One budget for the local queue and the store together.
    Within(Duration),
}

/// Holds the lock, or says that it is busy.
///
/// Cancel safe: what was asked of the store and not answered is withdrawn in the background, and a place in the local
/// queue is given up.
pub(super) async fn acquire(
    shared: &Arc<Shared>,
    want: Want,
    patience: Patience,
) -> Result<Option<LockGuard>, Error> {
    shared.ensure_at_work()?;
    want.ensure_possible(shared.store.name(), &shared.capability)?;
    let budget = Budget::begin(shared, patience);
    let mut waits = None;
    let mut _waiting = None;
    let turn = match shared.queues.enter(&want, patience != Patience::Once)? {
        None => return Ok(None),
        Some(Entered::Turn(turn, waiting)) => {
            _waiting = waiting;
            turn
        }
        Some(Entered::Place(mut place)) => {
            waits = Waits::begin(shared, &want.key);
            match shared.clock.timeout(budget.left(), place.called()).await {
                None => return Ok(None),
                Some(None) => return Err(closed()),
                Some(Some(Next::Guard(guard))) => return Ok(Some(*guard)),
                Some(Some(Next::Turn(turn))) => turn,
            }
        }
    };
    Asking {
        shared,
        want,
        budget,
        turn: Some(turn),
        waits,
        failures: 0,
    }
    .run()
    .await
}

/// One budget for everything that an acquire waits for.
struct Budget<'a> {
    shared: &'a Shared,
    started: Stamp,
    patience: Patience,
}

impl<'a> Budget<'a> {
    fn begin(shared: &'a Shared, patience: Patience) -> Self {
        Self {
            shared,
            started: shared.clock.stamp(),
            patience,
        }
    }

    /// For one request.
    fn limit(&self) -> Duration {
        let most = self.shared.settings.request_timeout;
        match self.patience {
            Patience::Once => most,
            Patience::Within(_) => most.min(self.left()),
        }
    }

    fn left(&self) -> Duration {
        match self.patience {
            Patience::Once => Duration::ZERO,
            Patience::Within(span) => {
                span.saturating_sub(self.shared.clock.stamp().since(&self.started))
            }
        }
    }
}

/// The caller whose turn it is to ask the store.
struct Asking<'a> {
    shared: &'a Arc<Shared>,
    want: Want,
    budget: Budget<'a>,
    turn: Option<Turn>,
    waits: Option<Waits<'a>>,
    /// How many requests in a row came to nothing.
    failures: u32,
}

/// A store that fails is asked ever more rarely: after so many failures the pause is doubled no more.
const MOST_DOUBLINGS: u32 = 3;

/// How one claim ended.
enum Ended {
    Held(Box<LockGuard>),
    /// Somebody else holds it, and the budget is spent.
    Busy,
    /// Asking again with a new claim may pay.
    Failed(Error),
}

impl Asking<'_> {
    /// One claim after the other, until one holds or the budget is spent.
    async fn run(&mut self) -> Result<Option<LockGuard>, Error> {
        self.give_way().await;
        loop {
            match self.claim().await? {
                Ended::Held(guard) => return Ok(Some(*guard)),
                Ended::Busy => return Ok(None),
                Ended::Failed(error) => {
                    let pause = self.back_off();
                    if self.budget.left() <= pause {
                        return Err(error);
                    }
                    self.shared.pause(pause, std::future::pending()).await;
                }
            }
        }
    }

    /// How long to wait before a store that failed is asked again.
    fn back_off(&self) -> Duration {
        let spin = self.shared.spin();
        let more = spin * (1 << self.failures.saturating_sub(1).min(MOST_DOUBLINGS));
        // A place in the store's queue is kept for as long as two polls.
        more.min(self.shared.settings.max_poll_interval).max(spin)
    }

    /// Lets the processes ask first that the release has woken, if ours had the key for as long as it may: a look at the
    /// store takes as long as their asking does. Where the store queues we stand behind them anyway.
    async fn give_way(&mut self) {
        let has_to = self.turn.as_mut().is_some_and(Turn::has_to_give_way);
        if !has_to || self.shared.capability.queues {
            return;
        }
        let look = self.shared.store.inspect(&self.want.key);
        // What it tells does not matter, nor that it fails: we ask next.
        let _ = self.shared.clock.timeout(self.budget.limit(), look).await;
    }

    /// One claim: asked, and asked again when that may pay, until it is granted, fails, or the budget is spent.
    async fn claim(&mut self) -> Result<Ended, Error> {
        let place_ttl = match self.budget.patience {
            Patience::Once => Duration::ZERO,
            Patience::Within(_) => self.shared.place_ttl(),
        };
        let mut attempt = Attempt::new(self.shared, &self.want, place_ttl)?;
        let mut hint = None;
        let mut was_busy = false;
        loop {
            let limit = self.budget.limit();
            self.shared.ensure_at_work()?;
            // Before the request leaves (I1).
            let sent_at = self.shared.clock.stamp();
            let busy_for = match attempt.ask(limit).await {
                Ok(Acquired::Granted(grant)) => return self.granted(attempt, grant, sent_at),
                Ok(Acquired::Busy { remaining }) => remaining,
                // The wait was over before the answer could be there. What was asked is withdrawn with the attempt.
                Err(_) if was_busy && self.budget.left().is_zero() => return Ok(Ended::Busy),
                Err(error) if may_pay(error.kind()) => {
                    self.failures += 1;
                    let pause = self.back_off();
                    let left = self.budget.left();
                    if !attempt.claim.queues() || left <= pause {
                        return Ok(Ended::Failed(error));
                    }
                    // The same claim again, so that a lost answer costs no place in the queue.
                    self.shared.pause(pause, std::future::pending()).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            was_busy = true;
            self.failures = 0;
            let left = self.budget.left();
            if left.is_zero() {
                return Ok(Ended::Busy);
            }
            self.waits = self
                .waits
                .take()
                .or_else(|| Waits::begin(self.shared, &self.want.key));
            // Subscribe, then look again, then wait: a wake-up between look and subscription is not missed.
            match hint.take() {
                None if self.shared.capability.wakes => {
                    hint = attempt.subscribe(limit.min(left)).await;
                    if hint.is_none() {
                        self.wait(None, busy_for).await;
                    }
                }
                subscribed => self.wait(subscribed, busy_for).await,
            }
            if self.budget.left().is_zero() {
                return Ok(Ended::Busy);
            }
        }
    }

    /// Until the hint resolves, or the holder's time may be over, or the poll is due.
    async fn wait(&self, hint: Option<Hint>, busy_for: Option<Duration>) {
        let settings = &self.shared.settings;
        let poll = busy_for
            .unwrap_or(settings.max_poll_interval)
            .min(settings.max_poll_interval);
        let pause = poll.max(settings.retry_delay) + self.shared.spin() - settings.retry_delay;
        let pause = pause.min(self.budget.left());
        match hint {
            Some(hint) => self.shared.pause(pause, hint).await,
            None => {
                self.shared
                    .pause(self.shared.spin().min(pause), std::future::pending())
                    .await
            }
        }
    }

    /// From here to the guard there is no await: nothing can be lost in between.
    fn granted(
        &mut self,
        mut attempt: Attempt<'_>,
        grant: Grant,
        sent_at: Stamp,
    ) -> Result<Ended, Error> {
        let settings = &self.shared.settings;
        let granted = Granted {
            key: &grant.claim.key,
            token: grant.token,
            is_fencing: self.shared.capability.fencing == Fencing::Monotonic,
            sent_at: &grant.proof.sent_at.unwrap_or(sent_at),
            ttl: self.want.spans.leased(grant.proof.ttl),
        };
        let lease = Lease::new(self.shared.clock.clone(), settings.terms(), &granted);
        if let Err(error) = lease.ensure(settings.min_usable) {
            // The attempt is withdrawn as it is dropped: a guard over a lease that is all but dead is of no use.
            return Ok(Ended::Failed(Error::unavailable(format!(
                "the store granted, but too late or for too short: {error}; raise ttl or look at the store's latency"
            ))));
        }
        let Some(turn) = self.turn.take() else {
            return Err(Error::closed("an acquire went on after its end"));
        };
        let from = Origin {
            grant,
            granted_at: sent_at,
            handoffs: 0,
            spans: self.want.spans,
            was_in_doubt: attempt.was_in_doubt,
        };
        let hold = Hold::new(Arc::clone(self.shared), lease, from, turn);
        if let Err(error) = self.shared.adopt(&hold) {
            // Withdrawn before the turn ends: a shutdown waits for the turn.
            drop(attempt);
            return Err(error);
        }
        attempt.is_open = false;
        Ok(Ended::Held(Box::new(LockGuard::new(hold))))
    }
}

/// Whether a new claim may fare better.
fn may_pay(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable | ErrorKind::InDoubt | ErrorKind::Contended
    )
}

/// A claim that the store may know of. Dropped while it is open, it is withdrawn in the background.
struct Attempt<'a> {
    shared: &'a Arc<Shared>,
    claim: Claim,
    is_open: bool,
    /// An asking had no answer: it may be executed at any time.
    was_in_doubt: bool,
}

impl<'a> Attempt<'a> {
    fn new(shared: &'a Arc<Shared>, want: &Want, place_ttl: Duration) -> Result<Self, Error> {
        let owner = OwnerToken::generate()?;
        let label = want.label.as_ref().unwrap_or(&shared.label).clone();
        let mut claim = Claim::new(want.key.clone(), owner, label, want.spans.ttl);
        claim.mode = want.mode;
        claim.is_fair = want.is_fair;
        claim.place_ttl = place_ttl;
        Ok(Self {
            shared,
            claim,
            is_open: false,
            was_in_doubt: false,
        })
    }

    async fn ask(&mut self, limit: Duration) -> Result<Acquired, Error> {
        let was_open = std::mem::replace(&mut self.is_open, true);
        let answer = self
            .shared
            .clock
            .timeout(limit, self.shared.store.acquire(&self.claim))
            .await;
        let answer = answer.unwrap_or_else(|| {
            Err(Error::in_doubt(format!(
                "no answer to an acquire within {limit:?}: key={}; it is withdrawn in the background",
                self.claim.key
            )))
        });
        match answer {
            Ok(Acquired::Busy { remaining }) => {
                // A store that queues claims keeps a place for this one.
                let has_place = self.claim.queues() && !self.claim.place_ttl.is_zero();
                self.is_open = self.shared.capability.queues || has_place;
                Ok(Acquired::Busy { remaining })
            }
            Err(error) => {
                match error.kind() {
                    ErrorKind::InDoubt => self.was_in_doubt = true,
                    // Nothing came of it that could be withdrawn.
                    ErrorKind::Unavailable => self.is_open = was_open,
                    _ => {}
                }
                Err(error)
            }
            granted => granted,
        }
    }

    /// Without a subscription the caller polls.
    async fn subscribe(&self, limit: Duration) -> Option<Hint> {
        let subscribing = self.shared.store.subscribe(&self.claim);
        match self.shared.clock.timeout(limit, subscribing).await {
            Some(Ok(hint)) => Some(hint),
            Some(Err(error)) => {
                tracing::debug!(key = %self.claim.key, %error, "no wake-up: polling");
                None
            }
            None => None,
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.shared.send(Msg::Withdraw(self.claim.clone()));
        }
    }
}
