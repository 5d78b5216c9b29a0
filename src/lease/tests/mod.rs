//! The clauses of the lease, on the manual clock.

mod any_order;
mod arithmetic;
mod clocks;
mod ends;
#[cfg(unix)]
mod forks;
mod runs_in_progress;
mod time;

use std::time::Duration;

use super::*;
use crate::clock::{ClockKind, ManualClock};
use futures_util::FutureExt;

const TTL: Duration = Duration::from_secs(10);
const NANOSECOND: Duration = Duration::from_nanos(1);

fn terms() -> Terms {
    crate::Settings::default().terms()
}

fn usable() -> Duration {
    terms().usable(TTL)
}

/// A lease of [`TTL`] from now, and the hand that moves its clock.
fn lease() -> (Lease, ManualClock) {
    let hand = ManualClock::new();
    let clock = Clock::from(hand.clone());
    let granted = Granted {
        key: &Key::parse("accounts/7").unwrap(),
        token: FencingToken::new(7).unwrap(),
        is_fencing: true,
        sent_at: &clock.stamp(),
        ttl: TTL,
    };
    (Lease::new(clock.clone(), terms(), &granted), hand)
}

fn renew(lease: &Lease) -> Result<(), LeaseError> {
    renew_from(lease, &lease.clock().stamp(), TTL)
}

/// An answer that is here now.
fn renew_from(lease: &Lease, sent_at: &Stamp, ttl: Duration) -> Result<(), LeaseError> {
    let now = lease.clock().stamp();
    lease.renew(&Renewal::new(terms(), &now, sent_at, ttl))
}

fn lost(reason: Ended) -> LeaseError {
    LeaseError::Lost(reason)
}

/// Ended, on every road that asks.
fn assert_ended(lease: &Lease, reason: Ended) {
    assert!(!lease.is_live());
    assert_eq!(lease.look_fast(), Err(lost(reason)));
    assert_eq!(lease.look_strict(), Err(lost(reason)));
    assert_eq!(lease.ensure(Duration::ZERO), Err(lost(reason)));
    assert_eq!(lease.remaining(), Duration::ZERO);
    assert_eq!(lease.lost_reason(), Some(reason));
    assert_eq!(lease.lost().now_or_never(), Some(reason));
    assert_eq!(renew(lease), Err(lost(reason)));
}
