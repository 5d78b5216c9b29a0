//! [`VoteCount`]: whether the votes win. Pure: no clock, no member, no await.
//!
//! Each member has a seat. A vote counts if the member's clock agrees with those of a majority.
//! Once a majority voted for us, the largest of their tokens is *the* token, and every seat below
//! it must be raised before it counts. The claim is won when a majority of all seats holds our vote
//! and has a counter that is at or above the token.

use std::time::Duration;

use super::failures::Failures;
use crate::model::error::Error;
use crate::model::token::FencingToken;
use crate::store::{Acquired, MAX_SKEW};

#[derive(Debug)]
pub(super) struct VoteCount {
    need: usize,
    seats: Vec<Seat>,
    agreed: Option<Agreed>,
    failures: Failures,
}

#[derive(Clone, Debug)]
enum Seat {
    Asked,
    Voted(Counted),
    Raising(Counted),
    Confirmed(Counted),
    Busy(Option<Duration>),
    /// It restarted, and votes for nobody for this long.
    NotReady(Duration),
    /// It gave no answer for a while. One that comes nevertheless counts.
    Silent,
    Out,
}

/// A vote for us, as it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counted {
    pub(super) token: FencingToken,
    pub(super) ttl: Duration,
    pub(super) offset: Offset,
}

/// The difference between a member's clock and ours, in microseconds: between the two, by when it
/// may have answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offset {
    pub(super) least: i64,
    pub(super) most: i64,
}

/// What a majority agreed on.
#[derive(Clone, Copy, Debug)]
struct Agreed {
    token: FencingToken,
    offset: Offset,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Open,
    Won { token: FencingToken, ttl: Duration },
    Lost,
}

impl Offset {
    fn and(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }

    fn is_near(self) -> bool {
        i128::from(self.most) - i128::from(self.least) <= MAX_SKEW.as_micros() as i128
    }
}

impl VoteCount {
    pub(super) fn new(members: usize) -> Self {
        Self {
            need: majority(members),
            seats: vec![Seat::Asked; members],
            agreed: None,
            failures: Failures::default(),
        }
    }

    /// A vote for us came in. Returns which seats must be raised to which token.
    pub(super) fn voted(&mut self, seat: usize, counted: Counted) -> Vec<(usize, FencingToken)> {
        self.seats[seat] = Seat::Voted(counted);
        if self.agreed.is_none() {
            self.agreed = self.agreement();
        }
        let Some(agreed) = self.agreed else {
            return Vec::new();
        };
        let mut raises = Vec::new();
        for (number, seat) in self.seats.iter_mut().enumerate() {
            let Seat::Voted(counted) = *seat else {
                continue;
            };
            if !agreed.offset.and(counted.offset).is_near() {
                *seat = Seat::Out;
                self.failures.note(clocks_disagree());
            } else if counted.token >= agreed.token {
                *seat = Seat::Confirmed(counted);
            } else {
                *seat = Seat::Raising(counted);
                raises.push((number, agreed.token));
            }
        }
        raises
    }

    pub(super) fn busy(&mut self, seat: usize, remaining: Option<Duration>) {
        self.seats[seat] = Seat::Busy(remaining);
    }

    pub(super) fn not_ready(&mut self, seat: usize, retry_after: Duration) {
        self.seats[seat] = Seat::NotReady(retry_after);
    }

    pub(super) fn failed(&mut self, seat: usize, why: Error) {
        self.seats[seat] = Seat::Out;
        self.failures.note(why);
    }

    pub(super) fn raised(&mut self, seat: usize) {
        if let Seat::Raising(counted) = self.seats[seat] {
            self.seats[seat] = Seat::Confirmed(counted);
        }
    }

    /// The member is asked, or not even that, and nobody waits for its answer.
    pub(super) fn is_silent(&mut self, seat: usize) {
        self.seats[seat] = Seat::Silent;
    }

    /// Whoever has not answered by now does not count.
    pub(super) fn close(&mut self) {
        for seat in &mut self.seats {
            if matches!(seat, Seat::Asked | Seat::Raising(_)) {
                *seat = Seat::Out;
                let late = "a member gave no answer in time; try later";
                self.failures.note(Error::unavailable(late));
            }
        }
    }

    /// A majority has answered, and ours does not win by the second round alone: the rest is not
    /// waited for without a limit.
    pub(super) fn is_quorate(&self) -> bool {
        let ours = self.count(|seat| matches!(seat, Seat::Confirmed(_) | Seat::Raising(_)));
        ours < self.need && self.majority_answered()
    }

    /// A majority voted, for us or for another.
    pub(super) fn majority_answered(&self) -> bool {
        let unanswered = |seat: &Seat| matches!(seat, Seat::Asked | Seat::Silent | Seat::Out);
        self.count(|seat| !unanswered(seat)) >= self.need
    }

    /// The votes for us.
    pub(super) fn granted(&self) -> impl Iterator<Item = (usize, Counted)> {
        let ours = |seat: &Seat| match seat {
            Seat::Voted(vote) | Seat::Raising(vote) | Seat::Confirmed(vote) => Some(*vote),
            _ => None,
        };
        let seats = self.seats.iter().enumerate();
        seats.filter_map(move |(number, seat)| Some((number, ours(seat)?)))
    }

    /// How many others have votes at most, when some are ours and nobody has a majority: asking
    /// again may pay at once.
    pub(super) fn contenders(&self) -> Option<u32> {
        let busy = self.count(|seat| matches!(seat, Seat::Busy(_)));
        let is_split = busy > 0 && busy < self.need && self.granted().next().is_some();
        is_split.then(|| u32::try_from(busy).unwrap_or(u32::MAX))
    }

    pub(super) fn standing(&self) -> Standing {
        let asked = self.count(|seat| matches!(seat, Seat::Asked));
        let Some(agreed) = self.agreed else {
            let agreeing = self.agreeing().map_or(0, |(count, _)| count);
            return self.open_if(agreeing + asked >= self.need);
        };
        let mut ttls: Vec<_> = (self.seats.iter())
            .filter_map(|seat| match seat {
                Seat::Confirmed(counted) => Some(counted.ttl),
                _ => None,
            })
            .collect();
        if let Some(ttl) = lasting(&mut ttls, self.need) {
            let token = agreed.token;
            return Standing::Won { token, ttl };
        }
        let raising = self.count(|seat| matches!(seat, Seat::Raising(_)));
        self.open_if(ttls.len() + raising + asked >= self.need)
    }

    /// The latest time that a member whose vote counts may have shown.
    pub(super) fn latest_offset(&self) -> Option<i64> {
        let confirmed = self.seats.iter().filter_map(|seat| match seat {
            Seat::Confirmed(counted) => Some(counted.offset.most),
            _ => None,
        });
        confirmed.max()
    }

    /// The answer to a claim that is lost.
    pub(super) fn loss(&self) -> Result<Acquired, Error> {
        let ours = match self.agreed {
            None => self.agreeing().map_or(0, |(count, _)| count),
            Some(_) => self.count(|seat| matches!(seat, Seat::Confirmed(_))),
        };
        // When each member that may yet vote for us does so at the latest. One that has not
        // answered may be busy as well.
        let mut free_in: Vec<_> = (self.seats.iter())
            .filter_map(|seat| match seat {
                Seat::Busy(remaining) => Some(remaining.unwrap_or(Duration::MAX)),
                Seat::NotReady(left) => Some(*left),
                Seat::Asked | Seat::Raising(_) => Some(Duration::MAX),
                _ => None,
            })
            .collect();
        let busy = self.count(|seat| matches!(seat, Seat::Busy(_)));
        let not_ready = self.count(|seat| matches!(seat, Seat::NotReady(_)));
        if busy + not_ready > 0 && ours < self.need && ours + free_in.len() >= self.need {
            free_in.sort_unstable();
            let remaining = free_in[self.need - ours - 1];
            let remaining = (remaining < Duration::MAX).then_some(remaining);
            return Ok(match remaining {
                // Without the members that restarted there is no majority, and nobody is known to
                // hold.
                Some(retry_after) if busy == 0 => Acquired::NotReady { retry_after },
                remaining => Acquired::Busy { remaining },
            });
        }
        let members = self.seats.len();
        let error = Error::new(
            self.failures.kind(self.need, members),
            format!(
                "no majority of the members could decide: members={members} need={} granted={ours} busy={busy}; see why one failed",
                self.need
            ),
        );
        Err(self.failures.explain(error))
    }

    fn open_if(&self, open: bool) -> Standing {
        if open { Standing::Open } else { Standing::Lost }
    }

    fn count(&self, is: impl Fn(&Seat) -> bool) -> usize {
        self.seats.iter().filter(|seat| is(seat)).count()
    }

    /// The largest set of votes for us whose clocks agree: a majority of them holds the median of
    /// all clocks, therefore each is within [`MAX_SKEW`] of that.
    fn agreeing(&self) -> Option<(usize, Agreed)> {
        let votes: Vec<_> = (self.seats.iter())
            .filter_map(|seat| match seat {
                Seat::Voted(counted) => Some(*counted),
                _ => None,
            })
            .collect();
        let beside = |first: &Counted| {
            let near = votes
                .iter()
                .filter(|b| b.offset.least >= first.offset.least)
                .filter(|b| first.offset.and(b.offset).is_near());
            near.fold(None, |set: Option<(usize, Agreed)>, counted| {
                let (count, agreed) = set.unwrap_or((
                    0,
                    Agreed {
                        token: counted.token,
                        offset: counted.offset,
                    },
                ));
                let token = agreed.token.max(counted.token);
                let offset = agreed.offset.and(counted.offset);
                Some((count + 1, Agreed { token, offset }))
            })
        };
        votes
            .iter()
            .filter_map(beside)
            .max_by_key(|(count, _)| *count)
    }

    fn agreement(&self) -> Option<Agreed> {
        let (count, agreed) = self.agreeing()?;
        (count >= self.need).then_some(agreed)
    }
}

/// What makes any two of them have a member in common.
pub(super) fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// How long a majority lasts: the time of its shortest member, in the majority for which that is
/// longest.
pub(super) fn lasting(ttls: &mut [Duration], need: usize) -> Option<Duration> {
    ttls.sort_unstable_by(|a, b| b.cmp(a));
    ttls.get(need - 1).copied()
}

fn clocks_disagree() -> Error {
    Error::unavailable(format!(
        "the members' clocks are further apart than {MAX_SKEW:?}; set the clocks"
    ))
}
