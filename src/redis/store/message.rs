//! [`Asked`], the last answer to a claim that waits, and [`GrantMessage`], the message by which a
//! server grants: together they prove a hold.
//! How is [invariant 2](crate::redis#invariants), "by a message".

use std::sync::Arc;
use std::time::Duration;

use super::connection::IDLE;
use super::mark::Mark;
use crate::clock::{ClockKind, Stamp};
use crate::model::token::FencingToken;
use crate::store::{Claim, Grant, GrantProof};

/// A claim that is called holds for so long, or for `max_ttl`, if that is shorter. `line.lua` has
/// the same.
const CALL: Duration = Duration::from_millis(1_200);
/// No message is believed so long after the last answer: drift has eaten the time of a call.
const MOST: Duration = Duration::from_secs(10);

/// For how long a message grants: no longer than the claim's TTL, which is all that its first
/// renewal keeps.
pub(super) fn call(max_ttl: Duration, ttl: Duration) -> Duration {
    CALL.min(max_ttl).min(ttl)
}

/// What a server said in a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Message {
    Granted(GrantMessage),
    /// The claim is next, and the lock is left to other clients for so long.
    Gap(Duration),
}

/// What a server said in the message by which it granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GrantMessage {
    token: u64,
    /// The server's time when it granted, in microseconds.
    micros: u64,
    mark: String,
    /// When it arrived.
    heard_at: Stamp,
}

impl Message {
    /// Reads what follows the owner in a message.
    pub(super) fn read(text: &[u8], heard_at: Stamp) -> Option<Self> {
        let mut words = str::from_utf8(text).ok()?.splitn(3, ' ');
        let (first, second) = (words.next()?, words.next()?.parse().ok()?);
        if first == "gap" {
            let is_whole = words.next().is_none();
            return is_whole.then_some(Self::Gap(Duration::from_millis(second)));
        }
        Some(Self::Granted(GrantMessage {
            token: first.parse().ok()?,
            micros: second,
            mark: words.next()?.to_owned(),
            heard_at,
        }))
    }
}

/// The newest answer to a claim that has to wait.
#[derive(Debug)]
pub(super) struct Asked {
    /// When the request was sent.
    pub(super) sent_at: Stamp,
    /// The server's time when it was executed, in microseconds.
    pub(super) micros: u64,
    /// The newest token then.
    pub(super) last: u64,
    pub(super) mark: Arc<Mark>,
}

impl Asked {
    /// What a message proves together with this answer; `None` if the claim has to ask.
    pub(super) fn granted(
        &self,
        claim: &Claim,
        message: &GrantMessage,
        call: Duration,
    ) -> Option<Grant> {
        let proof = self.proof(message, call)?;
        let token = FencingToken::new(message.token).ok()?;
        Some(Grant::new(claim.clone(), token, proof))
    }

    fn proof(&self, message: &GrantMessage, call: Duration) -> Option<GrantProof> {
        // An older message is about a hold that has ended: otherwise the request would have been
        // granted. The tokens say which is older, since the server's clock may have been set back
        // between the two.
        if message.mark != self.mark.text || message.token <= self.last {
            return None;
        }
        // The key's end is counted from a whole millisecond, which the allowance for granularity
        // covers.
        let between = Duration::from_micros(message.micros.checked_sub(self.micros)?);
        // A server that was deposed and promoted again meanwhile says so to nobody before it is
        // asked, and may execute a request that was late on its way under the old mark.
        if between > MOST || self.mark.unproven(&message.heard_at) > IDLE {
            return None;
        }
        // By the clock of ours that has gone the least. Thus a server's clock that was set forward
        // adds no more than the way of the message.
        let passed = |lane| {
            let (from, to) = (self.sent_at.on(lane), message.heard_at.on(lane));
            Duration::from_nanos(to.saturating_sub(from))
        };
        let passed = ClockKind::ALL.map(passed).into_iter().min()?;
        Some(GrantProof::since(between.min(passed) + call, self.sent_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: u64 = 2_000_000_000_000_000;
    const HELD: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Stamp {
        Stamp::from_nanos([millis * 1_000_000; 3])
    }

    /// Asked at 5 s by our clock, and at 1,000 s by the server's.
    fn asked() -> Asked {
        Asked {
            sent_at: at(5_000),
            micros: 1_000_000_000,
            last: LAST,
            mark: Arc::new(Mark::new("v4 run 7 30000", 0, at(0))),
        }
    }

    fn read(text: &str, heard_at: u64) -> Option<Message> {
        Message::read(text.as_bytes(), at(heard_at))
    }

    fn message_of(millis: u64, heard_at: u64) -> GrantMessage {
        let text = format!("{} {millis}000 v4 run 7 30000", LAST + 1);
        match read(&text, heard_at) {
            Some(Message::Granted(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    /// At a server that is known to be what it was.
    fn proven(message: &GrantMessage) -> Option<u128> {
        let asked = asked();
        asked.mark.proven(&message.heard_at);
        let proof = asked.proof(message, HELD)?;
        assert_eq!(proof.sent_at, Some(at(5_000)), "it counts from the request");
        Some(proof.ttl.as_millis())
    }

    #[test]
    fn a_message_is_read_whole_or_not_at_all() {
        assert_eq!(
            read("gap 25", 1),
            Some(Message::Gap(Duration::from_millis(25)))
        );
        for part in [
            "", "1", "1 2", "x 2 v4", "1 y v4", "-1 2 v4", "gap", "gap 1 2",
        ] {
            assert_eq!(read(part, 1), None, "{part}");
        }
    }

    #[test]
    fn a_proof_counts_from_the_request_that_was_answered_however_late_the_message_is() {
        for heard_at in [5_300, 5_301, 7_000, 60_000] {
            assert_eq!(proven(&message_of(1_000_300, heard_at)), Some(1_300));
        }
    }

    #[test]
    fn a_message_after_a_second_in_which_nothing_showed_that_the_server_is_the_same_proves_nothing()
    {
        let asked = asked();
        asked.mark.proven(&asked.sent_at);
        let is_believed = |heard_at| {
            let message = message_of(1_000_300, heard_at);
            asked.proof(&message, HELD).is_some()
        };
        assert!(is_believed(6_000));
        assert!(!is_believed(6_001));
        asked.mark.proven(&at(5_900));
        assert!(is_believed(6_900));
        assert!(!is_believed(6_901));
    }

    #[test]
    fn a_clock_of_the_server_that_was_set_forward_adds_no_more_than_the_way_of_the_message() {
        assert_eq!(proven(&message_of(1_003_000, 5_300)), Some(1_300));
        let mut uneven = message_of(1_003_000, 5_300);
        uneven.heard_at = Stamp::from_nanos([5_300_000_000, 5_200_000_000, 5_400_000_000]);
        assert_eq!(proven(&uneven), Some(1_200), "by the slowest clock");
    }

    #[test]
    fn a_message_that_is_not_about_the_last_answer_proves_nothing() {
        assert_eq!(proven(&message_of(1_000_000, 5_001)), Some(1_000));
        assert_eq!(proven(&message_of(999_999, 5_001)), None, "it is older");
        assert_eq!(proven(&message_of(1_010_000, 15_000)), Some(11_000));
        assert_eq!(
            proven(&message_of(1_010_001, 15_001)),
            None,
            "it is too old"
        );
        let mut other = message_of(1_000_300, 5_300);
        other.mark = "v4 run 8 30000".to_owned();
        assert_eq!(proven(&other), None, "it is of another judgement");
    }

    #[test]
    fn a_grant_from_before_the_last_answer_proves_nothing_although_the_servers_clock_was_set_back()
    {
        let mut earlier = message_of(1_000_300, 5_300);
        earlier.token = LAST;
        assert_eq!(proven(&earlier), None);
    }

    #[test]
    fn a_call_is_no_longer_than_any_hold() {
        let (short, long) = (Duration::from_millis(100), Duration::from_secs(30));
        assert_eq!([call(short, long), call(long, short)], [short; 2]);
        assert_eq!(call(long, long), CALL);
    }
}
