//! A commit that no standby has is in doubt.

use std::cell::Cell;
use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use leasehold::fence::{Fence, Resolve};
use leasehold::run::{CommitProof, Resolution};
use leasehold::{ErrorKind, RunError};

use crate::PgBank;
use crate::kit::{Bank, Work, hold, key, take, token};
use crate::server::breathe;

/// `call`, and whether somebody waited for standbys meanwhile: whoever does is cancelled, and is
/// answered without an error.
async fn cancelled<T>(bank: &PgBank, call: impl Future<Output = T>) -> (T, bool) {
    let cancel =
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let has_waited = Cell::new(false);
    let operator = async {
        loop {
            has_waited.set(bank.server.psql(cancel) != "0" || has_waited.get());
            breathe().await;
        }
    };
    let answer = tokio::select! {
        answer = call => answer,
        () = operator => unreachable!("it never ends"),
    };
    (answer, has_waited.get())
}

async fn without_the_wait<T>(bank: &PgBank, call: impl Future<Output = T>) -> T {
    cancelled(bank, call).await.0
}

/// A database where commits wait for a standby that does not exist.
async fn without_standbys() -> PgBank {
    let bank = PgBank::open(4).await;
    bank.set("synchronous_standby_names", "nobody");
    // A background process applies it some time after the reload; until then no commit waits.
    loop {
        let commit = sqlx::query("SELECT pg_logical_emit_message(true, '', '')");
        let (answer, has_waited) = cancelled(&bank, commit.execute(&bank.pool)).await;
        answer.expect("a commit");
        if has_waited {
            return bank;
        }
    }
}

/// What comes of `run`, which must not end before the operator has.
async fn beside<T: Debug>(operator: impl Future<Output = ()>, run: impl Future<Output = T>) -> T {
    let mut run = pin!(run);
    tokio::select! {
        early = &mut run => panic!("it ended before its time: {early:?}"),
        () = operator => run.await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_no_standby_confirmed_is_in_doubt_until_one_has() {
    let bank = without_standbys().await;
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
    let resolution = loop {
        match bank.fence.resolve(&named).await {
            Ok(resolution) => break resolution,
            // Its connection has not read the setting yet.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        breathe().await;
    };
    assert_eq!(resolution, Resolution::Applied);

    // And with one that confirms.
    let standby = bank.server.standby();
    bank.set("synchronous_standby_names", "FIRST 1 (*)");
    let (_, proof) = take(&bank, "a", 1, Work::Take).await.expect("applied");
    assert_eq!(proof, CommitProof::Fenced);
    bank.fence.raise(&key("a"), token(2)).await.expect("raised");
    drop(standby);
}

/// Whoever empties the setting ends the wait without a notice.
#[tokio::test(flavor = "multi_thread")]
async fn what_waited_for_a_standby_until_nobody_demanded_one_is_in_doubt() {
    let bank = without_standbys().await;
    let operator = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        while bank.server.psql(waits) == "0" {
            breathe().await;
        }
        bank.set("synchronous_standby_names", "");
    };
    let taken = take(&bank, "a", 1, Work::Take);
    let taken = beside(operator, taken).await;
    assert!(matches!(taken, Err(RunError::InDoubt { .. })), "{taken:?}");
}

/// It waits for half of its lease, and the answer to its question is asked for again.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_resolved_needs_the_standbys_of_before_its_work() {
    let bank = without_standbys().await;
    let operator = async {
        let asks = "SELECT count(*) FROM pg_stat_activity \
            WHERE wait_event_type = 'Lock' AND query LIKE '%leasehold.resolve(%'";
        while bank.server.psql(asks) == "0" {
            breathe().await;
        }
        bank.set("synchronous_standby_names", "");
    };
    let executor = hold("a", 1, Duration::from_secs(8)).executor();
    let taken = executor.commit(bank.commit(Work::Take));
    let taken = beside(operator, taken).await;
    let taken = taken.map(|done| done.value);
    assert!(matches!(taken, Err(RunError::InDoubt { .. })), "{taken:?}");
    assert_eq!(bank.cents().await, 990);
}
