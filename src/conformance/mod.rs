//! The behaviour suite for authors of stores (feature `conformance`).
//!
//! Small cases, grouped by the [clauses](Clause) of the contract of [`Store`](crate::store::Store), each with a sentence
//! that says what it shows. The store's [`Capability`](crate::store::Capability) chooses the cases, so that the suite is
//! exactly as long as the store's claim; a case that does not apply is in the report, with the reason.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use leasehold::clock::{Clock, ManualClock};
//! use leasehold::conformance::{self, OnManualClock};
//! use leasehold::store::MemoryStore;
//!
//! let clock = ManualClock::new();
//! let store = MemoryStore::with_clock(clock.clone());
//! let harness = OnManualClock::new(clock, move || store.clone());
//! conformance::run(&harness).await.assert_passed();
//! # }
//! ```
//!
//! Every case uses keys of its own, so that a server that others use as well may be tested; nothing is left behind for
//! longer than a TTL. What the suite cannot show: that the server itself is linearizable, and that it keeps its promises
//! over a restart. For that, restart it.

mod case;
mod exclusion;
mod expiry;
mod fencing;
mod harness;
mod inspection;
mod membership;
mod order;
mod read_write;
mod release;
mod renewal;
mod report;
mod revocation;
mod table;
mod uncertainty;
mod wake_up;

pub use harness::{Harness, OnManualClock};
pub use report::{Finding, Report, Sum, Verdict};
pub use table::Table;

use case::{Bench, Case};

use crate::store::{Member, Store as _};

/// A clause of the contract that a store keeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Clause {
    /// One claim holds a key at a time.
    Exclusion,
    /// A grant ends with its TTL, and not before.
    Expiry,
    /// A renewal compares and extends; it never creates.
    Renewal,
    /// A release compares and deletes.
    Release,
    /// Tokens grow.
    Fencing,
    /// An end of a hold wakes who waits.
    WakeUp,
    /// What is withdrawn does not hold, and never will.
    Uncertainty,
    /// What is told is what is held.
    Inspection,
    /// Claims that queue are served in the order in which they came.
    Order,
    /// Readers hold together, a writer alone.
    ReadWrite,
    /// What an operator took away does not come back.
    Revocation,
    /// A vote's token is near the member's time, and is raised only by who holds. For a [`Member`] only.
    Membership,
}

impl Clause {
    /// The clauses of every store, in the order of the report.
    pub const ALL: [Self; 11] = [
        Self::Exclusion,
        Self::Expiry,
        Self::Renewal,
        Self::Release,
        Self::Fencing,
        Self::WakeUp,
        Self::Uncertainty,
        Self::Inspection,
        Self::Order,
        Self::ReadWrite,
        Self::Revocation,
    ];

    fn cases<H: Harness>(self) -> Vec<Case<H>> {
        match self {
            Self::Exclusion => exclusion::cases(),
            Self::Expiry => expiry::cases(),
            Self::Renewal => renewal::cases(),
            Self::Release => release::cases(),
            Self::Fencing => fencing::cases(),
            Self::WakeUp => wake_up::cases(),
            Self::Uncertainty => uncertainty::cases(),
            Self::Inspection => inspection::cases(),
            Self::Order => order::cases(),
            Self::ReadWrite => read_write::cases(),
            Self::Revocation => revocation::cases(),
            // Not a clause of every store: see `run_member`.
            Self::Membership => Vec::new(),
        }
    }
}

/// Runs every case of every clause that is one of every store, one after the other.
///
/// # Cancel safety
///
/// Cancel safe: what a dropped run holds ends with its TTL.
pub async fn run<H: Harness>(harness: &H) -> Report {
    let mut report = Report::default();
    for clause in Clause::ALL {
        run_cases(harness, clause, clause.cases(), &mut report).await;
    }
    report
}

/// Runs every case of a store that votes in a quorum: those of [`run`], and [`Clause::Membership`].
///
/// # Cancel safety
///
/// As [`run`].
pub async fn run_member<H>(harness: &H) -> Report
where
    H: Harness,
    H::Store: Member,
{
    let mut report = run(harness).await;
    run_cases(
        harness,
        Clause::Membership,
        membership::cases(),
        &mut report,
    )
    .await;
    report
}

async fn run_cases<H: Harness>(
    harness: &H,
    clause: Clause,
    cases: Vec<Case<H>>,
    report: &mut Report,
) {
    for case in cases {
        let verdict = judge(harness, &case).await;
        report.add(Finding {
            clause,
            case: case.name,
            shows: case.shows,
            verdict,
        });
    }
}

async fn judge<H: Harness>(harness: &H, case: &Case<H>) -> Verdict {
    let bench = match Bench::new(harness).await {
        Ok(bench) => bench,
        Err(e) => return Verdict::Failed(format!("no client could be made: {e}")),
    };
    if let Some(why) = (case.needs)(&bench.a.capability()) {
        return Verdict::DidNotApply(why);
    }
    bench.judge(case).await
}
