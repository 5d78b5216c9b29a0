//! Undoing what a run did: what may be tried, what becomes a debt, and the report of both (I6).

mod judge;
mod tally;
mod unwinding;

pub(crate) use judge::Why;
pub(crate) use tally::{Tally, commit_debt, undo_all};
pub(crate) use unwinding::Unwinding;
