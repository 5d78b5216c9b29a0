//! The finality of a lapse, one end, and no revival (I2).

use crate::atomics::{AtomicBool, Ordering};
use crate::words::Words;
use crate::{Arc, JoinHandle, beside, every_order};

const BEFORE: u64 = 5;
const DEADLINE: u64 = 10;
const AFTER: u64 = 12;
const RENEWED: u64 = 20;

fn lease() -> Arc<Words> {
    Arc::new(Words::new([DEADLINE; 3]))
}

fn renew_in_time(words: &Words) -> bool {
    words.renew([BEFORE; 3], [RENEWED; 3]).is_ok()
}

fn is_live(words: &Words, lane: usize) -> bool {
    words.look(lane, BEFORE).is_ok()
}

fn assert_no_lane_is_live(words: &Words, moment: &str) {
    for lane in 0..3 {
        assert!(!is_live(words, lane), "lane {lane} is live {moment}");
    }
}

fn assert_every_lane_is_live_until(words: &Words, deadline: u64) {
    for lane in 0..3 {
        assert_eq!(
            words.look(lane, BEFORE),
            Ok(deadline - BEFORE),
            "lane {lane}"
        );
    }
}

/// A reader whose clock is past the deadline on one lane: it sees the end, and then reports it.
fn reader(words: &Arc<Words>, lane: usize) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let reported = Arc::new(AtomicBool::new(false));
    let report = Arc::clone(&reported);
    let reader = beside(words, move |words| {
        if words.look(lane, AFTER).is_err() {
            report.store(true, Ordering::Release);
        }
    });
    (reported, reader)
}

/// One reader sees the end and reports it. From then on no reader may see the lease live, on
/// whichever lane, though its own clock shows an earlier time and a renewal is under way.
fn a_lapse_seen_on(seen_on: usize, looked_at_on: usize) {
    every_order(move || {
        let words = lease();
        let (reported, reader) = reader(&words, seen_on);
        let renewer = beside(&words, renew_in_time);
        if reported.load(Ordering::Acquire) {
            assert!(!is_live(&words, looked_at_on), "seen live after it ended");
        }
        reader.join().unwrap();
        renewer.join().unwrap();
        if reported.load(Ordering::Acquire) {
            assert!(!is_live(&words, looked_at_on), "revived");
        }
    });
}

#[test]
fn a_lapse_is_final_on_its_own_lane() {
    for lane in 0..3 {
        a_lapse_seen_on(lane, lane);
    }
}

#[test]
fn a_lapse_on_one_lane_is_an_end_on_every_lane() {
    for (seen_on, looked_at_on) in [(0, 1), (1, 0), (1, 2), (2, 0)] {
        a_lapse_seen_on(seen_on, looked_at_on);
    }
}

#[test]
fn one_reader_never_sees_the_lease_live_after_it_saw_it_ended() {
    for lanes in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
        every_order(move || {
            let words = lease();
            let ender = beside(&words, Words::revoke);
            let renewer = beside(&words, renew_in_time);
            let looks = lanes.map(|lane| is_live(&words, lane));
            assert!(looks.is_sorted_by(|a, b| a >= b), "{looks:?}");
            ender.join().unwrap();
            renewer.join().unwrap();
        });
    }
}

#[test]
fn no_revocation_is_lost_to_a_renewal() {
    every_order(|| {
        let words = lease();
        let renewer = beside(&words, renew_in_time);
        words.revoke();
        assert_no_lane_is_live(&words, "after the revocation");
        renewer.join().unwrap();
        assert_no_lane_is_live(&words, "again");
        assert!(!renew_in_time(&words), "a later renewal was taken");
    });
}

#[test]
fn a_renewal_that_meets_a_lapsed_lane_leaves_no_lane_live() {
    every_order(|| {
        let words = lease();
        // In time on two lanes, late on the last: those that it moved are taken back.
        let late = |words: &Words| words.renew([BEFORE, BEFORE, AFTER], [RENEWED; 3]);
        let renewer = beside(&words, move |words| late(words).is_err());
        is_live(&words, 0);
        assert!(renewer.join().unwrap(), "a late renewal was taken");
        assert_no_lane_is_live(&words, "still");
    });
}

#[test]
fn a_renewal_is_whole_when_nothing_ends_the_lease() {
    every_order(|| {
        let words = lease();
        let renewer = beside(&words, |words| words.renew([BEFORE; 3], [RENEWED; 3]));
        let left = words.look(1, BEFORE).unwrap();
        assert!(
            left == DEADLINE - BEFORE || left == RENEWED - BEFORE,
            "{left}"
        );
        renewer.join().unwrap().unwrap();
        assert_every_lane_is_live_until(&words, RENEWED);
    });
}

#[test]
fn of_two_renewals_the_later_deadline_stays() {
    every_order(|| {
        let words = lease();
        let other = beside(&words, |words| words.renew([BEFORE; 3], [RENEWED + 1; 3]));
        words.renew([BEFORE; 3], [RENEWED; 3]).unwrap();
        other.join().unwrap().unwrap();
        assert_every_lane_is_live_until(&words, RENEWED + 1);
    });
}

#[test]
fn exactly_one_caller_learns_that_it_ended_the_lease() {
    every_order(|| {
        let words = lease();
        let revoker = beside(&words, |words| words.revoke().first);
        let look = |words: &Words| words.look(1, AFTER);
        let reader = beside(&words, move |words| {
            look(words).is_err_and(|ended| ended.first)
        });
        let renewer = words
            .renew([AFTER; 3], [RENEWED; 3])
            .is_err_and(|ended| ended.first);
        let firsts = [revoker.join().unwrap(), reader.join().unwrap(), renewer];
        let reported = firsts.iter().filter(|first| **first).count();
        assert_eq!(reported, 1, "revoke, look, renew: {firsts:?}");
    });
}

#[test]
fn two_revocations_end_the_lease_once() {
    every_order(|| {
        let words = lease();
        let other = beside(&words, |words| words.revoke().first);
        let own = words.revoke().first;
        assert!(own ^ other.join().unwrap());
    });
}

#[test]
fn a_lease_that_somebody_saw_end_is_not_handed_off() {
    for seen_on in 0..3 {
        every_order(move || {
            let words = lease();
            let (reported, reader) = reader(&words, seen_on);
            let seen = reported.load(Ordering::Acquire);
            let (_, taken) = words.take();
            assert!(!seen || taken.is_none(), "handed on after its end");
            let is_live = taken.is_none_or(|deadlines| deadlines == [DEADLINE; 3]);
            assert!(is_live, "handed on while it ended: {taken:?}");
            reader.join().unwrap();
        });
    }
}

#[test]
fn a_lease_is_handed_off_once_and_whole_and_never_renewed_again() {
    every_order(|| {
        let words = lease();
        let renewer = beside(&words, renew_in_time);
        let other = beside(&words, Words::take);
        let takes = [words.take(), other.join().unwrap()];
        let firsts = takes.iter().filter(|(ended, _)| ended.first).count();
        assert_eq!(firsts, 1, "{takes:?}");
        let whole = takes.iter().filter(|(_, taken)| taken.is_some()).count();
        assert!(whole <= 1, "two next holders: {takes:?}");
        renewer.join().unwrap();
        assert_no_lane_is_live(&words, "for the one that gave it away");
    });
}
