//! The earliest time at which the leader's count of our session can start: pure arithmetic on
//! stamps. Why a proven write renews only from an earlier one is invariant 4 of the
//! [protocol](crate::zookeeper).

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Stamp;

/// Two candidates closer than this part of a tick are thinned to one: the ring stays short under
/// many writes.
const PER_TICK: u32 = 16;

/// The ring of proven writes of one session.
#[derive(Debug)]
pub(crate) struct Proofs {
    tick: Duration,
    base: Stamp,
    /// Later than the base, in the order of their sending; the newest last.
    candidates: VecDeque<Write>,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    sent_at: Stamp,
    acked_at: Stamp,
}

impl Proofs {
    /// A session whose creation was asked for at `connected_at`.
    pub(crate) fn new(tick: Duration, connected_at: Stamp) -> Self {
        Self {
            tick,
            base: connected_at,
            candidates: VecDeque::new(),
        }
    }

    /// A write was acknowledged as done.
    pub(crate) fn proven(&mut self, sent_at: Stamp, acked_at: Stamp) {
        let is_newest =
            (self.candidates.back()).is_none_or(|newest| !sent_at.since(&newest.sent_at).is_zero());
        if !is_newest {
            return;
        }
        while let Some(oldest) = self.candidates.front() {
            if sent_at.since(&oldest.acked_at) < self.tick {
                break;
            }
            self.base = oldest.sent_at;
            self.candidates.pop_front();
        }
        self.thin();
        self.candidates.push_back(Write { sent_at, acked_at });
    }

    /// The leader's count of the session started then, or later.
    pub(crate) fn base(&self) -> Stamp {
        self.base
    }

    /// Drops the last candidate if it follows its predecessor closely: a later base is then a
    /// little older, which is the safe side.
    fn thin(&mut self) {
        let Some((last, before)) = self
            .candidates
            .len()
            .checked_sub(2)
            .map(|i| (self.candidates[i + 1], self.candidates[i]))
        else {
            return;
        };
        if last.acked_at.since(&before.acked_at) < self.tick / PER_TICK {
            self.candidates.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(2_000);

    fn at(millis: u64) -> Stamp {
        Stamp::from_nanos([(1_000_000 + millis) * 1_000_000; 3])
    }

    /// Proves writes of (sent, acknowledged), in milliseconds after the connection was asked for.
    fn base_after(writes: &[(u64, u64)]) -> Stamp {
        let mut proofs = Proofs::new(TICK, at(0));
        for (sent, acked) in writes {
            proofs.proven(at(*sent), at(*acked));
        }
        proofs.base()
    }

    #[test]
    fn a_new_session_counts_from_the_asking_for_it() {
        assert_eq!(base_after(&[]), at(0));
    }

    #[test]
    fn the_newest_write_alone_renews_nothing() {
        assert_eq!(base_after(&[(9_000, 9_010)]), at(0));
    }

    #[test]
    fn a_write_renews_from_one_that_was_acknowledged_a_tick_before() {
        assert_eq!(base_after(&[(1_000, 1_010), (3_009, 3_020)]), at(0));
        assert_eq!(base_after(&[(1_000, 1_010), (3_010, 3_020)]), at(1_000));
    }

    #[test]
    fn the_newest_of_those_a_tick_old_is_the_base() {
        let writes = [(1_000, 1_010), (2_000, 2_010), (3_000, 3_010)];
        assert_eq!(
            base_after(&[&writes[..], &[(4_100, 4_110)]].concat()),
            at(2_000)
        );
        assert_eq!(
            base_after(&[&writes[..], &[(9_000, 9_010)]].concat()),
            at(3_000)
        );
    }

    #[test]
    fn a_slow_acknowledgement_counts_by_its_arrival() {
        // The server may have heard of us only at 2,900: a tick after the sending proves nothing.
        assert_eq!(base_after(&[(1_000, 2_900), (3_100, 3_110)]), at(0));
        assert_eq!(base_after(&[(1_000, 2_900), (4_900, 4_910)]), at(1_000));
    }

    #[test]
    fn acknowledgements_that_overtake_each_other_never_move_the_base_back() {
        let mut proofs = Proofs::new(TICK, at(0));
        let mut last = proofs.base();
        for (sent, acked) in [
            (1_000, 1_010),
            (5_000, 5_010),
            (4_000, 5_020),
            (7_100, 7_110),
            (6_000, 7_120),
        ] {
            proofs.proven(at(sent), at(acked));
            assert!(proofs.base().since(&last) > Duration::ZERO || proofs.base() == last);
            last = proofs.base();
        }
        assert_eq!(last, at(5_000));
    }

    #[test]
    fn many_writes_keep_the_ring_short_and_the_base_close() {
        let mut proofs = Proofs::new(TICK, at(0));
        for n in 0..100_000 {
            proofs.proven(at(n), at(n));
            assert!(proofs.candidates.len() <= 20, "{}", proofs.candidates.len());
        }
        let behind = at(99_999).since(&proofs.base());
        assert!(
            behind >= TICK && behind < TICK + 2 * TICK / PER_TICK,
            "{behind:?}"
        );
    }
}
