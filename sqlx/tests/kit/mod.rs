//! What every fence over a database shows, whatever the driver: one list of cases, which the tests
//! of each database run on a bank with one account.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold::clock::Clock;
use leasehold::fence::{Fence, Resolve};
use leasehold::run::{Applied, CommitPermit, CommitProof, Doubt, EffectError, Resolution};
use leasehold::testing::TestHold;
use leasehold::{BoxError, ErrorKind, FencingToken, Key, RunError, Settings};
use tokio::sync::{Notify, oneshot};

/// What the work of a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Takes ten from the account; the value is what is left.
    Take,
    /// Takes ten, and refuses to commit.
    Refuse,
    /// Takes ten, and sends a statement that fails; whether its error is the work's.
    Fail { is_swallowed: bool },
    /// Takes ten, sends this, swallows the error, and takes another ten.
    End(&'static str),
    /// Takes ten, and blocks the thread for so many milliseconds, as if the process were stopped.
    Stop(u64),
    /// Takes ten, begins a nested transaction and forgets it, and perhaps refuses to commit.
    Leak { is_refused: bool },
    /// Takes ten if the name is new.
    Once(&'static str),
}

/// The answer of a commit call.
pub(crate) type Committing =
    BoxFuture<'static, Result<Result<Applied<i64>, BoxError>, EffectError>>;

/// A bank whose account has 100 at first.
pub(crate) trait Bank: Send + Sync {
    type Fence: Fence + Resolve + Clone;

    /// Only the database knows whether the work has ended its transaction. After the lease the run
    /// does not wait for its answer, and is in doubt without it.
    const IS_ASKED_AFTER_THE_WORK: bool;

    fn fence(&self) -> &Self::Fence;

    /// The commit call of a run.
    fn commit(&self, work: Work) -> Box<dyn FnOnce(CommitPermit) -> Committing + Send>;

    /// What is in the account.
    fn cents(&self) -> BoxFuture<'_, i64>;
}

pub(crate) type Taken = Result<(i64, CommitProof), RunError<i64>>;

pub(crate) fn key(name: &str) -> Key {
    name.parse().expect("a key")
}

pub(crate) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a token")
}

pub(crate) fn hold(name: &str, number: u64, ttl: Duration) -> TestHold {
    let clock = Clock::system().expect("clocks");
    TestHold::new(clock, &Settings::default(), key(name), token(number), ttl)
}

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(300);

pub(crate) async fn take<B: Bank>(bank: &B, name: &str, number: u64, work: Work) -> Taken {
    let executor = hold(name, number, LONG).executor();
    let done = executor.commit(bank.commit(work)).await;
    done.map(|done| (done.value, done.proof))
}

/// The same, after `before` has seen the permit, and before the fence has.
pub(crate) async fn take_after<B: Bank>(
    bank: &B,
    name: &str,
    number: u64,
    work: Work,
    before: impl AsyncFnOnce(&CommitPermit),
) -> Taken {
    let executor = hold(name, number, LONG).executor();
    let (sender, receiver) = oneshot::channel();
    let go = Arc::new(Notify::new());
    let (call, waits) = (bank.commit(work), Arc::clone(&go));
    let done = executor.commit(async move |permit: CommitPermit| {
        let _ = sender.send(permit.clone());
        waits.notified().await;
        call(permit).await
    });
    let between = async {
        let permit = receiver.await.expect("a permit");
        before(&permit).await;
        go.notify_one();
    };
    let (done, ()) = futures_util::future::join(done, between).await;
    done.map(|done| (done.value, done.proof))
}

/// As if the process were stopped: no clock of ours moves it.
#[allow(clippy::disallowed_methods)]
pub(crate) fn stop(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

pub(crate) fn doubt(permit: &CommitPermit) -> Doubt {
    Doubt::new(permit.locks().to_vec(), permit.txn_id)
}

pub(crate) fn assert_rolled_back(taken: &Taken) {
    assert!(
        matches!(taken, Err(RunError::RolledBack { .. })),
        "{taken:?}"
    );
}

/// All cases. Each leaves the account as it found it, less what was committed.
pub(crate) async fn every_case<B: Bank>(bank: &B) {
    a_commit_is_applied_and_an_older_token_is_fenced(bank).await;
    a_newer_holder_that_comes_between_the_check_and_the_commit_shuts_it_out(bank).await;
    keys_have_tokens_of_their_own(bank).await;
    a_raise_returns_after_the_transactions_of_former_holders(bank).await;
    what_fails_or_is_refused_leaves_nothing(bank).await;
    a_commit_that_comes_after_its_void_is_refused(bank).await;
    a_commit_that_was_applied_is_resolved_as_applied_again_and_again(bank).await;
    a_doubt_without_all_locks_is_refused(bank).await;
    a_name_is_done_once(bank).await;
    a_permit_that_is_kept_commits_nothing(bank).await;
    a_permit_that_is_used_twice_is_in_doubt(bank).await;
    a_nested_transaction_that_is_leaked_changes_no_outcome(bank).await;
    a_process_that_is_stopped_until_its_lease_is_over_commits_nothing(bank).await;
    connections_that_come_back_are_in_no_transaction(bank).await;
}

async fn a_commit_is_applied_and_an_older_token_is_fenced<B: Bank>(bank: &B) {
    let before = bank.cents().await;
    let (left, proof) = take(bank, "kit/fenced", 1, Work::Take)
        .await
        .expect("applied");
    assert_eq!((left, proof), (before - 10, CommitProof::Fenced));
    let (fence, key) = (bank.fence(), key("kit/fenced"));
    fence.raise(&key, token(3)).await.expect("newer");
    fence.raise(&key, token(3)).await.expect("the same");
    let older = fence.raise(&key, token(2)).await.expect_err("older");
    assert!(matches!(older.kind(), ErrorKind::Lost(_)), "{older}");
    let refused = take(bank, "kit/fenced", 2, Work::Take).await;
    assert!(
        matches!(&refused, Err(RunError::Fenced { seen: Some(seen), .. }) if *seen == token(3)),
        "{refused:?}"
    );
    let far = fence.raise(&key, token(1 << 50)).await;
    far.expect("any token that a store grants");
    assert_eq!(bank.cents().await, before - 10);
}

async fn a_newer_holder_that_comes_between_the_check_and_the_commit_shuts_it_out<B: Bank>(
    bank: &B,
) {
    let before = bank.cents().await;
    let refused = take_after(bank, "kit/between", 1, Work::Take, async |_| {
        let raised = bank.fence().raise(&key("kit/between"), token(2)).await;
        raised.expect("newer");
    });
    let refused = refused.await;
    assert!(
        matches!(&refused, Err(RunError::Fenced { .. })),
        "{refused:?}"
    );
    assert_eq!(bank.cents().await, before);
}

async fn keys_have_tokens_of_their_own<B: Bank>(bank: &B) {
    for (name, number) in [("kit/Case", 9), ("kit/case", 1), ("kit/case/a", 1)] {
        let raised = bank.fence().raise(&key(name), token(number)).await;
        raised.expect("the first of this key");
        take(bank, name, number, Work::Take).await.expect("applied");
    }
}

/// The transaction is open, and blocks: a newer holder gets its guard after the end only.
async fn a_raise_returns_after_the_transactions_of_former_holders<B: Bank>(bank: &B) {
    let before = bank.cents().await;
    let name = "kit/open";
    let seen = Mutex::new(None);
    let (sender, receiver) = oneshot::channel();
    let executor = hold(name, 1, LONG).executor();
    let call = bank.commit(Work::Stop(0));
    let old = executor.commit(async move |permit: CommitPermit| {
        let _ = sender.send(());
        call(permit).await
    });
    let new = async {
        receiver.await.expect("it begins");
        while let Err(error) = bank.fence().raise(&key(name), token(2)).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        *seen.lock().expect("one thread") = Some(bank.cents().await);
    };
    let (old, ()) = futures_util::future::join(old, new).await;
    let applied = match old {
        Ok(_) => 10,
        Err(RunError::Fenced { .. }) => 0,
        Err(other) => panic!("{other:?}"),
    };
    let seen = seen.lock().expect("one thread").expect("it read");
    assert_eq!(
        (seen, bank.cents().await),
        (before - applied, before - applied)
    );
}

async fn what_fails_or_is_refused_leaves_nothing<B: Bank>(bank: &B) {
    let before = bank.cents().await;
    for work in [
        Work::Refuse,
        Work::Fail {
            is_swallowed: false,
        },
    ] {
        let failed = take(bank, "kit/fails", 1, work).await;
        assert_rolled_back(&failed);
        assert_eq!(bank.cents().await, before, "{work:?}");
    }
}

async fn a_commit_that_comes_after_its_void_is_refused<B: Bank>(bank: &B) {
    let before = bank.cents().await;
    let late = take_after(bank, "kit/void", 1, Work::Take, async |permit| {
        for _ in 0..2 {
            let resolution = bank.fence().resolve(&doubt(permit)).await;
            assert_eq!(resolution.expect("an answer"), Resolution::NotApplied);
        }
    });
    assert_rolled_back(&late.await);
    assert_eq!(bank.cents().await, before);
}

async fn a_commit_that_was_applied_is_resolved_as_applied_again_and_again<B: Bank>(bank: &B) {
    let mut named = None;
    let done = take_after(bank, "kit/applied", 1, Work::Take, async |permit| {
        named = Some(doubt(permit));
    });
    done.await.expect("applied");
    let named = named.expect("a permit");
    for _ in 0..2 {
        let resolution = bank.fence().resolve(&named).await.expect("an answer");
        assert_eq!(resolution, Resolution::Applied);
    }
}

async fn a_doubt_without_all_locks_is_refused<B: Bank>(bank: &B) {
    let done = take_after(bank, "kit/locks", 1, Work::Take, async |permit| {
        let mut other = doubt(permit);
        other.locks[0].key = key("kit/other");
        let error = bank
            .fence()
            .resolve(&other)
            .await
            .expect_err("of another run");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    });
    done.await.expect("applied");
}

async fn a_name_is_done_once<B: Bank>(bank: &B) {
    let before = bank.cents().await;
    for name in ["kit@1", "kit@1", "kit@2", "kit@1"] {
        take(bank, "kit/once", 1, Work::Once(name))
            .await
            .expect("done");
    }
    assert_eq!(bank.cents().await, before - 20);
}

async fn a_permit_that_is_kept_commits_nothing<B: Bank>(bank: &B) {
    let mut kept = None;
    let done = take_after(bank, "kit/kept", 1, Work::Take, async |permit| {
        kept = Some(permit.clone());
    });
    done.await.expect("applied");
    let before = bank.cents().await;
    let late = bank.commit(Work::Take)(kept.expect("a permit")).await;
    assert!(matches!(late, Err(EffectError::Unknown(_))), "{late:?}");
    assert_eq!(bank.cents().await, before);
}

/// The first use was applied, and the second is not.
async fn a_permit_that_is_used_twice_is_in_doubt<B: Bank>(bank: &B) {
    let before = bank.cents().await;
    let executor = hold("kit/twice", 1, LONG).executor();
    let (first, second) = (bank.commit(Work::Take), bank.commit(Work::Take));
    let twice =
        executor.commit(
            async move |permit: CommitPermit| match first(permit.clone()).await? {
                Ok(_) => second(permit).await,
                Err(error) => Ok(Err(error)),
            },
        );
    let twice = twice.await.map(|done| done.value);
    assert!(matches!(twice, Err(RunError::InDoubt { .. })), "{twice:?}");
    assert_eq!(bank.cents().await, before - 10);
}

/// sqlx counts it, and ends it and not the transaction.
async fn a_nested_transaction_that_is_leaked_changes_no_outcome<B: Bank>(bank: &B) {
    for is_refused in [false, true] {
        let before = bank.cents().await;
        let leaked = take(bank, "kit/leaks", 1, Work::Leak { is_refused }).await;
        let left = match &leaked {
            Ok((left, _)) => *left,
            Err(RunError::RolledBack { .. }) => before,
            Err(other) => panic!("{is_refused}: {other:?}"),
        };
        assert_eq!(bank.cents().await, left, "{is_refused}");
        assert!(!is_refused || left == before, "{leaked:?}");
        let taken = take(bank, "kit/leaks", 1, Work::Take).await;
        assert_eq!(taken.expect("applied").0, left - 10, "{is_refused}");
    }
}

async fn a_process_that_is_stopped_until_its_lease_is_over_commits_nothing<B: Bank>(bank: &B) {
    let before = bank.cents().await;
    let ttl = Duration::from_secs(2);
    let executor = hold("kit/stopped", 1, ttl).executor();
    let late = executor.commit(bank.commit(Work::Stop(2_000))).await;
    let late = late.map(|done| (done.value, done.proof));
    match &late {
        Err(in_doubt @ RunError::InDoubt { .. }) if B::IS_ASKED_AFTER_THE_WORK => {
            let named = in_doubt.doubt().expect("a doubt");
            let resolution = bank.fence().resolve(&named).await;
            assert_eq!(resolution.expect("an answer"), Resolution::NotApplied);
        }
        known => assert_rolled_back(known),
    }
    assert_eq!(bank.cents().await, before);
}

/// Whatever became of the run that had them. The pool has one connection, or a few.
async fn connections_that_come_back_are_in_no_transaction<B: Bank>(bank: &B) {
    for work in [
        Work::Take,
        Work::Refuse,
        Work::Fail { is_swallowed: true },
        Work::End("COMMIT"),
        Work::End("ROLLBACK"),
        Work::Leak { is_refused: false },
        Work::Leak { is_refused: true },
        Work::Once("kit@back"),
    ] {
        for _ in 0..4 {
            let _ = take(bank, "kit/back", 1, work).await;
        }
        let before = bank.cents().await;
        let taken = take(bank, "kit/back", 1, Work::Take).await;
        assert_eq!(taken.expect("applied").0, before - 10, "{work:?}");
    }
}
