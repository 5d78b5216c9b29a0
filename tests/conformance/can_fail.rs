//! The suite can fail: a store that breaks a clause fails that clause.

use leasehold::testing::conformance::Clause;

use crate::broken::{Fault, broken};
use crate::in_process::suite;

#[tokio::test]
async fn a_store_that_breaks_a_clause_fails_that_clause() {
    let mut missed = Vec::new();
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
        (Fault::NamesTheLatestHolder, Clause::ReadWrite),
        (Fault::NamesWaitersInAnyOrder, Clause::Order),
        (Fault::ServesInAnyOrder, Clause::Order),
        (Fault::PlacesOutliveTheirWaiters, Clause::Handover),
        (Fault::HandsOverToNobody, Clause::Handover),
        (Fault::WakesEverybody, Clause::Handover),
        (Fault::HandoverIsAnotherGrant, Clause::Handover),
        (Fault::LosesPlaces, Clause::Order),
        (Fault::ReadsAlone, Clause::ReadWrite),
        (Fault::WritesTogether, Clause::ReadWrite),
        (Fault::ReadersPassWriters, Clause::ReadWrite),
        (Fault::SharesTakeNothing, Clause::Shares),
        (Fault::SharesTakeOneMore, Clause::Shares),
        (Fault::SharesAreWhole, Clause::Shares),
        (Fault::ServesInAnyOrder, Clause::Shares),
        (Fault::DowngradeReleases, Clause::ReadWrite),
        (Fault::RenewExtendsHalf, Clause::Renewal),
        (Fault::AskingAgainExtendsNothing, Clause::Expiry),
        (
            Fault::ReadersAndWritersLeaveNoTombstone,
            Clause::Uncertainty,
        ),
        (Fault::DowngradeForgetsTheGrant, Clause::ReadWrite),
        (Fault::CloseReleases, Clause::Expiry),
        (Fault::RevokesAtOnce, Clause::Revocation),
        (Fault::RevokesNothing, Clause::Revocation),
        (Fault::RestIsForgotten, Clause::Rest),
        (Fault::RestEndsWithTheTtl, Clause::Rest),
        (Fault::RestIsHandedOver, Clause::Rest),
        (Fault::RestDoesNotCompare, Clause::Rest),
        (Fault::NeverWakes, Clause::Rest),
    ] {
        let report = suite(|memory, _| broken(memory, fault)).await;
        if report.sum(clause).failed == 0 {
            missed.push(format!("{fault:?} should fail {clause:?}\n{report}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[tokio::test]
async fn the_report_of_a_store_that_claims_nothing_lists_what_did_not_apply() {
    let report = suite(|memory, _| broken(memory, Fault::ClaimsTheLeast)).await;
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
    suite(|memory, _| broken(memory, Fault::GrantsTwice))
        .await
        .assert_passed();
}
