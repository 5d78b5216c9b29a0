//! The count of votes, the book and the silence, without a member.

use std::time::Duration;

use super::book::{Begun, Book};
use super::silence::{Ask, Silence};
use super::vote_count::{Counted, Offset, Standing, VoteCount};
use super::votes::VoteSet;
use crate::clock::Stamp;
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::{Label, OwnerToken};
use crate::model::token::FencingToken;
use crate::store::{Acquired, Claim, MAX_SKEW};

const TTL: Duration = Duration::from_secs(10);

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn vote(number: u64) -> Counted {
    Counted {
        token: token(number),
        ttl: TTL,
        offset: Offset { least: 0, most: 0 },
    }
}

fn vote_at(number: u64, micros: i64) -> Counted {
    let offset = Offset {
        least: micros,
        most: micros,
    };
    Counted {
        offset,
        ..vote(number)
    }
}

fn won(number: u64) -> Standing {
    Standing::Won {
        token: token(number),
        ttl: TTL,
    }
}

#[test]
fn a_majority_with_one_token_wins_without_a_second_round() {
    let mut count = VoteCount::new(3);
    assert!(count.voted(2, vote(7)).is_empty());
    assert_eq!(count.standing(), Standing::Open);
    assert!(count.voted(0, vote(7)).is_empty());
    assert_eq!(count.standing(), won(7));
}

#[test]
fn a_lower_token_counts_only_when_it_was_raised() {
    let mut count = VoteCount::new(3);
    let _ = count.voted(0, vote(7));
    assert_eq!(count.voted(1, vote(9)), [(0, token(9))]);
    assert_eq!(count.standing(), Standing::Open);
    count.raised(0);
    assert_eq!(count.standing(), won(9));
}

#[test]
fn a_later_vote_may_replace_one_that_could_not_be_raised() {
    let mut count = VoteCount::new(3);
    let _ = count.voted(0, vote(7));
    let _ = count.voted(1, vote(9));
    count.failed(0, Error::unavailable("gone"));
    assert_eq!(count.standing(), Standing::Open);
    assert!(count.voted(2, vote(11)).is_empty(), "its counter is above");
    assert_eq!(count.standing(), won(9));
}

#[test]
fn a_majority_that_is_still_raised_is_waited_for() {
    let mut count = VoteCount::new(5);
    for seat in 0..3 {
        let _ = count.voted(seat, vote(7 + seat as u64));
    }
    assert!(count.majority_answered());
    assert!(!count.is_quorate(), "a second round has begun");
}

#[test]
fn a_member_that_the_majority_needs_is_waited_for() {
    let mut count = VoteCount::new(3);
    count.failed(2, Error::unavailable("down"));
    let _ = count.voted(0, vote(7));
    assert_eq!(count.standing(), Standing::Open);
    assert!(!count.is_quorate(), "a failure is no answer");

    let mut count = VoteCount::new(3);
    count.busy(1, None);
    let _ = count.voted(0, vote(7));
    assert!(count.is_quorate(), "the third could decide, or be silent");
}

#[test]
fn a_silent_member_is_not_waited_for_and_counts_if_it_answers() {
    let mut count = VoteCount::new(3);
    count.is_silent(2);
    let _ = count.voted(0, vote(7));
    count.busy(1, Some(TTL));
    assert_eq!(count.standing(), Standing::Lost);
    let busy = Acquired::Busy {
        remaining: Some(TTL),
    };
    assert_eq!(count.loss().unwrap(), busy);
    assert!(count.voted(2, vote(7)).is_empty());
    assert_eq!(count.standing(), won(7));
}

#[test]
fn votes_are_split_when_nobody_can_have_a_majority() {
    let mut count = VoteCount::new(5);
    count.is_silent(4);
    let _ = count.voted(0, vote(7));
    count.busy(1, None);
    count.busy(2, None);
    assert_eq!(count.contenders(), Some(2));
    count.busy(3, None);
    assert_eq!(
        count.contenders(),
        None,
        "three of five may be one holder's"
    );

    let mut count = VoteCount::new(3);
    count.busy(0, None);
    count.failed(1, Error::unavailable("down"));
    assert_eq!(count.contenders(), None, "we have none to give back");
}

#[test]
fn a_member_is_silent_from_its_oldest_unanswered_request_until_it_answers() {
    let mut silence = Silence::new(2);
    let at = |millis| zero().plus(Duration::from_millis(millis));
    silence.is_behind(1, at(100));
    silence.is_behind(1, at(200));
    assert_eq!(silence.ask(1, &at(99), TTL), Ask::AndWait);
    assert_eq!(silence.ask(1, &at(100), TTL), Ask::AsProbe);
    assert_eq!(silence.ask(1, &at(100), TTL), Ask::Not);
    assert_eq!(silence.ask(0, &at(100), TTL), Ask::AndWait);
    silence.failed(1);
    assert_eq!(silence.ask(1, &at(100), TTL), Ask::AsProbe);
    assert_eq!(
        silence.ask(1, &at(100).plus(TTL), TTL),
        Ask::AsProbe,
        "a probe that is never answered is sent again"
    );
    silence.answered(1);
    assert_eq!(silence.ask(1, &at(300), TTL), Ask::AndWait);
}

#[test]
fn nobody_is_silent_beside_less_than_a_majority() {
    let mut silence = Silence::new(3);
    let at = |millis| zero().plus(Duration::from_millis(millis));
    silence.is_behind(1, at(100));
    silence.compare(&at(100));
    assert!(silence.is_silent(1, &at(100)), "two others answer");
    silence.is_behind(2, at(200));
    silence.compare(&at(199));
    assert!(silence.is_silent(1, &at(199)), "two others answer still");
    silence.compare(&at(200));
    for member in 0..3 {
        assert_eq!(silence.ask(member, &at(200), TTL), Ask::AndWait);
    }
}

#[test]
fn two_clocks_that_disagree_leave_it_to_the_third() {
    let far = MAX_SKEW.as_micros() as i64 + 1;
    let mut count = VoteCount::new(3);
    let _ = count.voted(0, vote_at(7, 0));
    let _ = count.voted(1, vote_at(7, far));
    assert_eq!(count.standing(), Standing::Open);
    let _ = count.voted(2, vote_at(7, far - 2));
    assert_eq!(
        count.standing(),
        won(7),
        "it is near both, and two are a majority"
    );

    let mut count = VoteCount::new(3);
    let _ = count.voted(0, vote_at(7, 0));
    let _ = count.voted(1, vote_at(7, far));
    let _ = count.voted(2, vote_at(7, 2 * far));
    assert_eq!(count.standing(), Standing::Lost);
    assert_eq!(count.loss().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_slow_answer_is_no_proof_of_a_near_clock() {
    let vague = Offset {
        least: 0,
        most: MAX_SKEW.as_micros() as i64 + 1,
    };
    let mut count = VoteCount::new(3);
    let _ = count.voted(0, vote(7));
    let _ = count.voted(
        1,
        Counted {
            offset: vague,
            ..vote(7)
        },
    );
    assert_eq!(count.standing(), Standing::Open);
}

#[test]
fn a_hold_lasts_as_long_as_its_longest_majority() {
    let mut count = VoteCount::new(5);
    for (seat, seconds) in [9, 3, 8].into_iter().enumerate() {
        let ttl = Duration::from_secs(seconds);
        let _ = count.voted(seat, Counted { ttl, ..vote(7) });
    }
    let ttl = Duration::from_secs(3);
    assert_eq!(
        count.standing(),
        Standing::Won {
            token: token(7),
            ttl
        }
    );
}

#[test]
fn a_lost_claim_reports_when_enough_members_are_free_at_the_latest() {
    let seconds = Duration::from_secs;
    let mut count = VoteCount::new(5);
    let _ = count.voted(0, vote(7));
    for (seat, remaining) in [4, 2, 3].into_iter().enumerate() {
        count.busy(seat + 1, Some(seconds(remaining)));
    }
    assert_eq!(count.standing(), Standing::Lost);
    let Ok(Acquired::Busy { remaining }) = count.loss() else {
        panic!("three of five are busy");
    };
    assert_eq!(
        remaining,
        Some(seconds(3)),
        "the second of those that are needed"
    );
}

#[test]
fn members_that_grant_nothing_yet_are_distinguished_from_a_holder() {
    let mut count = VoteCount::new(3);
    let _ = count.voted(0, vote(7));
    count.not_ready(1, Duration::from_secs(9));
    count.not_ready(2, Duration::from_secs(5));
    assert_eq!(count.standing(), Standing::Lost);
    let retry_after = Duration::from_secs(5);
    assert_eq!(count.loss().unwrap(), Acquired::NotReady { retry_after });
    count.busy(2, Some(TTL));
    assert!(matches!(count.loss(), Ok(Acquired::Busy { .. })));
}

#[test]
fn a_claim_lost_to_one_holder_and_one_failure_is_busy_while_the_rest_could_decide() {
    let mut count = VoteCount::new(3);
    count.busy(0, Some(TTL));
    count.failed(1, Error::unavailable("in quarantine"));
    assert_eq!(count.standing(), Standing::Lost);
    let busy = count.loss().unwrap();
    assert_eq!(busy, Acquired::Busy { remaining: None });
    count.failed(2, Error::unavailable("down"));
    assert!(count.loss().is_err(), "nobody is left to wait for");
}

#[test]
fn members_in_doubt_are_no_doubt_of_the_quorum() {
    let mut count = VoteCount::new(3);
    count.failed(0, Error::in_doubt("no answer"));
    count.failed(1, Error::in_doubt("no answer"));
    assert_eq!(count.standing(), Standing::Lost);
    assert_eq!(count.loss().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_refusal_by_all_keeps_its_kind() {
    let mut count = VoteCount::new(3);
    count.failed(0, Error::denied("no access"));
    count.failed(1, Error::denied("no access"));
    assert_eq!(count.loss().unwrap_err().kind(), ErrorKind::Denied);
}

#[test]
fn a_refusal_is_reported_if_there_is_no_majority_without_those_that_refuse() {
    let down = || Error::unavailable("down");
    let denied = || Error::denied("no access");
    let kind = |failures: [Option<Error>; 3]| {
        let mut count = VoteCount::new(3);
        for (seat, failure) in failures.into_iter().enumerate() {
            match failure {
                Some(why) => count.failed(seat, why),
                None => drop(count.voted(seat, vote(7))),
            }
        }
        assert_eq!(count.standing(), Standing::Lost);
        let error = count.loss().unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        (error.kind(), cause.contains("no access"))
    };
    let both = kind([Some(down()), Some(denied()), Some(denied())]);
    assert_eq!(both, (ErrorKind::Denied, true), "whichever failed first");
    let one = kind([Some(denied()), Some(down()), None]);
    assert_eq!(
        one,
        (ErrorKind::Unavailable, true),
        "two of three may come back"
    );
}

fn claim() -> Claim {
    let label = Label::parse("test").unwrap();
    Claim::new("key".parse().unwrap(), owner(), label, TTL)
}

fn owner() -> OwnerToken {
    OwnerToken::generate().unwrap()
}

fn zero() -> Stamp {
    Stamp::from_nanos([1; 3])
}

#[test]
fn a_replaced_attempt_cannot_win() {
    let (mut book, claim) = (Book::default(), claim());
    let (first, second) = (owner(), owner());
    let mut begin = |attempt| match book.begin(&claim, attempt, VoteSet::default(), &zero()) {
        Ok(Begun::Asks(replaced)) => replaced.map(|(owner, _)| owner),
        other => panic!("{other:?}"),
    };
    assert_eq!(begin(first), None);
    assert_eq!(begin(second), Some(first));
    assert!(!book.win(&claim, first, token(1), zero().plus(TTL)));
    assert!(book.win(&claim, second, token(1), zero().plus(TTL)));
    assert_eq!(book.holding(&claim, &zero()), Some((second, token(1))));
    let third = book.begin(&claim, owner(), VoteSet::default(), &zero());
    assert!(matches!(third, Ok(Begun::Holds(held)) if held == token(1)));
}

#[test]
fn a_withdrawn_claim_neither_begins_nor_wins() {
    let (mut book, claim) = (Book::default(), claim());
    let attempt = owner();
    book.begin(&claim, attempt, VoteSet::default(), &zero())
        .unwrap();
    let last = book.withdraw(&claim, owner(), &zero());
    assert_eq!(last.map(|(owner, _)| owner), Some(attempt));
    assert!(!book.win(&claim, attempt, token(1), zero().plus(TTL)));
    assert!(
        book.begin(&claim, owner(), VoteSet::default(), &zero())
            .is_err()
    );
    book.strike(&claim, attempt);
    assert!(
        book.begin(&claim, owner(), VoteSet::default(), &zero())
            .is_err(),
        "and that is not struck out"
    );
}

#[test]
fn a_hold_ends_by_our_clock_and_a_late_answer_does_not_shorten_it() {
    let (mut book, claim) = (Book::default(), claim());
    let attempt = owner();
    book.begin(&claim, attempt, VoteSet::default(), &zero())
        .unwrap();
    assert!(book.win(&claim, attempt, token(1), zero().plus(TTL)));
    assert!(book.extend(&claim, attempt, zero().plus(2 * TTL), &zero()));
    assert!(book.extend(&claim, attempt, zero().plus(TTL), &zero()));
    assert!(
        book.holding(&claim, &zero().plus(2 * TTL - Duration::from_nanos(1)))
            .is_some()
    );
    assert!(book.holding(&claim, &zero().plus(2 * TTL)).is_none());
    let late = zero().plus(2 * TTL);
    assert!(!book.extend(&claim, attempt, zero().plus(3 * TTL), &late));
    assert!(book.holding(&claim, &late).is_none(), "it stays over");
}

#[test]
fn what_is_over_does_not_pile_up_in_the_book() {
    let mut book = Book::default();
    for round in 0..20_000_u32 {
        let now = zero().plus(round * TTL / 100);
        book.begin(&claim(), owner(), VoteSet::default(), &now)
            .unwrap();
    }
    assert!(book.len() <= 2_000, "{}", book.len());
}
