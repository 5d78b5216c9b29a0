//! [`Record`]: the copy of an event that goes from the thread where it happened to the one that writes.

use std::sync::Arc;
use std::time::Duration;

use crate::handler::event::{AcquireOutcome, Event};
use crate::handler::request::EndReason;
use crate::lease::Lease;
use crate::model::commit::{HeldKey, keys};
use crate::model::error::LostReason;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::run_event::RunEvent;
use crate::model::token::FencingToken;
use crate::store::Released;

pub(super) struct Record {
    /// In nanoseconds of the boot clock.
    pub(super) at: u64,
    pub(super) what: What,
}

impl Record {
    pub(super) fn is_renewal(&self) -> bool {
        matches!(self.what, What::Renewed { .. })
    }
}

pub(super) enum What {
    Waiting {
        key: Key,
        callers: usize,
    },
    Called {
        key: Key,
        label: Label,
        outcome: CallOutcome,
        wait: Duration,
    },
    Renewed {
        /// How many holds were extended, gone, unknown.
        answers: [usize; 3],
        round_trip: Duration,
        timer_lag: Duration,
    },
    Ran {
        key: Key,
        token: FencingToken,
        /// All keys, if there are several.
        locks: Option<String>,
        run: u64,
        event: RunEvent,
    },
    /// A step is sent.
    Sent {
        key: Key,
        intent: Arc<str>,
    },
    Owed {
        key: Key,
        intent: Arc<str>,
        state: String,
    },
    Lost {
        key: Key,
        token: FencingToken,
        reason: LostReason,
    },
    Ended {
        key: Key,
        token: FencingToken,
        reason: EndReason,
        released: &'static str,
        took: Duration,
    },
}

pub(super) enum CallOutcome {
    Held(Lease),
    /// In a word, and for an error its kind.
    Not(&'static str, Option<String>),
}

impl What {
    /// `None` for an event that has no place in a trace.
    pub(super) fn of(event: &Event<'_>) -> Option<Self> {
        Some(match *event {
            Event::Wait { key, callers, .. } => Self::Waiting {
                key: key.clone(),
                callers,
            },
            Event::Acquire {
                key,
                label,
                outcome,
                wait,
            } => Self::Called {
                key: key.clone(),
                label: label.clone(),
                outcome: match outcome {
                    AcquireOutcome::Held { lease } => CallOutcome::Held(lease.clone()),
                    AcquireOutcome::Busy => CallOutcome::Not("busy", None),
                    AcquireOutcome::Failed(error) => {
                        CallOutcome::Not("failed", Some(error.kind().to_string()))
                    }
                    AcquireOutcome::Abandoned => CallOutcome::Not("abandoned", None),
                },
                wait,
            },
            Event::Renew {
                extended,
                gone,
                unknown,
                round_trip,
                timer_lag,
                ..
            } => Self::Renewed {
                answers: [extended, gone, unknown],
                round_trip,
                timer_lag,
            },
            Event::Run {
                key,
                token,
                locks,
                run,
                event,
            } => Self::Ran {
                key: key.clone(),
                token,
                locks: several(locks),
                run,
                event,
            },
            Event::Intent { intent } => Self::Sent {
                key: intent.key.clone(),
                intent: Arc::clone(&intent.intent),
            },
            Event::Debt { debt } => Self::Owed {
                key: debt.key.clone(),
                intent: Arc::clone(&debt.intent),
                state: debt.state.to_string(),
            },
            Event::Lost {
                key, token, reason, ..
            } => Self::Lost {
                key: key.clone(),
                token,
                reason,
            },
            Event::Release {
                key,
                token,
                reason,
                released,
                took,
                ..
            } => Self::Ended {
                key: key.clone(),
                token,
                reason,
                released: word(released),
                took,
            },
        })
    }
}

fn several(locks: &[HeldKey]) -> Option<String> {
    (locks.len() > 1).then(|| keys(locks).to_string())
}

fn word(released: &Released) -> &'static str {
    match released {
        Released::Released => "released",
        Released::AlreadyGone => "already gone",
        Released::Unknown(_) => "unknown",
        Released::Withheld { .. } => "withheld",
    }
}
