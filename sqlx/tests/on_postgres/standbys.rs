//! A commit that no standby has is in doubt.

use std::future::Future;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::fence::{Fence, Resolve};
use leasehold::run::{CommitProof, Resolution};
use leasehold::{ErrorKind, RunError};

use crate::PgBank;
use crate::kit::{Bank, Work, hold, key, take, token};

/// `call`, while whoever waits for standbys is cancelled: it is answered without an error.
async fn without_the_wait<T>(bank: &PgBank, call: impl Future<Output = T>) -> T {
    let cancel =
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let clock = Clock::system().expect("clocks");
    let operator = async {
        loop {
            bank.server.psql(cancel);
            clock.sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        answer = call => answer,
        () = operator => unreachable!("it never ends"),
    }
}

#[tokio::test]
async fn a_commit_that_no_standby_confirmed_is_in_doubt_until_one_has() {
    let bank = PgBank::open(4).await;
    bank.set("synchronous_standby_names", "nobody");
    let taken = without_the_wait(&bank, take(&bank, "a", 1, Work::Take)).await;
    let named = match &taken {
        Err(in_doubt @ RunError::InDoubt { .. }) => in_doubt.doubt().expect("a doubt"),
        other => panic!("{other:?}"),
    };
    // Nor is an answer about it believed that no standby has.
    let asked = without_the_wait(&bank, bank.fence.resolve(&named)).await;
    let asked = asked.expect_err("no standby has it");
    assert_eq!(asked.kind(), ErrorKind::Unavailable, "{asked}");
    let raised = without_the_wait(&bank, bank.fence.raise(&key("b"), token(1))).await;
    let raised = raised.expect_err("no standby has it");
    assert_eq!(raised.kind(), ErrorKind::Unavailable, "{raised}");

    bank.set("synchronous_standby_names", "");
    let resolution = bank.fence.resolve(&named).await;
    assert_eq!(resolution.expect("an answer"), Resolution::Applied);

    // And with one that confirms.
    let standby = bank.server.standby();
    bank.set("synchronous_standby_names", "FIRST 1 (*)");
    let (_, proof) = take(&bank, "a", 1, Work::Take).await.expect("applied");
    assert_eq!(proof, CommitProof::Fenced);
    bank.fence.raise(&key("a"), token(2)).await.expect("raised");
    drop(standby);
}

/// Whoever empties the setting ends the wait without a notice.
#[tokio::test]
async fn what_waited_for_a_standby_until_nobody_demanded_one_is_in_doubt() {
    let bank = PgBank::open(4).await;
    bank.set("synchronous_standby_names", "nobody");
    let clock = Clock::system().expect("clocks");
    let operator = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        while bank.server.psql(waits) == "0" {
            clock.sleep(Duration::from_millis(20)).await;
        }
        bank.set("synchronous_standby_names", "");
    };
    let taken = take(&bank, "a", 1, Work::Take);
    let (taken, ()) = futures_util::future::join(taken, operator).await;
    assert!(matches!(taken, Err(RunError::InDoubt { .. })), "{taken:?}");
}

/// It waits for half of its lease, and the answer to its question is asked for again.
#[tokio::test]
async fn a_commit_that_is_resolved_needs_the_standbys_of_before_its_work() {
    let bank = PgBank::open(4).await;
    bank.set("synchronous_standby_names", "nobody");
    let clock = Clock::system().expect("clocks");
    let operator = async {
        let asks = "SELECT count(*) FROM pg_stat_activity \
            WHERE wait_event_type = 'Lock' AND query LIKE '%leasehold.resolve(%'";
        while bank.server.psql(asks) == "0" {
            clock.sleep(Duration::from_millis(20)).await;
        }
        bank.set("synchronous_standby_names", "");
    };
    let executor = hold("a", 1, Duration::from_secs(8)).executor();
    let taken = executor.commit(bank.commit(Work::Take));
    let (taken, ()) = futures_util::future::join(taken, operator).await;
    let taken = taken.map(|done| done.value);
    assert!(matches!(taken, Err(RunError::InDoubt { .. })), "{taken:?}");
    assert_eq!(bank.cents().await, 990);
}
