//! Guarded cells: data of this process that can be changed only through a run.

mod guarded;
mod publish;
mod staged;
mod terms;
mod together;

pub use guarded::GuardedCell;
pub(crate) use publish::Cells;
pub use staged::Staged;
pub(crate) use staged::{Draft, Drafts};
pub use together::{Together, read_together};
