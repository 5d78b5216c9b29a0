//! A client: it asks for the lock, works under its lease, and releases it.

use crate::rules::{Fence, Rules};
use crate::{LEASE, Message};

/// One client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Client {
    /// How often it has asked.
    pub tries: u8,
    /// What it is doing.
    pub phase: Phase,
}

/// What a client is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// It has sent a request.
    Asked,
    /// It has been granted the lock.
    Held {
        /// The number of its grant.
        grant: u8,
        /// It may act before this.
        deadline: u8,
        /// Where it is in its work.
        step: Step,
        /// It has found its lease over.
        saw_lost: bool,
        /// It has found its lease live after that.
        saw_revived: bool,
    },
}

/// Where a holder is in its work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    Begin,
    Raising,
    Raised,
    Reading,
    HasRead,
    /// It has found its lease live, and writes next.
    Checked,
    Writing,
    Written,
}

/// What a client can do by itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Move {
    Ask,
    GiveUp,
    /// The next step of the work.
    Go,
    /// Compares the clock with the deadline.
    Check,
    Renew,
    Release,
}

impl Client {
    /// Whether it believes at `now` that it holds the lock.
    pub fn believes(&self, now: u8) -> bool {
        matches!(self.phase, Phase::Held { deadline, saw_lost: false, .. } if now < deadline)
    }

    pub(crate) fn moves(&self, rules: &Rules, moves: &mut Vec<Move>) {
        match self.phase {
            Phase::Idle if self.tries < rules.tries => moves.push(Move::Ask),
            Phase::Idle => {}
            Phase::Asked => moves.push(Move::GiveUp),
            Phase::Held { step, saw_lost, .. } => {
                moves.push(Move::Check);
                if saw_lost {
                    // It ends its hold, and releases nothing that it does not hold.
                    moves.push(Move::GiveUp);
                    return;
                }
                moves.push(Move::Renew);
                let raises = rules.fence == Fence::RaisedBeforeTheGuard;
                match step {
                    Step::Begin | Step::Checked => moves.push(Move::Go),
                    Step::Raised => moves.push(Move::Go),
                    Step::Written => moves.push(Move::Release),
                    _ => {}
                }
                debug_assert!(raises || !matches!(step, Step::Raising | Step::Raised));
            }
        }
    }

    /// Makes a move at `now`. Returns the message that it sends.
    pub(crate) fn make(&mut self, id: u8, chosen: Move, now: u8, rules: &Rules) -> Option<Message> {
        match (&mut self.phase, chosen) {
            (phase, Move::Ask) => {
                *phase = Phase::Asked;
                self.tries += 1;
                Some(Message::Acquire {
                    client: id,
                    attempt: self.tries,
                    sent_at: now,
                })
            }
            (phase, Move::GiveUp) => {
                *phase = Phase::Idle;
                None
            }
            (
                Phase::Held {
                    deadline,
                    step,
                    saw_lost,
                    saw_revived,
                    ..
                },
                Move::Check,
            ) => {
                let is_live = now < *deadline;
                *saw_revived |= *saw_lost && is_live;
                *saw_lost |= !is_live;
                if is_live && *step == Step::HasRead {
                    *step = Step::Checked;
                }
                None
            }
            (Phase::Held { grant, .. }, Move::Renew) => Some(Message::Renew {
                client: id,
                grant: *grant,
                sent_at: now,
            }),
            (Phase::Held { grant, step, .. }, Move::Go) => {
                let (client, grant) = (id, *grant);
                let (next, message) = match *step {
                    Step::Begin if rules.fence == Fence::RaisedBeforeTheGuard => {
                        (Step::Raising, Message::Raise { client, grant })
                    }
                    Step::Begin | Step::Raised => (Step::Reading, Message::Read { client, grant }),
                    Step::Checked => (Step::Writing, Message::Write { client, grant }),
                    other => unreachable!("{other:?} waits for an answer"),
                };
                *step = next;
                Some(message)
            }
            (phase @ Phase::Held { .. }, Move::Release) => {
                let Phase::Held { grant, .. } = *phase else {
                    return None;
                };
                *phase = Phase::Idle;
                Some(Message::Release { grant })
            }
            (phase, chosen) => unreachable!("{chosen:?} in {phase:?}"),
        }
    }

    /// Takes an answer at `now`. One that it no longer waits for changes nothing.
    pub(crate) fn take(&mut self, message: Message, now: u8, rules: &Rules) {
        match (&mut self.phase, message) {
            (
                phase @ Phase::Asked,
                Message::Granted {
                    attempt,
                    sent_at,
                    grant,
                    ..
                },
            ) if attempt == self.tries => {
                *phase = Phase::Held {
                    grant,
                    deadline: start(sent_at, now, rules) + LEASE,
                    step: Step::Begin,
                    saw_lost: false,
                    saw_revived: false,
                };
            }
            (
                Phase::Held {
                    grant,
                    deadline,
                    saw_lost,
                    ..
                },
                Message::Renewed {
                    grant: of, sent_at, ..
                },
            ) if *grant == of => {
                let is_live = now < *deadline && !*saw_lost;
                if is_live || !rules.lapse_is_final {
                    *deadline = (*deadline).max(start(sent_at, now, rules) + LEASE);
                }
            }
            (
                Phase::Held { grant, step, .. },
                Message::Raised { grant: of, .. }
                | Message::WasRead { grant: of, .. }
                | Message::Answered { grant: of, .. },
            ) if *grant == of => {
                *step = match (*step, message) {
                    (Step::Raising, Message::Raised { .. }) => Step::Raised,
                    (Step::Reading, Message::WasRead { .. }) => Step::HasRead,
                    (Step::Writing, Message::Answered { .. }) => Step::Written,
                    (step, _) => step,
                };
            }
            _ => {}
        }
    }
}

/// From when a deadline counts.
fn start(sent_at: u8, now: u8, rules: &Rules) -> u8 {
    if rules.deadline_from_sending {
        sent_at
    } else {
        now
    }
}
