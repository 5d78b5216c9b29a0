//! Locks that an operator takes away at an awkward moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use leasehold::RunError;
use leasehold::clock::Clock;
use leasehold::run::Applied;
use leasehold::store::{Released, Revoke};

use super::doubts::assert_granted_after;
use super::sites::{PATIENCE, Site, on_every_store};

on_every_store! {
    a_revocation_beside_a_release_hits_no_next_holder
    a_run_under_several_locks_of_which_one_is_revoked_is_undone
    a_commit_under_several_locks_of_which_one_is_revoked_leaves_no_key_free_early
}

/// Eight ticks of a session.
const TTL: Duration = Duration::from_secs(4);

async fn a_revocation_beside_a_release_hits_no_next_holder(site: Site) {
    let (ours, theirs) = (site.manager(TTL).await, site.manager(TTL).await);
    for round in 0..10 {
        let how = if round == 4 {
            Revoke::AfterTtl
        } else {
            Revoke::Now
        };
        let guard = ours
            .lock("k")
            .acquire_within(PATIENCE)
            .await
            .unwrap()
            .unwrap();
        let (executor, token) = (guard.executor(), guard.token());
        let release = async {
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            guard.release().await
        };
        let (released, revoked) = tokio::join!(release, theirs.revoke("k", how));
        let what = format!("{how:?}: {released:?} {revoked:?}");
        let _ = revoked.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(executor.guarded(|_| Ok(())).is_err(), "{what}");
        // Both are over: whoever is next has nothing to fear from either.
        let next = theirs
            .lock("k")
            .acquire_within(PATIENCE)
            .await
            .unwrap()
            .unwrap();
        assert!(next.token() > token, "{what}");
        let run = next.executor().guarded(|_| Ok(()));
        assert!(run.is_ok(), "{what}: {run:?}");
        let end = next.release().await;
        assert!(matches!(end, Ok(Released::Released)), "{what}: {end:?}");
    }
}

async fn a_run_under_several_locks_of_which_one_is_revoked_is_undone(site: Site) {
    let (ours, theirs) = (site.manager(TTL).await, site.manager(TTL).await);
    let guard = ours.lock_all(["a", "b", "c"]).acquire().await.unwrap();
    let gauge = Arc::new(AtomicI64::new(100));
    let executor = guard.executor();
    let outcome = executor.guarded_async(async |tx| {
        tx.snapshot(Arc::clone(&gauge));
        gauge.store(0, Ordering::SeqCst);
        let _ = theirs.revoke("b", Revoke::Now).await?;
        guard.lost().await;
        Ok(())
    });
    let outcome = outcome.await;
    assert!(
        matches!(outcome, Err(RunError::RolledBack { .. })),
        "{outcome:?}"
    );
    assert_eq!(gauge.load(Ordering::SeqCst), 100);
    let refused = guard.executor().guarded(|_| Ok(()));
    assert!(
        matches!(refused, Err(RunError::NotStarted { .. })),
        "{refused:?}"
    );
    drop(guard.release().await);
    for key in ["a", "b", "c"] {
        let next = theirs.lock(key).acquire_within(PATIENCE).await.unwrap();
        assert!(next.is_some(), "{key}");
    }
}

async fn a_commit_under_several_locks_of_which_one_is_revoked_leaves_no_key_free_early(site: Site) {
    let clock = Clock::system().unwrap();
    let (ours, theirs) = (site.manager(TTL).await, site.manager(TTL).await);
    let guard = Arc::new(ours.lock_all(["a", "b", "c"]).acquire().await.unwrap());
    let seen = Arc::clone(&guard);
    let executor = guard.executor();
    let outcome = executor.commit(move |_| async move {
        let _ = theirs.revoke("b", Revoke::Now).await?;
        seen.lost().await;
        Ok(Applied::plain())
    });
    // The call is not polled any more once a lease is over.
    let outcome = outcome.await;
    let is_honest = matches!(
        outcome,
        Err(RunError::InDoubt { .. } | RunError::CommittedLate { .. })
    );
    assert!(is_honest, "{outcome:?}");
    let is_in_doubt = matches!(outcome, Err(RunError::InDoubt { .. }));
    let before = clock.stamp();
    let until = ["a", "c"].map(|key| {
        let left = guard.lease(key).unwrap().remaining();
        (key.to_owned(), before.plus(left))
    });
    drop(guard);
    if is_in_doubt {
        assert_granted_after(&site, &until, "a commit in doubt").await;
    }
}
