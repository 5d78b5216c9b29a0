//! Holds whose last effect may still be on its way, however they end.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::clock::{Clock, Stamp};
use leasehold::run::{Applied, EffectError};
use leasehold::{Executor, RunError};

use super::sites::{PATIENCE, Site, on_every_store};

on_every_store! {
    a_key_in_doubt_is_nobodys_before_its_lease_is_over
}

/// Eight ticks of a session.
const TTL: Duration = Duration::from_secs(4);

/// How the hold and its manager end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Release,
    Drop,
    Shutdown,
    /// First the manager, while the guard is still there.
    DropTheManagerFirst,
}

const ENDS: [End; 4] = [
    End::Release,
    End::Drop,
    End::Shutdown,
    End::DropTheManagerFirst,
];

pub(crate) async fn leave_in_doubt(executor: &Executor) {
    let outcome = executor
        .commit(async |_| Err::<Applied, _>(EffectError::unknown("no answer")))
        .await;
    assert!(
        matches!(outcome, Err(RunError::InDoubt { .. })),
        "{outcome:?}"
    );
}

/// Each of these keys is granted, and not before these stamps.
pub(crate) async fn assert_granted_after(site: &Site, until: &[(String, Stamp)], what: &str) {
    let clock = Clock::system().unwrap();
    let theirs = site.manager(TTL).await;
    for (key, until) in until {
        let lock = theirs.lock(key.clone());
        let next = lock.acquire_within(PATIENCE).await.unwrap();
        let now = clock.stamp();
        assert!(next.is_some(), "{what}: {key} is never free");
        assert!(
            !now.since(until).is_zero(),
            "{what}: {key} was free too early"
        );
    }
}

async fn a_key_in_doubt_is_nobodys_before_its_lease_is_over(site: Site) {
    join_all(ENDS.map(|end| is_withheld(&site, end))).await;
}

async fn is_withheld(site: &Site, end: End) {
    let clock = Clock::system().unwrap();
    let ours = site.manager(TTL).await;
    let keys = ["a", "b"].map(|key| format!("{end:?}/{key}"));
    let guard = ours.lock_all(keys.clone()).acquire().await.unwrap();
    leave_in_doubt(&guard.executor()).await;
    // Whatever renews it later only makes it longer.
    let before = clock.stamp();
    let until = keys.map(|key| {
        let left = guard.lease(&key).unwrap().remaining();
        (key, before.plus(left))
    });
    match end {
        End::Release => {
            drop(guard.release().await);
            drop(ours);
        }
        End::Drop => {
            drop(guard);
            drop(ours);
        }
        End::Shutdown => {
            drop(guard);
            ours.shutdown().await;
        }
        End::DropTheManagerFirst => {
            drop(ours);
            drop(guard);
        }
    }
    assert_granted_after(site, &until, &format!("{end:?}")).await;
}
