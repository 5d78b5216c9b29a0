//! [`ManagerContext`]: what the calls, the holds and the task of one manager have in common.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};

use super::book::HoldBook;
use super::contact::StoreContact;
use super::engine::{Engine, Pace};
use super::failures::Failures;
use super::hooks::Hooks;
use super::lifetime::Lifetime;
use super::message::{Inbox, Message};
use super::queue::{CountedWaiter, Queues, Withdrawal};
use super::readiness::Readiness;
use super::wish::HoldTimes;
use crate::clock::{Clock, ClockKind};
use crate::handler::UserThreads;
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::{Label, ManagerMark};
use crate::model::key::Key;
use crate::model::random::Jitter;
use crate::model::shared_runtime::SharedRuntime;
use crate::settings::Settings;
use crate::store::{Acquired, AnyStore, Capability, Claim, LockInfo};

pub(crate) struct ManagerContext {
    pub(super) store: AnyStore,
    pub(super) capability: Capability,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) label: Label,
    /// The manager's runtime: for callers that have none, and for work that outlives its caller.
    pub(super) runtime: SharedRuntime,
    /// For what may block.
    pub(super) user_threads: UserThreads,
    pub(super) lifetime: Lifetime,
    pub(super) hooks: Hooks,
    pub(super) holds: HoldBook,
    pub(super) queues: Arc<Queues>,
    pub(super) readiness: Readiness,
    pub(super) contact: StoreContact,
    pub(super) failures: Failures,
    pub(super) inbox: Inbox,
    /// The end of all its owner tokens.
    pub(super) mark: ManagerMark,
    pub(crate) jitter: Jitter,
}

/// What a context is made from.
pub(super) struct Parts {
    pub(super) store: AnyStore,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) label: Label,
    pub(super) runtime: SharedRuntime,
    pub(super) user_threads: UserThreads,
    pub(super) hooks: Hooks,
    pub(super) inbox: Inbox,
    pub(super) mark: ManagerMark,
}

impl ManagerContext {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        let capability = parts.store.capability();
        let pace = Pace {
            renewals_per_ttl: parts.settings.renewals_per_ttl,
            heartbeat: capability.heartbeat,
            request_timeout: parts.settings.request_timeout,
        };
        let now = parts.clock.stamp();
        let jitter = Jitter::seeded();
        let engine = Engine::new(pace, now.on(ClockKind::Boot), jitter.below(u64::MAX));
        Arc::new(Self {
            capability,
            lifetime: Lifetime::begin(),
            holds: HoldBook::new(engine, now),
            queues: Queues::new(&parts.settings, parts.clock.clone()),
            readiness: Readiness::default(),
            contact: StoreContact::default(),
            failures: Failures::default(),
            jitter,
            store: parts.store,
            settings: parts.settings,
            clock: parts.clock,
            label: parts.label,
            runtime: parts.runtime,
            user_threads: parts.user_threads,
            hooks: parts.hooks,
            inbox: parts.inbox,
            mark: parts.mark,
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn capability(&self) -> Capability {
        self.capability
    }

    /// The manager's name, for people.
    pub(crate) fn label(&self) -> &Label {
        &self.label
    }

    pub(crate) fn runtime(&self) -> &SharedRuntime {
        &self.runtime
    }

    /// Whether a former holder of the key in this process still has runs in progress.
    pub(crate) fn has_former_runs(&self, key: &Key) -> bool {
        self.queues.former(key).is_some()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.lifetime.is_closing()
    }

    /// Notes what an answer to an acquire shows of the store.
    pub(super) fn note_answer(&self, key: &Key, answer: &Result<Acquired, Error>) {
        match answer {
            Ok(answer) => {
                let now = self.clock.stamp();
                self.contact.answered(&now);
                self.failures.answered();
                self.readiness.answered(key, answer, &now);
            }
            Err(error) => match error.kind() {
                ErrorKind::InDoubt | ErrorKind::Unavailable => self.contact.failed(),
                _ => {}
            },
        }
    }

    /// Withdraws a claim in the background.
    pub(super) fn withdraw(&self, claim: Claim) {
        let withdrawal = Withdrawal::begin(&self.queues, claim);
        self.inbox.send(Message::Withdraw(withdrawal));
    }

    /// Who holds a lock, for a caller that waited in vain; `None` if nobody does, or the store does
    /// not say it in time.
    pub(crate) async fn holder(&self, key: &Key) -> Option<LockInfo> {
        let limit = self.settings.request_timeout;
        // Otherwise the caller's own place would be counted among those that wait.
        let withdrawn = self.clock.timeout(limit, self.queues.withdrawn(key)).await;
        let looked = self.clock.timeout(limit, self.store.inspect(key)).await;
        let mut info = looked?.ok()??;
        if withdrawn.is_none() {
            info.queue = None;
        }
        Some(info)
    }

    /// Counts a caller among those that wait, once for all keys that it asks for.
    ///
    /// # Errors
    ///
    /// `Contended` if `max_waiters` callers wait already.
    pub(crate) fn counted(&self) -> Result<CountedWaiter, Error> {
        self.queues.counted()
    }

    /// The pause before a retry: the retry delay and a random part of the jitter.
    pub(crate) fn retry_pause(&self) -> Duration {
        self.settings.retry_delay + self.jitter.up_to(self.settings.retry_jitter)
    }

    /// Waits for `span`, or for the shutdown.
    pub(crate) async fn pause(&self, span: Duration) {
        self.pause_or(span, std::future::pending::<()>()).await;
    }

    /// Waits for `span`, for `hint`, or for the shutdown, whichever is first. Returns what the hint
    /// resolved with, if it did.
    pub(super) async fn pause_or<T>(
        &self,
        span: Duration,
        hint: impl Future<Output = T>,
    ) -> Option<T> {
        let hint = std::pin::pin!(hint);
        let closing = std::pin::pin!(self.lifetime.closing());
        match self.clock.timeout(span, select(hint, closing)).await? {
            Either::Left((resolved, _)) => Some(resolved),
            Either::Right(_) => None,
        }
    }

    /// The pause of a caller that only keeps its place in the store's queue: at most half of the
    /// place's time, and spread, so that a crowd that came together does not ask together.
    pub(super) fn keeping_pause(&self) -> Duration {
        let most = self.place_ttl() / 2;
        most - self.jitter.up_to(most / 4)
    }

    /// The TTL that the store is asked for: with the lock delay, unless it has one for all locks.
    pub(super) fn asked_ttl(&self, times: &HoldTimes) -> Duration {
        if self.capability.ttl_per_lock {
            times.ttl + times.lock_delay
        } else {
            times.ttl
        }
    }

    /// How long the store keeps a caller's place in its queue: two of the longest pauses between
    /// two requests.
    pub(super) fn place_ttl(&self) -> Duration {
        let settings = &self.settings;
        2 * (settings.max_poll_interval + settings.retry_jitter + 2 * settings.request_timeout)
    }
}

/// Short, since every handle of a manager prints it.
impl fmt::Debug for ManagerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerContext")
            .field("store", &self.store.name())
            .field("label", &self.label)
            .field("is_closing", &self.is_closing())
            .finish_non_exhaustive()
    }
}
