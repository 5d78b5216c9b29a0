//! The election and the book, without a member.

use std::time::Duration;

use super::book::Book;
use super::election::{Ballot, Election, Offset, Standing};
use crate::clock::Stamp;
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::{Label, OwnerToken};
use crate::model::token::FencingToken;
use crate::store::{Acquired, Claim, MAX_SKEW};

const TTL: Duration = Duration::from_secs(10);

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn ballot(number: u64) -> Ballot {
    Ballot {
        token: token(number),
        ttl: TTL,
        offset: Offset { least: 0, most: 0 },
    }
}

fn ballot_at(number: u64, micros: i64) -> Ballot {
    let offset = Offset {
        least: micros,
        most: micros,
    };
    Ballot {
        offset,
        ..ballot(number)
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
    let mut election = Election::new(3);
    assert!(election.voted(2, ballot(7)).is_empty());
    assert_eq!(election.standing(), Standing::Open);
    assert!(election.voted(0, ballot(7)).is_empty());
    assert_eq!(election.standing(), won(7));
}

#[test]
fn a_lower_token_counts_only_when_it_was_raised() {
    let mut election = Election::new(3);
    let _ = election.voted(0, ballot(7));
    assert_eq!(election.voted(1, ballot(9)), [(0, token(9))]);
    assert_eq!(election.standing(), Standing::Open);
    election.raised(0);
    assert_eq!(election.standing(), won(9));
}

#[test]
fn a_later_vote_may_stand_in_for_one_that_could_not_be_raised() {
    let mut election = Election::new(3);
    let _ = election.voted(0, ballot(7));
    let _ = election.voted(1, ballot(9));
    election.failed(0, Error::unavailable("gone"));
    assert_eq!(election.standing(), Standing::Open);
    assert!(
        election.voted(2, ballot(11)).is_empty(),
        "its counter is above"
    );
    assert_eq!(election.standing(), won(9));
}

#[test]
fn a_majority_that_is_still_raised_has_not_answered() {
    let mut election = Election::new(3);
    election.failed(2, Error::unavailable("down"));
    let _ = election.voted(0, ballot(7));
    assert!(election.is_quorate());
    let _ = election.voted(1, ballot(9));
    assert!(!election.is_quorate(), "a second round has begun");

    let mut election = Election::new(5);
    for seat in 0..3 {
        let _ = election.voted(seat, ballot(7 + seat as u64));
    }
    assert!(!election.is_quorate());
    election.failed(0, Error::unavailable("gone"));
    assert!(election.is_quorate(), "it needs one that is still asked");
}

#[test]
fn two_clocks_that_disagree_leave_it_to_the_third() {
    let far = MAX_SKEW.as_micros() as i64 + 1;
    let mut election = Election::new(3);
    let _ = election.voted(0, ballot_at(7, 0));
    let _ = election.voted(1, ballot_at(7, far));
    assert_eq!(election.standing(), Standing::Open);
    let _ = election.voted(2, ballot_at(7, far - 2));
    assert_eq!(
        election.standing(),
        won(7),
        "it is near both, and two are a majority"
    );

    let mut election = Election::new(3);
    let _ = election.voted(0, ballot_at(7, 0));
    let _ = election.voted(1, ballot_at(7, far));
    let _ = election.voted(2, ballot_at(7, 2 * far));
    assert_eq!(election.standing(), Standing::Lost);
    assert_eq!(election.loss().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_slow_answer_is_no_proof_of_a_near_clock() {
    let vague = Offset {
        least: 0,
        most: MAX_SKEW.as_micros() as i64 + 1,
    };
    let mut election = Election::new(3);
    let _ = election.voted(0, ballot(7));
    let _ = election.voted(
        1,
        Ballot {
            offset: vague,
            ..ballot(7)
        },
    );
    assert_eq!(election.standing(), Standing::Open);
}

#[test]
fn a_hold_lasts_as_long_as_its_longest_majority() {
    let mut election = Election::new(5);
    for (seat, seconds) in [9, 3, 8].into_iter().enumerate() {
        let ttl = Duration::from_secs(seconds);
        let _ = election.voted(seat, Ballot { ttl, ..ballot(7) });
    }
    let ttl = Duration::from_secs(3);
    assert_eq!(
        election.standing(),
        Standing::Won {
            token: token(7),
            ttl
        }
    );
}

#[test]
fn a_lost_claim_is_told_when_enough_members_are_free_at_the_latest() {
    let seconds = Duration::from_secs;
    let mut election = Election::new(5);
    let _ = election.voted(0, ballot(7));
    for (seat, remaining) in [4, 2, 3].into_iter().enumerate() {
        election.busy(seat + 1, Some(seconds(remaining)));
    }
    assert_eq!(election.standing(), Standing::Lost);
    let Ok(Acquired::Busy { remaining }) = election.loss() else {
        panic!("three of five are busy");
    };
    assert_eq!(
        remaining,
        Some(seconds(3)),
        "the second of those that are needed"
    );
}

#[test]
fn a_claim_lost_to_one_holder_and_one_failure_is_busy_while_the_rest_could_decide() {
    let mut election = Election::new(3);
    election.busy(0, Some(TTL));
    election.failed(1, Error::unavailable("in quarantine"));
    assert_eq!(election.standing(), Standing::Lost);
    let busy = election.loss().unwrap();
    assert_eq!(busy, Acquired::Busy { remaining: None });
    election.failed(2, Error::unavailable("down"));
    assert!(election.loss().is_err(), "nobody is left to wait for");
}

#[test]
fn members_in_doubt_are_no_doubt_of_the_quorum() {
    let mut election = Election::new(3);
    election.failed(0, Error::in_doubt("no answer"));
    election.failed(1, Error::in_doubt("no answer"));
    assert_eq!(election.standing(), Standing::Lost);
    assert_eq!(election.loss().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_refusal_by_all_keeps_its_kind() {
    let mut election = Election::new(3);
    election.failed(0, Error::denied("no access"));
    election.failed(1, Error::denied("no access"));
    assert_eq!(election.loss().unwrap_err().kind(), ErrorKind::Denied);
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
    assert_eq!(book.begin(&claim, first, &zero()).unwrap(), None);
    assert_eq!(book.begin(&claim, second, &zero()).unwrap(), Some(first));
    assert!(!book.win(&claim, first, token(1), zero().plus(TTL)));
    assert!(book.win(&claim, second, token(1), zero().plus(TTL)));
    assert_eq!(book.holding(&claim, &zero()), Some((second, token(1))));
}

#[test]
fn a_withdrawn_claim_neither_begins_nor_wins() {
    let (mut book, claim) = (Book::default(), claim());
    let attempt = owner();
    book.begin(&claim, attempt, &zero()).unwrap();
    assert_eq!(book.withdraw(&claim, owner(), &zero()), Some(attempt));
    assert!(!book.win(&claim, attempt, token(1), zero().plus(TTL)));
    assert!(book.begin(&claim, owner(), &zero()).is_err());
    book.strike(&claim, attempt);
    assert!(
        book.begin(&claim, owner(), &zero()).is_err(),
        "and that is not struck out"
    );
}

#[test]
fn a_hold_ends_by_our_clock_and_a_late_answer_does_not_shorten_it() {
    let (mut book, claim) = (Book::default(), claim());
    let attempt = owner();
    book.begin(&claim, attempt, &zero()).unwrap();
    assert!(book.win(&claim, attempt, token(1), zero().plus(TTL)));
    book.extend(&claim, attempt, zero().plus(2 * TTL));
    book.extend(&claim, attempt, zero().plus(TTL));
    assert!(
        book.holding(&claim, &zero().plus(2 * TTL - Duration::from_nanos(1)))
            .is_some()
    );
    assert!(book.holding(&claim, &zero().plus(2 * TTL)).is_none());
}

#[test]
fn what_is_over_does_not_pile_up_in_the_book() {
    let mut book = Book::default();
    for round in 0..20_000_u32 {
        let now = zero().plus(round * TTL / 100);
        book.begin(&claim(), owner(), &now).unwrap();
    }
    assert!(book.len() <= 2_000, "{}", book.len());
}
