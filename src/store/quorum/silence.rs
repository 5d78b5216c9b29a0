//! Which members give no answer. Nobody waits for those, and each gets one vote at a time.
//!
//! How long an answer takes says little: the next machine answers in a tenth of a millisecond,
//! another continent in two hundred. So a member is compared with the others: it is silent when a
//! majority answered, and it did not within a patience after that. It is silent until it answers.
//! If those that are not silent are no majority, there is nobody to compare with, and nobody is
//! silent.

use std::time::Duration;

use super::vote_count::majority;
use crate::clock::Stamp;

#[derive(Debug)]
pub(super) struct Silence {
    members: Vec<Watch>,
}

#[derive(Clone, Default, Debug)]
struct Watch {
    /// When the oldest request that it left unanswered makes it silent.
    overdue_at: Option<Stamp>,
    /// Until when the one vote that a silent member gets counts as under way.
    probed_until: Option<Stamp>,
}

/// What a round does with a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    /// Asks it, and may wait for its answer.
    AndWait,
    /// Asks it. Its answer counts if it comes, and is not waited for.
    AsProbe,
    /// Does not ask it: it has not answered the last probe.
    Not,
}

impl Silence {
    pub(super) fn new(members: usize) -> Self {
        Self {
            members: vec![Watch::default(); members],
        }
    }

    /// Forgets who is silent, if the others are no majority. An attempt that waits for no majority
    /// is lost before it sends a vote, so nobody could show again that he answers.
    pub(super) fn compare(&mut self, now: &Stamp) {
        let members = self.members.len();
        let others = (0..members).filter(|member| !self.is_silent(*member, now));
        if others.count() < majority(members) {
            self.members.fill(Watch::default());
        }
    }

    /// How a member is asked for a vote that may last for `ttl`.
    pub(super) fn ask(&mut self, member: usize, now: &Stamp, ttl: Duration) -> Ask {
        if !self.is_silent(member, now) {
            return Ask::AndWait;
        }
        let watch = &mut self.members[member];
        let is_probed = (watch.probed_until).is_some_and(|until| !until.since(now).is_zero());
        if is_probed {
            return Ask::Not;
        }
        watch.probed_until = Some(now.plus(ttl));
        Ask::AsProbe
    }

    pub(super) fn is_silent(&self, member: usize, now: &Stamp) -> bool {
        let overdue_at = self.members[member].overdue_at;
        overdue_at.is_some_and(|at| at.since(now).is_zero())
    }

    pub(super) fn answered(&mut self, member: usize) {
        self.members[member] = Watch::default();
    }

    /// A request ended without an answer: another probe may be sent.
    pub(super) fn failed(&mut self, member: usize) {
        self.members[member].probed_until = None;
    }

    /// A majority has answered, and this member has not: it is silent from `overdue_at` on.
    pub(super) fn is_behind(&mut self, member: usize, overdue_at: Stamp) {
        self.members[member].overdue_at.get_or_insert(overdue_at);
    }
}
