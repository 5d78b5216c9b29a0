//! The rows of the table of outcomes, each run in both modes.
//!
//! `rows.rs` is compiled once for each mode. The macros are the difference: how work runs, commits
//! and takes a step.

#![allow(
    clippy::duplicate_mod,
    reason = "the same rows are tests of both modes"
)]

use leasehold::run::CommitProof;
use leasehold::{Committed, Ended, LeaseError, RunError};

mod awaited_only;

/// The outcomes by name: a test names its row in one word.
fn name<T, E>(outcome: &Result<Committed<T>, RunError<T, E>>) -> &'static str {
    match outcome {
        Ok(committed) => match committed.proof {
            CommitProof::WithinLease => "committed within the lease",
            CommitProof::Fenced => "committed, fenced",
            CommitProof::Local => "committed, local",
            _ => "?",
        },
        Err(RunError::NotStarted { .. }) => "not started",
        Err(RunError::RolledBack { .. }) => "rolled back",
        Err(RunError::Incomplete { .. }) => "incomplete",
        Err(RunError::Fenced { .. }) => "fenced",
        Err(RunError::InDoubt { .. }) => "in doubt",
        Err(RunError::CommittedLate { .. }) => "committed late",
        Err(_) => "?",
    }
}

const LAPSED: LeaseError = LeaseError::Lost(Ended::Lapsed);

// Blocking runs.

macro_rules! run {
    ($stage:expr, |$tx:pat_param| $(-> $returned:ty)? { $($work:tt)* }) => {
        $stage.executor.guarded(|$tx| $(-> $returned)? { $($work)* })
    };
}
macro_rules! run_to_its_panic {
    ($stage:expr, |$tx:pat_param| $(-> $returned:ty)? { $($work:tt)* }) => {{
        let run = || $stage.executor.guarded(|$tx| $(-> $returned)? { $($work)* });
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
    }};
}
macro_rules! commit {
    ($tx:expr, |$permit:pat_param| $(-> $returned:ty)? { $($commit:tt)* }) => {
        $tx.commit_with(move |$permit| $(-> $returned)? { $($commit)* })
    };
}
macro_rules! step {
    ($tx:expr, $intent:literal, { $($effect:tt)* }, $compensation:expr) => {
        $tx.step($intent, || { $($effect)* }, move |_| $compensation)
    };
}

#[path = "rows.rs"]
mod blocking;

// Awaited runs.

macro_rules! run {
    ($stage:expr, |$tx:pat_param| $(-> $returned:ty)? { $($work:tt)* }) => {
        $stage.executor.guarded_async(async |$tx| $(-> $returned)? {
            crate::executor_support::pause().await;
            $($work)*
        }).await
    };
}
macro_rules! run_to_its_panic {
    ($stage:expr, |$tx:pat_param| $(-> $returned:ty)? { $($work:tt)* }) => {{
        let run = $stage.executor.guarded_async(async |$tx| $(-> $returned)? { $($work)* });
        futures_util::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(run)).await
    }};
}
macro_rules! commit {
    ($tx:expr, |$permit:pat_param| $(-> $returned:ty)? { $($commit:tt)* }) => {
        $tx.commit_with(async move |$permit| $(-> $returned)? {
            crate::executor_support::pause().await;
            $($commit)*
        })
    };
}
macro_rules! step {
    ($tx:expr, $intent:literal, { $($effect:tt)* }, $compensation:expr) => {
        $tx.step($intent, async { $($effect)* }, async move |_| $compensation)
            .await
    };
}

#[path = "rows.rs"]
mod awaited;
