//! The floor under the tokens of the next votes: what the members' fastest clock shows now, as far
//! as we know.
//!
//! It saves a round, and nothing depends on it: a floor that is too low makes the tokens differ,
//! and they are raised; one that is too high is taken for none by the members.

use std::time::Duration;

use crate::clock::Stamp;
use crate::model::token::FencingToken;

/// How much later a vote may arrive than the one that the estimate is from.
const LEAD: Duration = Duration::from_millis(2);
/// Over a longer time the drift of the clocks is worth a second round.
const MAX_AGE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Estimate {
    /// The members' latest time, in microseconds, seen in the answers to requests that were sent at
    /// a time of ours.
    seen: Option<(Stamp, u64)>,
}

impl Estimate {
    pub(super) fn saw(&mut self, sent_at: Stamp, micros: u64) {
        self.seen = Some((sent_at, micros));
    }

    pub(super) fn floor(&self, now: &Stamp) -> Option<FencingToken> {
        let (sent_at, micros) = self.seen?;
        let age = now.since(&sent_at);
        if age > MAX_AGE {
            return None;
        }
        let ahead = u64::try_from((age + LEAD).as_micros()).ok()?;
        FencingToken::new(micros.checked_add(ahead)?).ok()
    }
}
