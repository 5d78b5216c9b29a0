//! The specification of a fenced lock and of the fenced register behind it, as one step after the
//! other.
//!
//! A history is right if its operations can be put into one order in which each is allowed here,
//! and in which an operation that had ended before another began comes first. [`step`] is the
//! whole specification. It knows no clock and no store.
//!
//! # The lock
//!
//! At most one hold is there at any time. A hold begins within its acquire. It ends at the first
//! of these:
//!
//! - within its release, if nothing under it is in doubt;
//! - at or after the drop of its guard, if nothing under it is in doubt;
//! - when its lease is over. That is not earlier than the last deadline that its holder was seen to
//!   believe in, and not later than the moment at which it was seen to be over. A lease that is
//!   seen over for another reason than time ends between that look and the one before;
//! - at or after the death of its process.
//!
//! So a lock whose holder's lease has run out is free to be taken, and what its holder then still
//! claims to do within its lease is refused. When the store frees the lock is not in the history:
//! it is later than the end of the hold, or the next acquire comes too early and is refused.
//!
//! A hold with an effect in doubt ends by its lease alone: its release and its drop free nothing.
//!
//! Each acquire has a larger token than all before it. One exception is the handoff: within one
//! process a hold may follow a hold that was released, under the same token, if neither of the
//! two refuses handoffs (a lock with a fence does) and nothing was in doubt.
//!
//! A holder renews, checks with success, enters a run and begins a commit only while it holds. It
//! enters nothing and begins no commit after its hold was closed, which the call of a release and
//! the drop of a guard do. A lease that was over is over for good.
//!
//! # The register
//!
//! It keeps its writes in their order, and a `read` returns all of them. A write behind a fence is
//! applied only if no larger token was raised or used before, and it uses its own. A write whose
//! outcome says `lease` is applied while its hold is there. A write that failed is never
//! applied; one that failed as `fenced` came after a larger token. A write in doubt is applied once
//! or never, at any time after it was sent. What was resolved as applied is applied by then; what
//! was resolved as not applied is never applied. A write that succeeded is applied once, between
//! its begin and its end.

use std::hash::Hash;

/// A hold, as its acquire describes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hold {
    pub id: u64,
    pub token: u64,
    /// A number for the process of the holder.
    pub owner: u64,
    /// Its lock allows handoffs.
    pub handoff: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum How {
    Release,
    Drop,
    Lapse,
    Death,
}

/// What an answer to a write says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Said {
    /// Applied, behind a fence.
    Fence,
    /// Applied, while the lease was live.
    Lease,
    /// Applied, and nothing else.
    Applied,
    /// Not applied: a larger token came before.
    Fenced,
    /// Not applied.
    Refused,
    /// No answer.
    Nothing,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Write {
    pub hold: Option<u64>,
    pub token: u64,
    pub fenced: bool,
    /// Its place among the writes that the register has at the end, if it is there.
    pub place: Option<u64>,
    /// What a `get` returns after it.
    pub number: Option<u64>,
    pub said: Said,
}

/// One operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// `acquire`: null; ok: `{"hold","token","owner","handoff"}`.
    Acquire(Hold),
    /// `renew`: `{"hold"}`: its deadline moved forward.
    Renew(u64),
    /// `check`: `{"hold"}`: its holder found it live, or says that it was.
    Check(u64),
    /// `enter`: `{"hold"}`: a run began.
    Enter(u64),
    /// `commit`: `{"hold"}`: a commit is about to be sent.
    Commit(u64),
    /// `close`: `{"hold"}`: no run begins from here on.
    Close(u64),
    /// `doubt`: `{"hold"}`: an effect under it is in doubt.
    Doubt(u64),
    /// `release`: `{"hold","how"}`: an end; `how` is release, drop, lapse or death.
    Release(u64, How),
    /// `raise`: `{"token"}`: the fence learns of a token. `Some(false)` is a refusal.
    Raise(u64, Option<bool>),
    /// `write`: `{"id","hold","token","fenced","number"}`; `{"proof"}`: fence, lease, none, fenced
    /// or refused.
    Write(Write),
    /// `resolve`: `{"id","applied"}`, with the place of that write.
    Resolve { applied: bool, place: Option<u64> },
    /// `get`: `{"number"}`: the number of the last write.
    Get(u64),
    /// `read`: null; ok: the ids of all writes; here how many.
    Read(u64),
}

/// Where the lock and the register of one key are.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct State {
    hold: Option<Hold>,
    is_closed: bool,
    is_in_doubt: bool,
    /// The hold before, and how it ended.
    before: Option<(Hold, How)>,
    /// The largest token of any hold.
    largest: u64,
    /// The largest token that the fence has seen.
    seen: u64,
    /// How many writes were applied.
    count: u64,
    number: u64,
}

/// The state after an operation, or `None` if it is not allowed here.
pub fn step(state: &State, action: &Action) -> Option<State> {
    let next = state.clone();
    match *action {
        Action::Acquire(hold) => acquired(next, hold),
        Action::Renew(id) | Action::Check(id) => next.is_held(id).then_some(next),
        Action::Enter(id) | Action::Commit(id) => {
            (next.is_held(id) && !next.is_closed).then_some(next)
        }
        Action::Close(id) => Some(State {
            is_closed: next.is_closed || next.is_held(id),
            ..next
        }),
        Action::Doubt(id) => doubted(next, id),
        Action::Release(id, how) => Some(ended(next, id, how)),
        Action::Raise(token, answer) => raised(next, token, answer),
        Action::Write(ref write) => written(next, write),
        Action::Resolve { applied, place } => {
            let is_so = match place {
                Some(place) => applied && place < next.count,
                None => !applied,
            };
            is_so.then_some(next)
        }
        Action::Get(number) => (next.number == number).then_some(next),
        Action::Read(count) => (next.count == count).then_some(next),
    }
}

impl State {
    fn is_held(&self, id: u64) -> bool {
        self.hold.is_some_and(|hold| hold.id == id)
    }
}

fn acquired(state: State, hold: Hold) -> Option<State> {
    let is_handoff = state.before.is_some_and(|(before, how)| {
        how == How::Release
            && before.token == hold.token
            && before.owner == hold.owner
            && before.handoff
            && hold.handoff
    });
    let is_new = hold.token > state.largest;
    (state.hold.is_none() && (is_new || is_handoff)).then(|| State {
        hold: Some(hold),
        is_closed: false,
        is_in_doubt: false,
        largest: state.largest.max(hold.token),
        ..state
    })
}

fn doubted(state: State, id: u64) -> Option<State> {
    if state.is_held(id) {
        return Some(State {
            is_in_doubt: true,
            ..state
        });
    }
    // It was known before the release ended, which therefore comes after it.
    let is_freed =
        (state.before).is_some_and(|(before, how)| before.id == id && how == How::Release);
    (!is_freed).then_some(state)
}

fn ended(state: State, id: u64, how: How) -> State {
    let Some(hold) = state.hold.filter(|hold| hold.id == id) else {
        return state;
    };
    if state.is_in_doubt && matches!(how, How::Release | How::Drop) {
        return state;
    }
    State {
        hold: None,
        is_closed: false,
        is_in_doubt: false,
        before: Some((hold, how)),
        ..state
    }
}

fn raised(state: State, token: u64, answer: Option<bool>) -> Option<State> {
    match answer {
        Some(true) if token < state.seen => None,
        Some(false) => (token < state.seen).then_some(state),
        _ => Some(State {
            seen: state.seen.max(token),
            ..state
        }),
    }
}

fn written(state: State, write: &Write) -> Option<State> {
    let Some(place) = write.place else {
        return match write.said {
            Said::Fence | Said::Lease | Said::Applied => None,
            Said::Fenced => (state.seen > write.token).then_some(state),
            Said::Refused | Said::Nothing => Some(state),
        };
    };
    let is_applied = match write.said {
        Said::Fenced | Said::Refused => false,
        Said::Lease => write.hold.is_none_or(|id| state.is_held(id)),
        Said::Fence => write.fenced,
        Said::Applied | Said::Nothing => true,
    };
    let is_stale = write.fenced && write.token < state.seen;
    (is_applied && !is_stale && place == state.count).then(|| State {
        seen: if write.fenced {
            state.seen.max(write.token)
        } else {
            state.seen
        },
        count: state.count + 1,
        number: write.number.unwrap_or(state.number),
        ..state
    })
}
