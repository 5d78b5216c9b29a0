//! [`Shared`]: what the handles, the holds and the task of one manager share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::select;
use parking_lot::Mutex;
use tokio::runtime;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::acquire::Spans;
use super::engine::{Engine, HoldId, Proven, nanos};
use super::hold::Hold;
use super::queue::Queues;
use super::task::Msg;
use super::waits::Waiting;
use crate::clock::{Clock, ClockKind, Stamp, fork};
use crate::handler::{Chain, Observers};
use crate::model::error::{Error, ErrorKind, LostReason};
use crate::model::holder::Label;
use crate::settings::Settings;
use crate::store::{AnyStore, Capability, Grant, GrantProof, Released};

pub(crate) struct Shared {
    pub(super) store: AnyStore,
    pub(super) capability: Capability,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    generation: u64,
    pub(super) label: Label,
    pub(super) queues: Arc<Queues>,
    /// The manager's runtime: timers and connections of callers that have none, and work that outlives its caller.
    pub(super) handle: runtime::Handle,
    pub(super) book: Mutex<Book>,
    /// Wakes the task when a new hold is due before its next look.
    pub(super) wake: Notify,
    /// Cancelled when a shutdown begins: nobody begins to wait or to ask any more.
    pub(super) closing: CancellationToken,
    inbox: mpsc::UnboundedSender<Msg>,
    pub(super) timer_lag: TimerLag,
    pub(super) chain: Chain,
    pub(super) observers: Observers,
    pub(super) waiting: Waiting,
    handles: AtomicUsize,
    spin: AtomicU64,
}

/// In a few words: every handle of a manager holds it, and people print those.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("store", &self.store.name())
            .field("label", &self.label)
            .field("is_closing", &self.is_closing())
            .finish_non_exhaustive()
    }
}

/// Every hold, and when each is due. Callers put holds in and take them out; the task looks at what is due.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) engine: Engine,
    holds: Vec<Option<Arc<Hold>>>,
    /// When the task looks next, in nanoseconds of the boot lane.
    pub(super) next_look: u64,
    pub(super) is_closed: bool,
}

impl Book {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            holds: Vec::new(),
            next_look: u64::MAX,
            is_closed: false,
        }
    }

    /// The holds that the engine names, for who is to do something about them.
    pub(super) fn take_along(&self, ids: impl Iterator<Item = HoldId>) -> Vec<(HoldId, Arc<Hold>)> {
        // The engine names what it has; the hold at such a place is the one that it means.
        ids.filter_map(|id| Some((id, Arc::clone(self.holds.get(id.index())?.as_ref()?))))
            .collect()
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.holds.iter().flatten()
    }

    /// Whether something is due before the task looks next.
    fn is_due_earlier(&self) -> bool {
        let due = self.engine.next_tick();
        due.is_some_and(|due| due < self.next_look)
    }

    fn put(&mut self, id: HoldId, hold: Arc<Hold>) {
        if self.holds.len() <= id.index() {
            self.holds.resize_with(id.index() + 1, || None);
        }
        self.holds[id.index()] = Some(hold);
    }

    /// Takes out the hold at a place that the engine has given up.
    pub(super) fn remove(&mut self, id: HoldId) -> Option<Arc<Hold>> {
        let place = self.holds.get_mut(id.index())?;
        place.take_if(|hold| hold.id.get() == Some(&id))
    }
}

/// How late the task came to its own timers: the sign of a starved machine.
#[derive(Debug, Default)]
pub(super) struct TimerLag {
    pub(super) last: AtomicU64,
    pub(super) worst: AtomicU64,
}

/// What a manager is made from.
pub(super) struct Parts {
    pub(super) store: AnyStore,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) label: Label,
    pub(super) handle: runtime::Handle,
    pub(super) inbox: mpsc::UnboundedSender<Msg>,
    pub(super) seed: u64,
    pub(super) chain: Chain,
    pub(super) observers: Observers,
}

impl Shared {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            store,
            settings,
            clock,
            label,
            handle,
            inbox,
            seed,
            chain,
            observers,
        } = parts;
        let capability = store.capability();
        let pace = super::engine::Pace {
            renewals_per_ttl: settings.renewals_per_ttl,
            heartbeat: capability.heartbeat,
            request_timeout: settings.request_timeout,
        };
        let engine = Engine::new(pace, clock.stamp().on(ClockKind::Boot), seed);
        Arc::new(Self {
            capability,
            generation: fork::generation(),
            queues: Queues::new(settings.max_waiters),
            book: Mutex::new(Book::new(engine)),
            wake: Notify::new(),
            closing: CancellationToken::new(),
            timer_lag: TimerLag::default(),
            chain,
            observers,
            waiting: Waiting::default(),
            handles: AtomicUsize::new(0),
            spin: AtomicU64::new(seed),
            store,
            settings,
            clock,
            label,
            handle,
            inbox,
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// A number below `below`, which is not zero: spread, not secrecy.
    pub(crate) fn pick(&self, below: u32) -> u32 {
        (self.random() % u64::from(below)) as u32
    }

    /// Waits for `span`, or for the shutdown.
    pub(crate) async fn rest(&self, span: Duration) {
        self.pause(span, std::future::pending()).await;
    }

    pub(crate) fn capability(&self) -> Capability {
        self.capability
    }

    pub(crate) fn runtime(&self) -> &runtime::Handle {
        &self.handle
    }

    /// Whether the manager can do what it is asked for.
    ///
    /// # Errors
    ///
    /// `Closed` if it was shut down, or if this process is a fork of the one that built it: the manager's thread stayed
    /// there.
    pub(super) fn ensure_at_work(&self) -> Result<(), Error> {
        if self.closing.is_cancelled() {
            return Err(closed());
        }
        if fork::generation() != self.generation {
            return Err(Error::closed(
                "this process is a fork of the one that built the lock manager; build a new one here",
            ));
        }
        Ok(())
    }

    /// Hands something to the task. After a shutdown nobody takes it: leases are over and TTLs end the rest.
    pub(super) fn send(&self, msg: Msg) {
        let _ = self.inbox.send(msg);
    }

    /// Puts a new hold under renewal.
    ///
    /// # Errors
    ///
    /// `Closed` if the manager was shut down.
    pub(super) fn adopt(&self, hold: &Arc<Hold>) -> Result<(), Error> {
        let granted_at = &hold.from.granted_at;
        let proven = self.proven(granted_at, hold.from.grant.proof, &hold.from.spans);
        let mut book = self.book.lock();
        if book.is_closed {
            return Err(closed());
        }
        let id = book.engine.adopt(
            proven,
            granted_at.on(ClockKind::Boot),
            hold.from.spans.max_hold,
        );
        // A hold is adopted once.
        let _ = hold.id.set(id);
        book.put(id, Arc::clone(hold));
        if book.is_due_earlier() {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Puts the hold under which a grant goes on in the place of the one before. What was proven since that one began
    /// counts: its first proof may be long over.
    ///
    /// # Errors
    ///
    /// `Closed` if the manager was shut down; `Lost` if the time of the hold was over.
    pub(super) fn go_on(&self, before: &Hold, next: &Arc<Hold>) -> Result<(), Error> {
        let now = self.clock.stamp().on(ClockKind::Boot);
        let mut book = self.book.lock();
        if book.is_closed {
            return Err(closed());
        }
        let id = before.id.get();
        let Some(id) = id.and_then(|id| book.engine.go_on(*id, now)) else {
            return Err(Error::new(
                ErrorKind::Lost(LostReason::Lapsed),
                format!(
                    "the hold was over before it could go on: key={}; ask for the lock again",
                    before.lease.key()
                ),
            ));
        };
        // What was answered since the old lease ended, went to the old lease. What follows waits for the book.
        next.lease.set_at_risk(book.engine.is_failing(id));
        // It takes its place once.
        let _ = next.id.set(id);
        book.put(id, Arc::clone(next));
        if book.is_due_earlier() {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Renews a hold no more; nothing if it has left.
    pub(super) fn forget(&self, hold: &Hold) {
        let Some(id) = hold.id.get() else { return };
        let mut book = self.book.lock();
        book.engine.forget(*id);
        let removed = book.remove(*id);
        drop(book);
        drop(removed);
    }

    /// A grant's proof as the engine counts it. `asked_at` paces the first renewal; the deadline counts from the proof's own
    /// instant where it has one.
    fn proven(&self, asked_at: &Stamp, proof: GrantProof, spans: &Spans) -> Proven {
        let since = proof.sent_at.as_ref().unwrap_or(asked_at);
        let ttl = spans.leased(proof.ttl);
        let usable = self.settings.terms().usable(ttl);
        Proven {
            sent_at: asked_at.on(ClockKind::Boot),
            ttl,
            deadline: since.on(ClockKind::Boot).saturating_add(nanos(usable)),
        }
    }

    /// How long a place in the store's queue is kept for a caller of this manager: two of its longest pauses between two
    /// requests.
    pub(super) fn place_ttl(&self) -> Duration {
        let settings = &self.settings;
        2 * (settings.max_poll_interval + settings.retry_jitter + 2 * settings.request_timeout)
    }

    /// One try to release, within the request's time-out.
    pub(super) async fn release_once(&self, grant: &Grant) -> Released {
        let limit = self.settings.request_timeout;
        match self.clock.timeout(limit, self.store.release(grant)).await {
            Some(released) => released,
            None => Released::Unknown(Error::in_doubt(format!(
                "no answer to a release within {limit:?}: key={}; it is asked again in the background",
                grant.claim.key
            ))),
        }
    }

    /// Waits for `span`, for `hint`, or for the shutdown, whichever is first.
    pub(super) async fn pause(&self, span: Duration, hint: impl Future<Output = ()>) {
        let hint = std::pin::pin!(hint);
        let closing = std::pin::pin!(self.closing.cancelled());
        self.clock.timeout(span, select(hint, closing)).await;
    }

    /// The least pause between two looks, and a random part.
    pub(crate) fn spin(&self) -> Duration {
        let random = nanos(self.settings.retry_jitter);
        self.settings.retry_delay + Duration::from_nanos(self.random() % (random + 1))
    }

    /// splitmix64: spread, not secrecy.
    fn random(&self) -> u64 {
        let mut z = self
            .spin
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

pub(super) fn closed() -> Error {
    Error::closed("the lock manager was shut down; build a new one")
}

/// One user of a manager: a clone of the manager, a lock, a guard. When the last is gone the manager shuts down.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(super) shared: Arc<Shared>,
}

impl Handle {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.handles.fetch_add(1, Ordering::SeqCst);
        Self {
            shared: Arc::clone(shared),
        }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self::new(&self.shared)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.shared.handles.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.shared.send(Msg::Shutdown(None));
        }
    }
}
