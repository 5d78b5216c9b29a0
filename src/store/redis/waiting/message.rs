//! A grant by message: what a waiting claim remembers of its last answer, and what a message proves together with it.
//!
//! The message says that a script has set the lock's key for this claim, when (`T`, by the server's clock), and from which
//! counter the token is. That alone proves nothing, since a message may be late for any time. But the same server has answered an
//! earlier request of the claim: it was sent at `s0`, by our clock, and executed at `S0`, by the server's. So the lock was granted
//! at `s0 + (T - S0)` or later, and is kept for the time `H` of a handover from then on: a proof for `T - S0 + H`, counted from
//! `s0`. It is the proof of a request that was sent at `s0`, with the same allowance for drift (I1). A late message gives a late
//! lease or none, never a long one.
//!
//! The counter's name says that both times are of one run of one server: it has the incarnation in it, and the generation.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::super::connection::GrantMessage;
use super::super::counters::{Counter, Counters, Remembered};
use crate::clock::{ClockKind, Stamp};
use crate::model::holder::OwnerToken;
use crate::model::token::FencingToken;
use crate::store::{Claim, Grant, GrantProof};

/// No message is believed so long after the last answer: drift has eaten the time of a handover.
const MOST: Duration = Duration::from_secs(10);

/// The newest answer to a claim that has to wait.
#[derive(Debug)]
pub(in super::super) struct Asked {
    /// When the request was sent.
    pub(in super::super) sent_at: Stamp,
    /// The server's time when it was executed, in microseconds.
    pub(in super::super) micros: u64,
    /// The newest token of the counter then.
    pub(in super::super) last: u64,
    /// The counter that it named.
    pub(in super::super) counter: Arc<Counter>,
}

impl Asked {
    /// What a message proves together with this answer.
    fn proof(&self, message: &GrantMessage, handover: Duration) -> Option<GrantProof> {
        if message.counter != self.counter.name {
            return None;
        }
        // An older message is about a grant that has ended: otherwise the request would have been granted. Their tokens say which is
        // older, since the server's clock may have been set back between the two.
        if message.token <= self.last {
            return None;
        }
        let between = Duration::from_micros(message.micros.checked_sub(self.micros)?);
        if between > MOST {
            return None;
        }
        // By the clock of ours that has gone the least. Thus a server's clock that was set forward adds no more than the way of
        // the message.
        let passed = |lane| {
            let (from, to) = (self.sent_at.on(lane), message.heard_at.on(lane));
            Duration::from_nanos(to.saturating_sub(from))
        };
        let passed = ClockKind::ALL.map(passed).into_iter().min()?;
        Some(GrantProof::since(
            between.min(passed) + handover,
            self.sent_at,
        ))
    }
}

/// The newest answers to the claims of a store that wait for a message.
#[derive(Debug, Default)]
pub(in super::super) struct AskedClaims(Mutex<Remembered<Asked>>);

impl AskedClaims {
    /// A request of this claim was answered: it has to wait.
    pub(in super::super) fn note(&self, owner: OwnerToken, asked: Asked, now: &Stamp) {
        self.0.lock().put(owner, asked, now, MOST);
    }

    /// It waits no more.
    pub(in super::super) fn forget(&self, owner: &OwnerToken) {
        self.0.lock().remove(owner);
    }

    /// The grant that a message proves; `None` if the claim has to ask.
    pub(in super::super) fn granted(
        &self,
        counters: &Counters,
        claim: &Claim,
        message: &GrantMessage,
    ) -> Option<Grant> {
        counters.ensure_open(claim, false).ok()?;
        let token = FencingToken::new(message.token).ok()?;
        let mut claims = self.0.lock();
        let asked = claims.get(&claim.owner)?;
        let proof = asked.proof(message, handover(claim))?;
        claims.remove(&claim.owner);
        Some(Grant::new(claim.clone(), token, proof))
    }
}

/// For how long a message grants a claim.
fn handover(claim: &Claim) -> Duration {
    let millis = super::handover_millis(claim.ttl);
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::script::GrantScripts;

    const HANDOVER: Duration = Duration::from_secs(1);
    const LAST: u64 = 2_000_000_000_000_000;

    fn at(millis: u64) -> Stamp {
        Stamp::from_nanos([millis * 1_000_000; 3])
    }

    /// Asked at 5 s by our clock, and at 1,000 s by the server's.
    fn asked() -> Asked {
        Asked {
            sent_at: at(5_000),
            micros: 1_000_000_000,
            last: LAST,
            counter: Arc::new(Counter {
                incarnation: "run".to_owned(),
                name: "run:7".to_owned(),
                scripts: Arc::new(GrantScripts::of("run")),
                armed: (0, at(0)),
            }),
        }
    }

    fn told(millis: u64, heard_at: u64) -> GrantMessage {
        GrantMessage {
            token: LAST + 1,
            micros: millis * 1_000,
            counter: "run:7".to_owned(),
            heard_at: at(heard_at),
        }
    }

    fn proven(message: &GrantMessage) -> Option<u128> {
        let proof = asked().proof(message, HANDOVER)?;
        assert_eq!(proof.sent_at, Some(at(5_000)), "it counts from the request");
        Some(proof.ttl.as_millis())
    }

    #[test]
    fn a_proof_counts_from_the_request_that_was_answered_however_late_the_message_is() {
        for heard_at in [5_300, 5_301, 7_000, 60_000] {
            assert_eq!(proven(&told(1_000_300, heard_at)), Some(1_300));
        }
    }

    #[test]
    fn a_clock_of_the_server_that_was_set_forward_adds_no_more_than_the_way_of_the_message() {
        assert_eq!(proven(&told(1_003_000, 5_300)), Some(1_300));
        let mut uneven = told(1_003_000, 5_300);
        uneven.heard_at = Stamp::from_nanos([5_300_000_000, 5_200_000_000, 5_400_000_000]);
        assert_eq!(proven(&uneven), Some(1_200), "by the slowest clock");
    }

    #[test]
    fn a_message_that_is_not_about_the_last_answer_proves_nothing() {
        assert_eq!(proven(&told(1_000_000, 5_001)), Some(1_000));
        assert_eq!(proven(&told(999_999, 5_001)), None, "it is older");
        assert_eq!(proven(&told(1_010_000, 15_000)), Some(11_000));
        assert_eq!(proven(&told(1_010_001, 15_001)), None, "it is too old");
        let mut other = told(1_000_300, 5_300);
        other.counter = "run:8".to_owned();
        assert_eq!(proven(&other), None, "it is of another generation");
    }

    #[test]
    fn a_grant_from_before_the_last_answer_proves_nothing_although_the_servers_clock_was_set_back()
    {
        let mut earlier = told(1_000_300, 5_300);
        earlier.token = LAST;
        assert_eq!(proven(&earlier), None);
    }
}
