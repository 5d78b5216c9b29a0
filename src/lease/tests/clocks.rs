//! Clocks that go backwards, jump, or disagree (I9).

use super::*;

#[test]
fn a_lapse_stays_final_when_the_clocks_step_back() {
    let (lease, hand) = lease();
    hand.advance(usable());
    assert!(!lease.is_live());
    for lane in ClockKind::ALL {
        hand.step_back(lane, usable());
    }
    assert_ended(&lease, Ended::Lapsed);
}

#[test]
fn a_lapse_that_one_lane_shows_is_final_when_that_lane_steps_back() {
    for lane in ClockKind::ALL {
        let (lease, hand) = lease();
        hand.advance_only(lane, usable());
        let seen = lease.look_fast().and(lease.look_strict());
        assert_eq!(seen, Err(lost(Ended::Lapsed)), "{lane:?}");
        hand.step_back(lane, usable());
        assert_ended(&lease, Ended::Lapsed);
    }
}

#[test]
fn a_jump_on_either_strict_lane_ends_the_lease() {
    for lane in [ClockKind::Boot, ClockKind::Raw] {
        let (lease, hand) = lease();
        hand.advance_only(lane, usable());
        assert!(lease.is_live(), "the fast lane has not seen {lane:?} jump");
        assert_eq!(lease.remaining(), Duration::ZERO, "{lane:?}");
        assert_ended(&lease, Ended::Lapsed);
    }
}

#[test]
fn a_jump_on_the_fast_lane_ends_the_lease_for_strict_looks_too() {
    let (lease, hand) = lease();
    hand.advance_only(ClockKind::Fast, usable());
    assert!(lease.look_strict().is_ok(), "nobody has looked yet");
    assert!(!lease.is_live());
    assert_ended(&lease, Ended::Lapsed);
}

#[test]
fn a_strict_look_gives_the_lesser_of_what_two_clocks_leave() {
    for (ahead, behind) in [
        (ClockKind::Boot, ClockKind::Raw),
        (ClockKind::Raw, ClockKind::Boot),
    ] {
        let (lease, hand) = lease();
        hand.advance_only(ahead, Duration::from_secs(4));
        hand.advance_only(behind, Duration::from_secs(1));
        assert_eq!(lease.remaining(), usable() - Duration::from_secs(4));
    }
}

#[test]
fn a_renewal_is_refused_when_any_lane_has_lapsed() {
    for lane in ClockKind::ALL {
        let (lease, hand) = lease();
        let sent_at = lease.clock().stamp();
        hand.advance_only(lane, usable());
        let renewed = renew_from(&lease, &sent_at, TTL);
        assert_eq!(renewed, Err(lost(Ended::Lapsed)), "{lane:?}");
        hand.step_back(lane, usable());
        assert_ended(&lease, Ended::Lapsed);
    }
}

#[test]
fn a_distrusted_fast_lane_no_longer_keeps_a_lease_live() {
    let (lease, hand) = lease();
    hand.advance_only(ClockKind::Boot, usable());
    assert!(lease.is_live());
    lease.clock().distrust_fast();
    assert!(!lease.is_live());
}
