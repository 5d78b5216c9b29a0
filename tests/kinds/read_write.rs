//! Many readers or one writer.

use std::collections::HashMap;

use futures_util::FutureExt;
use leasehold::clock::ManualClock;
use leasehold::store::{Acquired, Claim, Grant, Label, LockMode, MemoryStore, OwnerToken, Store};
use leasehold::testing::{Faulty, Operation};
use leasehold::{Ended, ErrorKind, GuardedCell, Key, LockManager, RunError};
use proptest::prelude::*;

use crate::support::{World, ms, poll_and_drop, poll_once, secs, while_time_passes};
use crate::yielding::leaves_nothing_whenever_dropped;

#[tokio::test]
async fn readers_of_one_process_and_of_another_hold_together() {
    let world = World::new();
    let ours = world.ours.read_write("a");
    let one = ours.read().await.unwrap();
    let two = ours.read().await.unwrap();
    let three = world.theirs.read_write("a").read().await.unwrap();
    assert!(ours.try_write().await.unwrap().is_none());
    world.pass(secs(30)).await;
    for reader in [&one, &two, &three] {
        assert!(reader.lease().is_live());
    }
    drop((one, two));
    world.settled().await;
    assert!(ours.try_write().await.unwrap().is_none());
    let _ = three.release().await;
    assert!(ours.try_write().await.unwrap().is_some());
}

#[tokio::test]
async fn a_waiting_writer_blocks_later_readers_and_is_served_before_them() {
    let world = World::new();
    let first = world.ours.read_write("a").read().await.unwrap();
    let theirs = world.theirs.read_write("a");
    let mut writer = Box::pin(theirs.write());
    assert!(poll_once(&mut writer).await.is_pending());
    let ours = world.ours.read_write("a");
    let mut later = Box::pin(ours.read());
    assert!(poll_once(&mut later).await.is_pending());
    let _ = first.release().await;
    assert!(poll_once(&mut later).await.is_pending());
    let writer = while_time_passes(&world, secs(3), writer).await.unwrap();
    assert!(poll_once(&mut later).await.is_pending());
    let _ = writer.release().await;
    let _later = while_time_passes(&world, secs(3), later).await.unwrap();
}

#[tokio::test]
async fn a_writer_who_gives_up_lets_the_readers_behind_it_in() {
    let world = World::new();
    let _first = world.ours.read_write("a").read().await.unwrap();
    let theirs = world.theirs.read_write("a");
    let mut writer = Box::pin(theirs.write());
    assert!(poll_once(&mut writer).await.is_pending());
    let mut later = Box::pin(theirs.read());
    assert!(poll_once(&mut later).await.is_pending());
    drop(writer);
    world.settled().await;
    // The clock stands still: the withdrawal wakes it.
    let _later = while_time_passes(&world, ms(100), later).await.unwrap();
}

#[tokio::test]
async fn a_downgrade_keeps_the_token_and_leaves_no_gap() {
    let world = World::new();
    let writer = world.ours.read_write("a").write().await.unwrap();
    let (token, executor) = (writer.token(), writer.executor());
    let theirs = world.theirs.read_write("a");
    let mut next = Box::pin(theirs.write());
    assert!(poll_once(&mut next).await.is_pending());
    let reader = writer.downgrade().await.unwrap();
    assert_eq!(reader.token(), token);
    assert!(reader.lease().is_live());
    assert!(poll_once(&mut next).await.is_pending());
    // What was handed out for writing writes no more.
    let cell = GuardedCell::new(0);
    let late = executor.guarded(|tx| {
        *tx.write(&cell) = 1;
        Ok(())
    });
    assert!(matches!(late, Err(RunError::NotStarted { .. })), "{late:?}");
    world.pass(secs(20)).await;
    assert!(reader.lease().is_live());
    let _ = reader.release().await;
    let next = while_time_passes(&world, secs(3), next).await.unwrap();
    assert!(next.token() > token);
}

#[tokio::test]
async fn a_downgrade_waits_for_runs_and_lets_none_of_them_commit() {
    let world = World::new();
    let writer = world.ours.read_write("a").write().await.unwrap();
    let executor = writer.executor();
    let cell = GuardedCell::new(0);
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (go_on, gone_on) = tokio::sync::oneshot::channel::<()>();
    let written = cell.clone();
    let run = tokio::spawn(async move {
        executor
            .guarded_async(async |tx| {
                *tx.write(&written) = 1;
                begin.send(()).unwrap();
                gone_on.await.unwrap();
                Ok(())
            })
            .await
            .is_ok()
    });
    begun.await.unwrap();
    let mut downgrade = Box::pin(writer.downgrade());
    assert!(poll_once(&mut downgrade).await.is_pending());
    // Still a writer, as the store sees it.
    let theirs = world.theirs.read_write("a");
    assert!(theirs.try_read().await.unwrap().is_none());
    go_on.send(()).unwrap();
    assert!(!run.await.unwrap());
    let _reader = downgrade.await.unwrap();
    assert_eq!(*cell.read(), 0);
    assert!(theirs.try_read().await.unwrap().is_some());
}

#[tokio::test]
async fn a_downgrade_after_many_ttls_counts_from_the_newest_proof() {
    let world = World::new();
    let writer = world.ours.read_write("a").write().await.unwrap();
    world.pass(secs(35)).await;
    let reader = writer.downgrade().await.unwrap();
    world.pass(secs(35)).await;
    assert!(reader.lease().is_live());
    let theirs = world.theirs.read_write("a");
    assert!(theirs.try_write().await.unwrap().is_none());
}

#[tokio::test]
async fn a_downgraded_hold_lets_readers_in() {
    let world = World::new();
    let writer = world.ours.read_write("a").write().await.unwrap();
    let reader = writer.downgrade().await.unwrap();
    let theirs = world.theirs.read_write("a");
    let with = theirs.try_read().await.unwrap().unwrap();
    assert!(reader.lease().is_live() && with.lease().is_live());
}

#[tokio::test]
async fn a_lapsed_write_hold_is_not_downgraded() {
    let world = World::new();
    let writer = world.ours.read_write("a").write().await.unwrap();
    world.clock.advance(secs(11));
    let error = writer.downgrade().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost(_)), "{error}");
    assert!(
        world
            .theirs
            .read_write("a")
            .try_write()
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_downgrade_that_is_dropped_at_any_await_leaks_nothing() {
    leaves_nothing_whenever_dropped(3, async |locks, times| {
        let writer = locks.read_write("a").write().await.unwrap();
        poll_and_drop(times, writer.downgrade())
    })
    .await;
}

#[tokio::test]
async fn a_read_is_given_only_if_no_writer_came_in_between() {
    let world = World::new();
    let reader = world.ours.read_write("a").read().await.unwrap();
    assert_eq!(reader.read(|_| 7).unwrap(), 7);
    let late = reader.read(|check| {
        world.clock.advance(secs(11));
        assert!(check.check().is_err());
        7
    });
    assert!(late.is_err());
    assert!(reader.read(|_| panic!("called without a lease")).is_err());
    assert_eq!(reader.lost().await, Ended::Lapsed);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(usize),
    Leave(usize),
    Downgrade(usize),
    Pass,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..8_usize).prop_map(Step::Ask),
        2 => (0..8_usize).prop_map(Step::Leave),
        1 => (0..8_usize).prop_map(Step::Downgrade),
        1 => Just(Step::Pass),
    ]
}

proptest! {
    /// Eight clients that read (even) or write (odd) ask, leave, downgrade, and lapse: at no time
    /// does a writer hold with another, and a downgraded hold never meets a writer.
    #[test]
    fn a_writer_never_holds_with_another(steps in prop::collection::vec(step(), 1..300)) {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let mut claims: Vec<Claim> = (0..8).map(claim).collect();
        let mut held: HashMap<usize, (Grant, u64)> = HashMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Ask(n) if !held.contains_key(&n) => {
                    let answer = store.acquire(&claims[n]).now_or_never().unwrap().unwrap();
                    if let Acquired::Granted(grant) = answer {
                        held.insert(n, (grant, now + 10));
                    }
                }
                Step::Leave(n) => {
                    if let Some((grant, _)) = held.remove(&n) {
                        let _ = store.release(&grant).now_or_never().unwrap();
                    } else {
                        store.withdraw(&claims[n]).now_or_never().unwrap().unwrap();
                    }
                    claims[n] = claim(n);
                }
                Step::Downgrade(n) => {
                    if let Some((grant, _)) = held.get_mut(&n) {
                        *grant = store.downgrade(grant).now_or_never().unwrap().unwrap();
                    }
                }
                Step::Ask(_) => {}
                Step::Pass => {
                    clock.advance(secs(3));
                    now += 3;
                    held.retain(|n, (_, ends)| {
                        let is_live = *ends > now;
                        if !is_live {
                            claims[*n] = claim(*n);
                        }
                        is_live
                    });
                }
            }
            let writers = held.values().filter(|(g, _)| g.claim.mode == LockMode::Write).count();
            prop_assert!(writers == 0 || held.len() == 1, "{writers} of {} write", held.len());
        }
    }
}

fn claim(n: usize) -> Claim {
    let label = Label::parse("client").unwrap();
    let owner = OwnerToken::generate().unwrap();
    let mut claim = Claim::new(Key::parse("a").unwrap(), owner, label, secs(10));
    claim.mode = [LockMode::Read, LockMode::Write][n % 2];
    claim
}

#[tokio::test]
async fn a_downgrade_after_the_end_of_the_lease_asks_the_store_for_nothing() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let network = Faulty::new(store, clock.clone(), 7);
    let locks = LockManager::builder(network.clone()).clock(clock.clone());
    let locks = locks.build().unwrap();
    let writer = locks.read_write("a").write().await.unwrap();
    // Past the lease, but not past the ttl: the store would still answer for it.
    clock.advance(ms(9_500));
    let error = writer.downgrade().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost(Ended::Lapsed));
    assert_eq!(network.counts(Operation::Downgrade).asked, 0);
}
