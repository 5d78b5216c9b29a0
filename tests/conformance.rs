//! The suite runs on every store that needs no server, and can fail.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broken;

use std::fmt::Write as _;

use leasehold::ManualClock;
use leasehold::conformance::{self, Clause, OnManualClock, Report};
use leasehold::store::{Faulty, Member, MemoryStore, Prefix, Quorum};

use broken::{Broken, Fault};

async fn suite<S: Member>(wrap: impl Fn(MemoryStore, ManualClock) -> S + Sync) -> Report {
    let clock = ManualClock::new();
    let memory = MemoryStore::with_clock(clock.clone());
    let server = clock.clone();
    conformance::run_member(&OnManualClock::new(clock, || {
        wrap(memory.clone(), server.clone())
    }))
    .await
}

/// Each client has a quorum of its own over the same three members.
async fn quorum() -> Report {
    let clock = ManualClock::new();
    let members = [(); 3].map(|()| MemoryStore::with_clock(clock.clone()));
    let server = clock.clone();
    let client = || Quorum::with_clock(members.clone(), server.clone()).unwrap();
    conformance::run(&OnManualClock::new(clock, client)).await
}

fn table(reports: &[(&str, Report)]) -> String {
    let mut table = format!("{:<18}", "store");
    let clauses = || Clause::ALL.into_iter().chain([Clause::Membership]);
    for clause in clauses() {
        let _ = write!(table, "{:<14}", format!("{clause:?}"));
    }
    for (store, report) in reports {
        let _ = write!(table, "\n{store:<18}");
        for clause in clauses() {
            let _ = write!(table, "{:<14}", report.sum(clause).to_string());
        }
    }
    table
}

#[tokio::test]
async fn every_store_in_this_process_keeps_every_clause() {
    let reports = [
        ("memory", suite(|memory, _| memory).await),
        (
            "prefix(memory)",
            suite(|memory, _| Prefix::new(memory, "app/").unwrap()).await,
        ),
        ("quorum(3 memory)", quorum().await),
        (
            "faulty(memory)",
            suite(|memory, clock| Faulty::new(memory, clock, 1)).await,
        ),
    ];
    println!("{}", table(&reports));
    for (store, report) in &reports {
        println!("\n{store}\n{report}");
        report.assert_passed();
        let did_not_apply: usize = Clause::ALL
            .map(|c| report.sum(c).did_not_apply)
            .iter()
            .sum();
        // Of order, read/write and revocation a quorum claims nothing.
        let lacks = if *store == "quorum(3 memory)" { 19 } else { 0 };
        assert_eq!(did_not_apply, lacks, "{store}");
    }
}

#[tokio::test]
async fn a_store_that_breaks_a_clause_fails_that_clause() {
    for (fault, clause) in [
        (Fault::GrantsTwice, Clause::Exclusion),
        (Fault::ForgetsWhoHolds, Clause::Exclusion),
        (Fault::EndsEarly, Clause::Expiry),
        (Fault::NeverEnds, Clause::Expiry),
        (Fault::RenewCreates, Clause::Renewal),
        (Fault::RenewMixesAnswers, Clause::Renewal),
        (Fault::RenewDoesNothing, Clause::Renewal),
        (Fault::ReleaseDoesNotCompare, Clause::Release),
        (Fault::ReleaseDoesNothing, Clause::Release),
        (Fault::TokenRepeats, Clause::Fencing),
        (Fault::NeverWakes, Clause::WakeUp),
        (Fault::WithdrawLeavesNoTombstone, Clause::Uncertainty),
        (Fault::WithdrawDoesNotCompare, Clause::Uncertainty),
        (Fault::FloorIsIgnored, Clause::Membership),
        (Fault::RaiseDoesNothing, Clause::Membership),
        (Fault::RaiseDoesNotCompare, Clause::Membership),
        (Fault::ListsEverything, Clause::Inspection),
        (Fault::TellsNothing, Clause::Inspection),
        (Fault::ServesInAnyOrder, Clause::Order),
        (Fault::PlacesOutliveTheirWaiters, Clause::Order),
        (Fault::LosesPlaces, Clause::Order),
        (Fault::ReadsAlone, Clause::ReadWrite),
        (Fault::WritesTogether, Clause::ReadWrite),
        (Fault::ReadersPassWriters, Clause::ReadWrite),
        (Fault::DowngradeReleases, Clause::ReadWrite),
        (Fault::RevokesAtOnce, Clause::Revocation),
        (Fault::RevokesNothing, Clause::Revocation),
    ] {
        let report = suite(|memory, _| Broken::new(memory, fault)).await;
        assert!(
            report.sum(clause).failed > 0,
            "{fault:?} should fail {clause:?}\n{report}"
        );
    }
}

#[tokio::test]
async fn a_store_that_claims_nothing_is_told_what_did_not_apply() {
    let report = suite(|memory, _| Broken::new(memory, Fault::ClaimsTheLeast)).await;
    assert_eq!(report.failures().count(), 0, "{report}");
    assert_eq!(report.sum(Clause::Fencing).passed, 0);
    assert!(report.sum(Clause::Fencing).did_not_apply > 0);
    assert!(
        report.to_string().contains("did not apply  Fencing"),
        "{report}"
    );
}

#[tokio::test]
#[should_panic(expected = "FAILED         Exclusion")]
async fn a_report_with_a_failure_does_not_pass() {
    suite(|memory, _| Broken::new(memory, Fault::GrantsTwice))
        .await
        .assert_passed();
}
