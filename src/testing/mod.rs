//! Tools for tests and benches (feature `testing`): holds that the test itself ends and renews,
//! runs whose lease ends at every point, the engine alone, seeded randomness, a store that fails on
//! purpose, and the [suite for stores](conformance).

pub mod conformance;
mod faulty;

pub use crate::clock::probe::{read_fast, read_strict};
#[doc(inline)]
pub use crate::executor::{Explored, MissedUndo, TestHold, explore_lapses, explore_lapses_async};
pub use crate::manager::Renewals;
pub use crate::model::random::seeded::seed_random;
pub use faulty::{Counts, Faults, Faulty, Operation};
