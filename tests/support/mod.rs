//! What several test files share.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used)]

pub(crate) mod any_kind;
pub(crate) mod canary;
pub(crate) mod in_doubt;
pub(crate) mod log;
pub(crate) mod over;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock, Stamp};
use leasehold::store::MemoryStore;
use leasehold::testing::Faulty;
use leasehold::{Lock, LockGuard, LockManager, LockManagerBuilder, Settings};

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A manual clock, a memory store that counts by it, and two managers that contend for it as two
/// processes would.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) store: MemoryStore,
    pub(crate) ours: LockManager,
    pub(crate) theirs: LockManager,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self::built(settings, |builder| builder)
    }

    /// A world whose first manager has this name.
    pub(crate) fn labelled(label: &str) -> Self {
        let label = leasehold::store::Label::parse(label).unwrap();
        Self::built(Settings::default(), |builder| builder.label(label))
    }

    /// A world whose first manager is set up further.
    pub(crate) fn built(
        settings: Settings,
        set_up: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder,
    ) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let builder = || {
            LockManager::builder(store.clone())
                .clock(clock.clone())
                .settings(settings.clone())
        };
        Self {
            ours: set_up(builder()).build().unwrap(),
            theirs: builder().build().unwrap(),
            store,
            clock,
        }
    }

    /// Moves the time in steps that are shorter than a heartbeat, and lets both managers do what is
    /// due at each.
    pub(crate) async fn pass(&self, span: Duration) {
        let mut left = span;
        while !left.is_zero() {
            let step = left.min(ms(100));
            self.clock.advance(step);
            self.settled().await;
            left -= step;
        }
    }

    pub(crate) fn now(&self) -> Stamp {
        Clock::from(self.clock.clone()).stamp()
    }

    pub(crate) async fn settled(&self) {
        self.ours.settled().await;
        self.theirs.settled().await;
    }

    pub(crate) async fn is_free(&self, key: &str) -> bool {
        self.ours.inspect(key).await.unwrap().is_none()
    }

    /// Whether the other process gets the key now; it gives the key back.
    pub(crate) async fn is_theirs_to_take(&self, key: &str) -> bool {
        self.theirs.lock(key).try_acquire().await.unwrap().is_some()
    }
}

/// A manual clock, and a manager whose memory store is behind a network that the test steers.
pub(crate) struct Far {
    pub(crate) clock: ManualClock,
    pub(crate) network: Faulty<MemoryStore>,
    pub(crate) locks: LockManager,
}

impl Far {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let clock = ManualClock::new();
        let network = Faulty::new(MemoryStore::with_clock(clock.clone()), clock.clone(), 7);
        let locks = LockManager::builder(network.clone())
            .clock(clock.clone())
            .settings(settings)
            .build()
            .unwrap();
        Self {
            clock,
            network,
            locks,
        }
    }

    /// Moves the time in steps that are shorter than a heartbeat, and lets the manager do what is
    /// due at each.
    pub(crate) async fn pass(&self, span: Duration) {
        let mut left = span;
        while !left.is_zero() {
            let step = left.min(ms(100));
            self.clock.advance(step);
            self.locks.settled().await;
            left -= step;
        }
    }

    pub(crate) async fn is_free(&self, key: &str) -> bool {
        self.locks.inspect(key).await.unwrap().is_none()
    }
}

/// A hold of the key `a`, and another caller of the same process that waits for it.
pub(crate) async fn held_and_waited_for(
    locks: &LockManager,
) -> (LockGuard, <Lock as IntoFuture>::IntoFuture) {
    let held = locks.lock("a").acquire().await.unwrap();
    let mut waiting = locks.lock("a").into_future();
    assert!(poll_once(&mut waiting).await.is_pending());
    (held, waiting)
}

/// Until our manager holds a key no more and the store has it back. The end of a dropped guard goes
/// through the handlers on a thread of its own, which no barrier of the manager waits for.
pub(crate) async fn until_ended(world: &World, key: &str) {
    for _ in 0..100_000 {
        let is_held = world
            .ours
            .held()
            .iter()
            .any(|held| held.key.as_str() == key);
        if !is_held && world.is_free(key).await {
            return;
        }
        tokio::task::yield_now().await;
        world.settled().await;
    }
    panic!("{key} was never released");
}

/// Settings without handoff: a release is a release.
pub(crate) fn no_handoff() -> Settings {
    let mut settings = Settings::default();
    settings.handoff_count = 0;
    settings
}

/// Runs `future` while the time passes in steps, for at most `span`.
pub(crate) async fn while_time_passes<F: Future>(
    world: &World,
    span: Duration,
    future: F,
) -> F::Output {
    let mut future = pin!(future);
    let mut left = span;
    loop {
        if let Poll::Ready(output) = poll_once(future.as_mut()).await {
            return output;
        }
        assert!(!left.is_zero(), "nothing came of it within {span:?}");
        let step = left.min(ms(100));
        world.clock.advance(step);
        world.settled().await;
        left -= step;
    }
}

/// One poll, with the waker of the task that awaits.
pub(crate) async fn poll_once<F: Future + Unpin>(mut future: F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut future).poll(cx))).await
}

/// Polls `future` at most `times` times without ever waiting for a wake-up, then drops it. True if
/// it completed.
pub(crate) fn poll_and_drop<F: Future>(times: usize, future: F) -> bool {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    (0..times).any(|_| future.as_mut().poll(&mut cx).is_ready())
}
