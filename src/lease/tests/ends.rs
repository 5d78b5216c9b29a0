//! A hold ends once, and its end is reported.

use super::*;

#[test]
fn a_revocation_ends_the_lease_at_once_and_for_all_clones() {
    let (lease, _hand) = lease();
    let other = lease.clone();
    assert!(lease.revoke(Ended::Released));
    assert_ended(&other, Ended::Released);
}

#[test]
fn the_first_reason_is_the_one_that_stays() {
    let (lease, hand) = lease();
    assert!(lease.revoke(Ended::Gone));
    assert!(!lease.revoke(Ended::Released), "it had ended already");
    hand.advance(TTL);
    assert_ended(&lease, Ended::Gone);
}

#[test]
fn a_lapse_that_was_seen_is_not_renamed_by_a_revocation() {
    let (lease, hand) = lease();
    hand.advance(usable());
    assert!(!lease.is_live());
    assert!(!lease.revoke(Ended::Released));
    assert_ended(&lease, Ended::Lapsed);
}

#[test]
fn nothing_is_reported_while_the_lease_is_live() {
    let (lease, _hand) = lease();
    assert_eq!(lease.lost_reason(), None);
    assert_eq!(lease.lost().now_or_never(), None);
    assert_eq!(lease.at_risk().now_or_never(), None);
    assert!(!lease.is_at_risk());
}

#[test]
fn who_waits_for_the_end_is_woken_by_a_lapse_that_somebody_sees() {
    let (lease, hand) = lease();
    let mut waits = Box::pin(lease.lost());
    assert_eq!(waits.as_mut().now_or_never(), None);
    hand.advance(usable());
    assert!(!lease.is_live());
    assert_eq!(waits.now_or_never(), Some(Ended::Lapsed));
}

#[test]
fn a_lease_at_risk_is_live_and_may_recover() {
    let (lease, _hand) = lease();
    lease.set_at_risk(true);
    assert!(lease.is_at_risk() && lease.is_live());
    assert_eq!(lease.at_risk().now_or_never(), Some(()));
    assert_eq!(lease.lost().now_or_never(), None);
    lease.set_at_risk(false);
    assert!(!lease.is_at_risk());
    assert_eq!(lease.at_risk().now_or_never(), None);
}

#[test]
fn a_lease_that_is_handed_off_stays_at_risk() {
    let (steady, _hand) = lease();
    assert!(!steady.handoff().unwrap().is_at_risk());
    let (lease, _hand) = lease();
    lease.set_at_risk(true);
    let next = lease.handoff().unwrap();
    assert!(next.is_at_risk() && !lease.is_at_risk());
    assert_eq!(next.at_risk().now_or_never(), Some(()));
    next.set_at_risk(false);
    assert!(!next.is_at_risk());
}

#[test]
fn a_joint_lease_is_at_risk_with_any_member() {
    let ((one, _), (other, _)) = (lease(), lease());
    let joint = one.joint(vec![one.clone(), other.clone()]);
    assert_eq!(joint.at_risk().now_or_never(), None);
    other.set_at_risk(true);
    assert_eq!(joint.at_risk().now_or_never(), Some(()));
    other.set_at_risk(false);
    assert_eq!(joint.at_risk().now_or_never(), None);
    one.revoke(Ended::Gone);
    assert_eq!(joint.at_risk().now_or_never(), Some(()), "it has ended");
}

#[test]
fn an_ended_lease_is_not_brought_back_by_news_of_its_renewals() {
    let (lease, _hand) = lease();
    lease.revoke(Ended::Lapsed);
    lease.set_at_risk(true);
    lease.set_at_risk(false);
    assert!(!lease.is_at_risk());
    assert_eq!(lease.at_risk().now_or_never(), Some(()), "it has ended");
    assert_ended(&lease, Ended::Lapsed);
}

#[test]
fn doubt_stays() {
    let (lease, _hand) = lease();
    assert!(!lease.is_in_doubt());
    lease.mark_in_doubt();
    lease.revoke(Ended::Released);
    assert!(lease.is_in_doubt());
}
