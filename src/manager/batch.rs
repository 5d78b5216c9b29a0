//! One renewal call for many holds, and what its answers prove.

use std::cell::LazyCell;
use std::sync::Arc;
use std::time::Duration;

use super::context::ManagerContext;
use super::engine::{HoldId, Proven};
use super::hold::Hold;
use crate::clock::{ClockKind, Stamp};
use crate::handler::Event;
use crate::lease::{LeaseError, Renewal, Terms};
use crate::model::error::{Ended, Error};
use crate::model::span::in_millis;
use crate::store::Renewed;

/// Holds to renew in one call, each with its place in the book at that time.
pub(super) type Due = Vec<(HoldId, Arc<Hold>)>;

/// One renewal call, answered or timed out.
pub(super) struct RenewalBatch {
    holds: Due,
    sent_at: Stamp,
    round_trip: Duration,
    timer_lag: Duration,
    limit: Duration,
    /// The holds had less time left than a request may take.
    is_shortened: bool,
    /// Empty if no answer came within the limit.
    answers: Vec<Renewed>,
}

impl RenewalBatch {
    pub(super) async fn ask(context: Arc<ManagerContext>, holds: Due, limit: Duration) -> Self {
        let timer_lag = context.holds.timer_lag.last();
        let grants: Vec<_> = holds
            .iter()
            .map(|(_, hold)| hold.origin.grant.clone())
            .collect();
        // Before the request leaves (I1).
        let sent_at = context.clock.stamp();
        let asked = context.store.renew(&grants);
        let answers = context.clock.timeout(limit, asked).await;
        Self {
            holds,
            sent_at,
            round_trip: context.clock.stamp().since(&sent_at),
            timer_lag,
            limit,
            is_shortened: limit < context.settings.request_timeout,
            answers: answers.unwrap_or_default(),
        }
    }

    pub(super) fn event(&self) -> Event<'static> {
        let holds = self.holds.len();
        let answers = || self.answers.iter().take(holds);
        let is_extended = |answer: &&Renewed| matches!(answer, Renewed::Extended(_));
        let is_gone = |answer: &&Renewed| matches!(answer, Renewed::Gone);
        let (extended, gone) = (
            answers().filter(is_extended).count(),
            answers().filter(is_gone).count(),
        );
        Event::Renew {
            holds,
            extended,
            gone,
            unknown: holds - extended - gone,
            round_trip: self.round_trip,
            timer_lag: self.timer_lag,
        }
    }

    /// Moves every lease that an answer proves something for.
    pub(super) fn move_leases(self, terms: Terms, now: &Stamp) -> JudgedRenewals {
        let (limit, part) = match self.is_shortened {
            true => (
                in_millis(self.limit),
                ", half of what was left of the lease",
            ),
            false => (self.limit, ""),
        };
        let unanswered = LazyCell::new(|| {
            Error::in_doubt(format!("no answer to a renewal within {limit:?}{part}"))
        });
        let mut errors = Vec::new();
        let mut proofs = Proofs {
            terms,
            now,
            last: None,
        };
        // For a grant without an answer nothing is proven.
        let answers = self.answers.into_iter().map(Some);
        let answers = answers.chain(std::iter::repeat_with(|| None));
        let judged = (self.holds.iter().zip(answers))
            .map(|((id, hold), answer)| match answer {
                Some(Renewed::Extended(proof)) => {
                    let since = proof.sent_at.as_ref().unwrap_or(&self.sent_at);
                    let ttl = hold.origin.times.leased(proof.ttl);
                    let renewal = proofs.renewal(since, ttl);
                    match hold.lease.renew(&renewal) {
                        Ok(()) => Ok(Some(Proven {
                            sent_at: self.sent_at.on(ClockKind::Boot),
                            ttl,
                            deadline: renewal.deadline(),
                        })),
                        Err(LeaseError::Lost(reason)) => Err(reason),
                        Err(_) => Err(Ended::Lapsed),
                    }
                }
                Some(Renewed::Gone) => Err(Ended::Gone),
                Some(Renewed::Unknown(error)) => {
                    tracing::debug!(target: "leasehold::manager", key = %hold.lease.key(), %error, "a renewal proved nothing");
                    errors.push((*id, error));
                    Ok(None)
                }
                None => {
                    errors.push((*id, unanswered.clone()));
                    Ok(None)
                }
            })
            .collect();
        JudgedRenewals {
            holds: self.holds,
            verdicts: judged,
            errors,
        }
    }
}

/// What one renewal call came to.
pub(super) struct JudgedRenewals {
    pub(super) holds: Due,
    /// One for each hold.
    pub(super) verdicts: Vec<Result<Option<Proven>, Ended>>,
    /// Of the holds for which nothing is proven.
    pub(super) errors: Vec<(HoldId, Error)>,
}

/// Computes the deadlines of one batch. Most proofs are alike, so the last result is kept.
struct Proofs<'a> {
    terms: Terms,
    now: &'a Stamp,
    last: Option<(Stamp, Duration, Renewal)>,
}

impl Proofs<'_> {
    fn renewal(&mut self, sent_at: &Stamp, ttl: Duration) -> Renewal {
        match self.last {
            Some((since, of, renewal)) if since == *sent_at && of == ttl => renewal,
            _ => {
                let renewal = Renewal::new(self.terms, self.now, sent_at, ttl);
                self.last = Some((*sent_at, ttl, renewal));
                renewal
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_counts_from_its_own_instant_and_for_its_own_ttl() {
        let terms = crate::Settings::default().terms();
        let now = Stamp::from_nanos([9_000_000_000; 3]);
        let mut proofs = Proofs {
            terms,
            now: &now,
            last: None,
        };
        let (one, other) = ([3_000_000_000; 3], [4_000_000_000; 3]);
        for (sent_at, ttl) in [(one, 10), (one, 10), (other, 10), (other, 4), (one, 4)] {
            let (sent_at, ttl) = (Stamp::from_nanos(sent_at), Duration::from_secs(ttl));
            let by_itself = Renewal::new(terms, &now, &sent_at, ttl);
            assert_eq!(
                proofs.renewal(&sent_at, ttl).deadline(),
                by_itself.deadline()
            );
        }
    }
}
