//! Runs the cases of each clause, one after the other.

use super::case::{Bench, Case};
use super::clause::Clause;
use super::harness::Harness;
use super::report::{Finding, Report, Verdict};
use super::{
    exclusion, expiry, fencing, handover, inspection, membership, order, read_write, release,
    renewal, rest, revocation, shares, uncertainty, wake_up,
};
use crate::store::{Member, Store as _};

/// Runs every case of every clause that is one of every store, one after the other.
///
/// # Cancel safety
///
/// Cancel safe: what a dropped run holds ends with its TTL.
pub async fn run<H: Harness>(harness: &H) -> Report {
    let mut report = Report::default();
    for clause in Clause::ALL {
        run_cases(harness, clause, cases_of(clause), &mut report).await;
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

/// The cases of a clause of every store.
fn cases_of<H: Harness>(clause: Clause) -> Vec<Case<H>> {
    match clause {
        Clause::Exclusion => exclusion::cases(),
        Clause::Expiry => expiry::cases(),
        Clause::Renewal => renewal::cases(),
        Clause::Release => release::cases(),
        Clause::Fencing => fencing::cases(),
        Clause::WakeUp => wake_up::cases(),
        Clause::Uncertainty => uncertainty::cases(),
        Clause::Inspection => inspection::cases(),
        Clause::Order => order::cases(),
        Clause::Handover => handover::cases(),
        Clause::ReadWrite => read_write::cases(),
        Clause::Shares => shares::cases(),
        Clause::Revocation => revocation::cases(),
        Clause::Rest => rest::cases(),
        // Not a clause of every store: see `run_member`.
        Clause::Membership => Vec::new(),
    }
}
