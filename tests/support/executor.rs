//! What the executor's tests share: a hold in their hands, and futures that stop where the test
//! wants.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "tests share this, and each test binary uses its own part"
)]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::testing::TestHold;
use leasehold::{Executor, FencingToken, Settings, Tx};
use parking_lot::Mutex;

pub const TTL: Duration = Duration::from_secs(10);
/// Longer than any lease here lasts without a renewal.
pub const PAST: Duration = Duration::from_secs(20);

pub fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

pub struct Stage {
    pub clock: ManualClock,
    pub hold: TestHold,
    pub executor: Executor,
}

impl Stage {
    pub fn new() -> Self {
        Self::with(ManualClock::new(), "accounts/7", 5)
    }

    pub fn with(clock: ManualClock, key: &str, number: u64) -> Self {
        let key = key.parse().unwrap();
        let settings = Settings::default();
        let hold = TestHold::new(clock.clone(), &settings, key, token(number), TTL);
        Self::of(clock, hold)
    }

    pub fn without_fencing() -> Self {
        let clock = ManualClock::new();
        let key = "accounts/7".parse().unwrap();
        let settings = Settings::default();
        let hold = TestHold::without_fencing(clock.clone(), &settings, key, token(5), TTL);
        Self::of(clock, hold)
    }

    fn of(clock: ManualClock, hold: TestHold) -> Self {
        let executor = hold.executor();
        Self {
            clock,
            hold,
            executor,
        }
    }

    /// The lease runs out.
    pub fn lapse(&self) {
        self.clock.advance(PAST);
    }

    /// Nothing is in progress: the end of the hold would not wait.
    pub fn is_drained(&self) -> bool {
        let mut drained = pin!(self.hold.drained());
        poll_once(drained.as_mut()).is_ready()
    }
}

pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls at most `polls` times, and drops the future if it is not complete then.
pub fn poll_then_drop<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(output) = poll_once(future.as_mut()) {
            return Some(output);
        }
    }
    None
}

/// One await point.
pub async fn pause() {
    let mut is_first = true;
    std::future::poll_fn(|cx| {
        if std::mem::take(&mut is_first) {
            cx.waker().wake_by_ref();
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
}

/// What happened, in its order.
#[derive(Clone, Default)]
pub struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    pub fn add(&self, what: impl Into<String>) {
        self.0.lock().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    pub fn contains(&self, what: &str) -> bool {
        self.0.lock().iter().any(|seen| seen == what)
    }
}

/// A number that a run changes in place and takes back.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::SeqCst);
    }

    /// From 0 to 1, and back to 0 if the run does not commit.
    pub fn raise_in(&self, tx: &Tx<'_>) {
        let undone = self.clone();
        self.set(1);
        tx.undo(move || undone.set(0));
    }

    pub fn add(&self, by: i64) {
        self.0.fetch_add(by, Ordering::SeqCst);
    }

    pub fn value(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}
