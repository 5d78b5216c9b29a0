//! Until when a lease is live, and what a renewal moves.

use super::super::deadline::GRANULARITY;
use super::*;

#[test]
fn a_lease_is_live_strictly_before_its_deadline() {
    let (lease, hand) = lease();
    hand.advance(usable() - NANOSECOND);
    assert!(lease.is_live());
    assert_eq!(lease.ensure(NANOSECOND), Ok(NANOSECOND));
    hand.advance(NANOSECOND);
    assert_ended(&lease, Ended::Lapsed);
}

#[test]
fn a_strict_look_alone_finds_the_deadline_too() {
    let (lease, hand) = lease();
    hand.advance(usable());
    assert_eq!(lease.look_strict(), Err(lost(Ended::Lapsed)));
}

#[test]
fn a_look_gives_what_is_left_and_what_is_too_little() {
    let (lease, hand) = lease();
    hand.advance(usable() - Duration::from_millis(30));
    let remaining = Duration::from_millis(30);
    assert_eq!(lease.look_fast(), Ok(remaining));
    assert_eq!(lease.ensure(remaining), Ok(remaining));
    let needed = Duration::from_millis(31);
    assert_eq!(
        lease.ensure(needed),
        Err(LeaseError::TooShort { remaining, needed })
    );
    assert!(lease.is_live(), "asking for too much ends nothing");
}

#[test]
fn a_renewal_counts_from_the_sending_of_its_request() {
    let (lease, hand) = lease();
    let sent_at = lease.clock().stamp();
    hand.advance(Duration::from_secs(3));
    renew_from(&lease, &sent_at, TTL).unwrap();
    assert_eq!(lease.remaining(), usable() - Duration::from_secs(3));
}

#[test]
fn a_renewal_counts_what_was_granted() {
    let (lease, hand) = lease();
    hand.advance(usable() / 2);
    renew_from(&lease, &lease.clock().stamp(), TTL / 2).unwrap();
    assert_eq!(lease.remaining(), terms().usable(TTL / 2).max(usable() / 2));
}

#[test]
fn a_renewal_never_moves_the_deadline_back() {
    let (lease, hand) = lease();
    hand.advance(Duration::from_secs(1));
    let left = lease.remaining();
    renew_from(&lease, &lease.clock().stamp(), Duration::ZERO).unwrap();
    assert_eq!(lease.remaining(), left);
}

#[test]
fn a_late_renewal_does_not_revive_a_lapsed_lease_that_nobody_looked_at() {
    let (lease, hand) = lease();
    hand.advance(usable());
    assert_eq!(renew(&lease), Err(lost(Ended::Lapsed)));
    assert_ended(&lease, Ended::Lapsed);
}

#[test]
fn an_answer_that_comes_late_does_not_revive_though_its_request_left_in_time() {
    let (lease, hand) = lease();
    hand.advance(usable() - NANOSECOND);
    let sent_at = lease.clock().stamp();
    hand.advance(NANOSECOND);
    assert_eq!(renew_from(&lease, &sent_at, TTL), Err(lost(Ended::Lapsed)));
    assert_ended(&lease, Ended::Lapsed);
}

#[test]
fn a_ttl_of_which_nothing_is_usable_is_never_live() {
    for ttl in [Duration::ZERO, terms().margin, GRANULARITY] {
        let clock = Clock::from(ManualClock::new());
        let granted = Granted {
            key: &Key::parse("k").unwrap(),
            token: FencingToken::new(1).unwrap(),
            is_fencing: false,
            sent_at: &clock.stamp(),
            ttl,
        };
        let lease = Lease::new(clock, terms(), &granted);
        assert_ended(&lease, Ended::Lapsed);
    }
}
