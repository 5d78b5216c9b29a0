//! All or nothing.

use leasehold::clock::ManualClock;
use leasehold::run::{EffectError, read_together};
use leasehold::store::{MemoryStore, Revoke, Revoked};
use leasehold::testing::{Faulty, Operation};
use leasehold::{
    Cause, Ended, ErrorKind, GuardedCell, LeaseError, LockManager, RunError, Settings,
};

use crate::support::{World, ms, poll_and_drop, poll_once, secs, while_time_passes};
use crate::yielding::leaves_nothing_whenever_dropped;

async fn free(world: &World, keys: &[&str]) -> bool {
    for key in keys {
        if !world.is_free(key).await {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn all_keys_are_held_once_each_in_their_order_with_their_own_tokens() {
    let world = World::new();
    let guard = world
        .ours
        .lock_all(["c", "a", "b", "a"])
        .acquire()
        .await
        .unwrap();
    let keys: Vec<_> = guard.keys().map(|key| key.as_str().to_owned()).collect();
    assert_eq!(keys, ["a", "b", "c"]);
    assert!(guard.token("a").unwrap() < guard.token("b").unwrap());
    assert_eq!(guard.token("d").unwrap_err().kind(), ErrorKind::Invalid);
    for key in ["a", "b", "c"] {
        assert!(
            world
                .theirs
                .lock(key)
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
    }
    assert_eq!(guard.release().await.unwrap().len(), 3);
    assert!(free(&world, &["a", "b", "c"]).await);
}

#[tokio::test]
async fn a_busy_key_leaves_none_of_the_others_held() {
    let world = World::new();
    let _c = world.theirs.lock("c").acquire().await.unwrap();
    let all = world.ours.lock_all(["a", "b", "c"]);
    assert!(all.try_acquire().await.unwrap().is_none());
    assert!(free(&world, &["a", "b"]).await);
    let waited = while_time_passes(&world, secs(4), all.acquire_within(secs(2))).await;
    assert!(waited.unwrap().is_none());
    assert!(free(&world, &["a", "b"]).await);
}

#[tokio::test]
async fn a_wait_in_vain_names_the_holder_of_the_key_that_was_busy() {
    let world = World::labelled("web-3:4502");
    let _b = world.ours.lock("b").acquire().await.unwrap();
    world.pass(secs(12)).await;
    let all = world.theirs.lock_all(["a", "b", "c"]);
    let wait = world.theirs.settings().wait;
    let waited = while_time_passes(&world, wait + secs(1), all.acquire()).await;
    let error = waited.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    assert_eq!(error.key().unwrap().as_str(), "b");
    let text = error.to_string();
    assert!(text.contains("key=b; held by web-3:4502 for "), "{text}");
    assert!(text.contains(" s left unless it is renewed; try"), "{text}");
    assert!(free(&world, &["a", "c"]).await);
}

#[tokio::test]
async fn one_budget_is_for_all_keys() {
    let world = World::new();
    let a = world.theirs.lock("a").acquire().await.unwrap();
    let _b = world.theirs.lock("b").acquire().await.unwrap();
    let all = world.ours.lock_all(["a", "b"]);
    let mut waiting = Box::pin(all.acquire_within(secs(4)));
    assert!(poll_once(&mut waiting).await.is_pending());
    world.pass(secs(2)).await;
    let _ = a.release().await;
    let waited = while_time_passes(&world, secs(3), waiting).await;
    assert!(waited.unwrap().is_none());
}

#[tokio::test]
async fn bad_input_is_an_error_of_every_call() {
    let world = World::new();
    let none: [&str; 0] = [];
    for all in [
        world.ours.lock_all(none),
        world.ours.lock_all(["a", "b//c"]),
    ] {
        assert_eq!(all.acquire().await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(
            all.try_acquire().await.unwrap_err().kind(),
            ErrorKind::Invalid
        );
    }
    assert!(world.is_free("a").await);
}

#[tokio::test]
async fn an_acquire_that_is_dropped_at_any_await_leaves_no_partial_hold() {
    leaves_nothing_whenever_dropped(6, async |locks, times| {
        poll_and_drop(times, locks.lock_all(["a", "b", "c"]).acquire())
    })
    .await;
}

#[tokio::test]
async fn a_release_that_is_dropped_at_any_await_goes_on_in_the_background() {
    leaves_nothing_whenever_dropped(2, async |locks, times| {
        let guard = locks.lock_all(["a", "b", "c"]).acquire().await.unwrap();
        poll_and_drop(times, guard.release())
    })
    .await;
}

#[tokio::test]
async fn a_run_is_under_every_lease() {
    let world = World::new();
    let guard = world.ours.lock_all(["a", "b"]).acquire().await.unwrap();
    let cell = GuardedCell::for_key("a".parse().unwrap(), 0);
    let executor = guard.executor();
    assert_eq!(executor.lease().remaining(), guard.remaining());
    let done = executor
        .guarded(|tx| {
            *tx.write(&cell) += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!((done.token, *cell.read()), (guard.token("a").unwrap(), 1));
    assert_eq!(cell.key().unwrap().as_str(), "a");

    // The other key is lost in the middle of a run.
    let lost = executor
        .guarded_async(async |tx| {
            *tx.write(&cell) += 1;
            tx.check()?;
            let revoked = world.theirs.revoke("b", Revoke::Now).await?;
            assert!(matches!(revoked, Revoked::Revoked { .. }));
            // The next heartbeat reports it.
            world.pass(secs(4)).await;
            assert!(tx.check().is_err());
            Ok(())
        })
        .await;
    assert!(matches!(lost, Err(RunError::RolledBack { .. })), "{lost:?}");
    assert_eq!(*cell.read(), 1);
    let refused = executor.guarded(|_| Ok(()));
    assert!(matches!(
        refused,
        Err(RunError::NotStarted {
            why: LeaseError::Lost(_) | LeaseError::Ending
        })
    ));
    assert!(guard.lease("a").unwrap().is_live());
    assert!(guard.remaining().is_zero());
}

#[tokio::test]
async fn the_joint_lease_reports_when_any_is_at_risk_and_when_it_has_ended() {
    let clock = ManualClock::new();
    let memory = MemoryStore::with_clock(clock.clone());
    let network = Faulty::new(memory, clock.clone(), 1);
    let locks = LockManager::builder(network.clone()).clock(clock.clone());
    let locks = locks.build().unwrap();
    let pass = async |millis| {
        for _ in 0..millis / 100 {
            clock.advance(ms(100));
            locks.settled().await;
        }
    };
    let guard = locks.lock_all(["a", "b"]).acquire().await.unwrap();
    let lease = guard.executor().lease().clone();
    let mut at_risk = Box::pin(lease.at_risk());
    pass(8_000).await;
    assert!(poll_once(&mut at_risk).await.is_pending());
    network.block(Operation::Renew);
    pass(4_000).await;
    assert!(lease.is_at_risk() && lease.is_live());
    assert!(poll_once(&mut at_risk).await.is_ready());

    pass(8_000).await;
    assert_eq!(lease.lost_reason(), Some(Ended::Lapsed));
    assert!(poll_once(Box::pin(lease.at_risk())).await.is_ready());
}

#[tokio::test]
async fn the_end_of_any_hold_waits_for_a_run_under_all() {
    let world = World::new();
    let guard = world.ours.lock_all(["a", "b"]).acquire().await.unwrap();
    let executor = guard.executor();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (go_on, gone_on) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(async move {
        executor
            .guarded_async(async |_tx| {
                begin.send(()).unwrap();
                gone_on.await.unwrap();
                Ok(())
            })
            .await
            .is_ok()
    });
    begun.await.unwrap();
    let mut release = Box::pin(guard.release());
    assert!(poll_once(&mut release).await.is_pending());
    world.settled().await;
    assert!(!world.is_free("a").await);
    assert!(!world.is_free("b").await);
    go_on.send(()).unwrap();
    // The hold was ending before the run could commit.
    assert!(!run.await.unwrap());
    let _ = release.await;
    assert!(free(&world, &["a", "b"]).await);
}

#[tokio::test]
async fn no_hold_is_released_before_a_dropped_run_is_compensated() {
    let world = World::new();
    let guard = world.ours.lock_all(["a", "b"]).acquire().await.unwrap();
    let executor = guard.executor();
    let (go_on, gone_on) = tokio::sync::oneshot::channel::<()>();
    let mut run = Box::pin(executor.guarded_async(async |tx| {
        let debit = async { Ok::<(), EffectError>(()) };
        let credit = move |_cx| async move { gone_on.await.unwrap() };
        tx.step("debit", debit, credit).await?;
        std::future::pending::<()>().await;
        Ok(())
    }));
    assert!(poll_once(&mut run).await.is_pending());
    drop(run);
    let mut release = Box::pin(guard.release());
    assert!(poll_once(&mut release).await.is_pending());
    world.settled().await;
    assert!(!world.is_free("a").await);
    assert!(!world.is_free("b").await);
    go_on.send(()).unwrap();
    let _ = release.await;
    assert!(free(&world, &["a", "b"]).await);
}

#[tokio::test]
#[allow(
    clippy::disallowed_methods,
    reason = "a test that would hang without the rule ends by itself"
)]
async fn a_dropped_run_under_more_keys_than_a_runtime_has_threads_is_compensated() {
    let world = World::new();
    let keys = (0..600).map(|number| format!("many/{number}"));
    let guard = world.ours.lock_all(keys).acquire().await.unwrap();
    let executor = guard.executor();
    let (compensate, compensated) = tokio::sync::oneshot::channel();
    let mut run = Box::pin(executor.guarded_async(async |tx| {
        let debit = async { Ok::<(), EffectError>(()) };
        let credit = move |_cx| async move { compensate.send(()).unwrap() };
        tx.step("debit", debit, credit).await?;
        std::future::pending::<()>().await;
        Ok(())
    }));
    assert!(poll_once(&mut run).await.is_pending());
    drop(run);
    // A thread for each key would be more than there are: the compensation would wait for one.
    let compensated = tokio::time::timeout(secs(60), compensated).await;
    compensated.expect("it runs").unwrap();
}

#[tokio::test]
async fn two_callers_who_name_the_keys_in_other_orders_do_not_block_each_other() {
    let mut settings = Settings::default();
    settings.wait = secs(5);
    let world = World::with(settings);
    let (ours, theirs) = (
        world.ours.lock_all(["a", "b"]),
        world.theirs.lock_all(["b", "a"]),
    );
    let both = async {
        tokio::join!(
            async {
                for _ in 0..10 {
                    let _ = ours.acquire().await.unwrap().release().await;
                }
            },
            async {
                for _ in 0..10 {
                    let _ = theirs.acquire().await.unwrap().release().await;
                }
            }
        )
    };
    while_time_passes(&world, secs(60), both).await;
}

#[tokio::test]
async fn a_transfer_between_two_accounts_appears_at_once_or_not_at_all() {
    let world = World::new();
    let [a, b] = ["a", "b"].map(|key| GuardedCell::for_key(key.parse().unwrap(), 100));
    let both = world.ours.lock_all(["b", "a"]);
    let guard = both.acquire().await.unwrap();
    let transfer = |amount: i32, fails: bool| {
        guard.executor().guarded(|tx| {
            *tx.write(&a) -= amount;
            *tx.write(&b) += amount;
            if fails {
                return Err("changed my mind".into());
            }
            Ok(())
        })
    };
    transfer(10, false).unwrap();
    assert!(matches!(
        transfer(20, true),
        Err(RunError::RolledBack { .. })
    ));
    let (a_now, b_now) = read_together((&a, &b));
    assert_eq!((*a_now, *b_now), (90, 110));
    let locks = guard.executor().guarded(|tx| Ok(tx.locks().to_vec()));
    let held: Vec<_> = ["a", "b"].map(|key| guard.token(key).unwrap()).into();
    let tokens: Vec<_> = locks.unwrap().value.iter().map(|lock| lock.token).collect();
    assert_eq!(tokens, held);
    drop(guard.release().await);

    // Each account can be changed under its own lock alone, and only under that.
    let alone = world.ours.lock("b").acquire().await.unwrap();
    let add = |cell: &GuardedCell<i32>| {
        alone.executor().guarded(|tx| {
            *tx.write(cell) += 1;
            Ok(())
        })
    };
    add(&b).unwrap();
    assert!(matches!(
        add(&a),
        Err(RunError::RolledBack {
            cause: Cause::Refused(_),
            ..
        })
    ));
    assert_eq!((*a.read(), *b.read()), (90, 111));
}

#[tokio::test]
async fn a_cell_without_a_key_is_refused_under_several_locks_and_taken_under_one() {
    let world = World::new();
    let guard = world.ours.lock_all(["a", "b"]).acquire().await.unwrap();
    let cell = GuardedCell::new(0);
    let write = |executor: leasehold::Executor| {
        executor.guarded(|tx| {
            *tx.write(&cell) += 1;
            Ok(())
        })
    };
    let refused = write(guard.executor());
    assert!(
        matches!(
            refused,
            Err(RunError::RolledBack {
                cause: Cause::Refused(_),
                ..
            })
        ),
        "{refused:?}"
    );
    drop(guard.release().await);
    let only = world.ours.lock_all(["a"]).acquire().await.unwrap();
    write(only.executor()).unwrap();
    assert_eq!(cell.key().unwrap().as_str(), "a");
}
