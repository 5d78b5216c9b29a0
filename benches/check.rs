//! What a check costs: one clock read and one load, beside what is often used instead:
//! `cargo bench --bench check`.

#[path = "support/side_by_side.rs"]
mod side_by_side;

use std::hint::black_box;
use std::time::{Duration, Instant};

use leasehold::LockManager;
use leasehold::clock::{Clock, ClockKind};
use leasehold::store::MemoryStore;
use leasehold::testing::{read_fast, read_strict};
use parking_lot::Mutex;
use side_by_side::SideBySide;
use tokio::sync::watch;

fn main() {
    let clock = Clock::system().expect("a clock");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let store = MemoryStore::new().expect("a clock");
    let locks = LockManager::new(store).expect("a manager");
    let guard = runtime
        .block_on(locks.lock("a").acquire())
        .expect("nobody else wants it");
    let lease = guard.lease().clone();
    assert_eq!(
        read_fast(&clock).0,
        ClockKind::Fast,
        "another clock is measured"
    );

    // The last event: what it says is as old as its sender is late.
    let (_sender, receiver) = watch::channel(true);
    // The deadline as most libraries keep it.
    let deadline = Mutex::new(now() + Duration::from_secs(3_600));

    let mut check = SideBySide::default();
    check.row("floor_fast_clock", || read_fast(&clock));
    check.row("floor_strict_clock", || read_strict(&clock));
    check.row("lease_is_live", || black_box(&lease).is_live());
    check.row("tokio_watch_borrow", || *black_box(&receiver).borrow());
    check.row("mutex_instant", || now() < *black_box(&deadline).lock());
    check.run("check");
    assert!(
        lease.is_live(),
        "the lease ended on the way, and its end was measured"
    );
}

#[allow(
    clippy::disallowed_methods,
    reason = "the clock that is measured against"
)]
fn now() -> Instant {
    Instant::now()
}
