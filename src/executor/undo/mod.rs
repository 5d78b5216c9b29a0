//! Undoing what a run did: what may be tried, what becomes a debt, and the report of both (I6).

mod blocking;
mod judge;
mod tally;
mod unwinding;

pub(crate) use blocking::undo_all;
pub(crate) use judge::Why;
pub(crate) use tally::{Tally, commit_debt};
pub(crate) use unwinding::Unwinding;
