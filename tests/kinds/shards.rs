//! Work that is divided among processes.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use leasehold::clock::{Clock, ManualClock};
use leasehold::fence::{Fence, FenceGate};
use leasehold::shards::{MAX_SHARDS, MAX_WEIGHT, Shard};
use leasehold::store::{
    Acquired, Claim, Label, LockInfo, LockMode, MemoryStore, OwnerToken, Store,
};
use leasehold::testing::Operation;
use leasehold::{Abort, Error, ErrorKind, FencingToken, Key, LockManager, Settings};
use tokio_util::sync::CancellationToken;

use crate::crew::{Book, Crew, Process, members_come_and_go};
use crate::support::{ms, poll_once, secs};

fn crew() -> (Crew, MemoryStore) {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    (Crew::new(Some(clock), Settings::default()), store)
}

fn twelve(locks: &LockManager) -> leasehold::shards::Shards {
    locks.shards("s", 12)
}

#[tokio::test]
async fn members_come_and_go_in_memory() {
    let (crew, store) = crew();
    members_come_and_go(crew, async || store.clone(), "s").await;
}

#[tokio::test]
async fn a_larger_machine_owns_more() {
    let (mut crew, store) = crew();
    let small = crew.join(store.clone(), twelve);
    let large = crew.join(store, |locks| twelve(locks).weight(3));
    crew.until_loads([(small.number, 3), (large.number, 9)])
        .await;
    crew.assert_sound();
}

#[tokio::test]
async fn more_members_than_shards_leave_some_idle_and_every_shard_owned() {
    let (mut crew, store) = crew();
    let all: Vec<_> = (0..5)
        .map(|_| crew.join(store.clone(), |locks| locks.shards("s", 3)))
        .collect();
    let is_spread =
        |book: &Book| book.owners.len() == 3 && (0..5).all(|member| book.load(member) <= 1);
    crew.until("is it spread", is_spread).await;
    for member in &all {
        member.stop.cancel();
    }
    for member in all {
        crew.left(member).await.unwrap();
    }
    crew.assert_sound();
}

#[tokio::test]
async fn while_nobody_comes_nothing_moves() {
    let (mut crew, store) = crew();
    let _members = [crew.join(store.clone(), twelve), crew.join(store, twelve)];
    crew.until_loads([(0, 6), (1, 6)]).await;
    let begun = crew.book().begun;
    crew.pass(secs(60)).await;
    assert_eq!(crew.book().begun, begun);
    crew.assert_sound();
}

/// A planned move waits for a look and for the work to end, and never for a TTL.
#[tokio::test]
async fn a_join_and_a_leave_take_a_look_and_no_lease() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let mut settings = Settings::default();
    (settings.max_ttl, settings.ttl) = (secs(60), secs(60));
    let mut crew = Crew::new(Some(clock.clone()), settings);
    let now = || Clock::from(clock.clone()).stamp();
    // A look, its random part, and the moves, two at a time at first.
    let most = secs(60) / 6 + secs(2);
    let first = crew.join(store.clone(), twelve);
    crew.until_loads([(0, 12)]).await;
    for round in 0..2 {
        crew.pass(secs(7)).await;
        let began = now();
        let second = crew.join(store.clone(), twelve);
        let (one, other) = (first.number, second.number);
        crew.until_loads([(one, 6), (other, 6)]).await;
        assert!(now().since(&began) <= most, "round={round}: join");
        crew.pass(secs(7)).await;
        let began = now();
        second.stop.cancel();
        crew.left(second).await.unwrap();
        crew.until_loads([(one, 12)]).await;
        assert!(now().since(&began) <= most, "round={round}: leave");
    }
    crew.assert_sound();
}

/// Whatever the number of shards. Renewals are requests for many shards each.
#[tokio::test]
async fn a_member_costs_the_store_one_request_for_each_look() {
    let (mut crew, store) = crew();
    let set_up = |locks: &LockManager| locks.shards("s", 300);
    let members = [crew.join(store.clone(), set_up), crew.join(store, set_up)];
    crew.until_loads([(0, 150), (1, 150)]).await;
    crew.pass(secs(5)).await;
    let asked = |operation| {
        members
            .each_ref()
            .map(|member| member.network.counts(operation).asked)
    };
    let before = Operation::ALL.map(asked);
    let ttls = 10;
    crew.pass(ttls * Settings::default().ttl).await;
    for (operation, before) in Operation::ALL.into_iter().zip(before) {
        let more = asked(operation)
            .into_iter()
            .zip(before)
            .map(|(now, then)| now - then);
        let most = match operation {
            // A random part of up to a quarter makes each pause shorter.
            Operation::Inspect => u64::from(ttls) * 8 + 1,
            Operation::Renew => continue,
            _ => 0,
        };
        for more in more {
            assert!(more <= most, "{operation:?}: {more} of {most}");
        }
    }
    crew.assert_sound();
}

/// A claim of somebody who is no manager, for an hour.
fn claim(key: &str, label: &str) -> Claim {
    let (owner, label) = (
        OwnerToken::generate().unwrap(),
        Label::parse(label).unwrap(),
    );
    let mut claim = Claim::new(key.parse().unwrap(), owner, label, secs(3600));
    claim.place_ttl = secs(3600);
    claim
}

/// As many as a store names.
#[tokio::test]
async fn one_member_more_than_there_may_be_gets_shards_when_another_leaves() {
    let (mut crew, store) = crew();
    let mut others = Vec::new();
    for number in 0..LockInfo::MAX_LABELS {
        let mut member = claim("s/shard-members", &format!("other~{number:032x}~w1~n2048"));
        member.mode = LockMode::Read;
        let Ok(Acquired::Granted(held)) = store.acquire(&member).await else {
            panic!("readers join each other");
        };
        others.push(held);
    }
    let _last = crew.join(store.clone(), |locks| locks.shards("s", 2_048));
    crew.pass(secs(20)).await;
    assert!(crew.book().owners.is_empty());
    let _ = store.release(&others[0]).await;
    crew.until_loads([(0, 2)]).await;
}

#[tokio::test]
async fn a_shard_is_kept_until_another_member_waits_for_it() {
    let (mut crew, store) = crew();
    let first = crew.join(store.clone(), twelve);
    crew.until_loads([(0, 12)]).await;
    // A member that asks for nothing.
    let label = "other~0123456789abcdef0123456789abcdef~w1~n12";
    let mut member = claim("s/shard-members", label);
    member.mode = LockMode::Read;
    let joined = store.acquire(&member).await.unwrap();
    assert!(matches!(joined, Acquired::Granted(_)), "{joined:?}");
    crew.pass(secs(60)).await;
    crew.until_loads([(0, 12)]).await;
    // Whoever waits for all gets those that are the other member's.
    let waiting = (0..12).map(|index| claim(&format!("s/shard/{index:05}"), label));
    let waiting: Vec<Claim> = waiting.collect();
    for claim in &waiting {
        let asked = store.acquire(claim).await.unwrap();
        assert!(matches!(asked, Acquired::Busy { .. }), "{asked:?}");
    }
    let mut given = 0;
    while given < 6 {
        crew.step().await;
        given = 0;
        for claim in &waiting {
            let asked = store.acquire(claim).await.unwrap();
            given += usize::from(matches!(asked, Acquired::Granted(_)));
        }
    }
    crew.pass(secs(30)).await;
    crew.until_loads([(0, 6)]).await;
    // A planned leave with a member that waits for some only: the others are kept for one TTL.
    first.stop.cancel();
    crew.left(first).await.unwrap();
    for claim in &waiting {
        let asked = store.acquire(claim).await.unwrap();
        assert!(matches!(asked, Acquired::Granted(_)), "{asked:?}");
    }
}

#[tokio::test]
async fn the_last_member_leaves_at_once_and_leaves_nothing() {
    let (mut crew, store) = crew();
    let only = crew.join(store.clone(), twelve);
    crew.until_loads([(0, 12)]).await;
    only.stop.cancel();
    crew.left(only).await.unwrap();
    assert!(store.list("s/").await.unwrap().is_empty());
    crew.assert_sound();
}

#[tokio::test]
async fn a_member_that_is_stopped_before_it_joined_leaves_nothing() {
    let (mut crew, store) = crew();
    let locks = LockManager::builder(store.clone())
        .clock(crew.clock.clone().unwrap())
        .build()
        .unwrap();
    let alone = locks.lock("s/shard-members").acquire().await.unwrap();
    let member = crew.join(store.clone(), twelve);
    crew.pass(secs(5)).await;
    assert_eq!(crew.book().owners.len(), 0, "it has not joined");
    member.stop.cancel();
    crew.left(member).await.unwrap();
    alone.release().await.unwrap();
    crew.pass(secs(1)).await;
    assert!(store.list("s/").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_member_that_is_dropped_releases_all() {
    let (mut crew, store) = crew();
    let first = crew.join(store.clone(), twelve);
    crew.until_loads([(0, 12)]).await;
    let own = first.shards.watch();
    first.serving.abort();
    crew.until("is it dropped", |book| book.owners.is_empty())
        .await;
    crew.pass(secs(1)).await;
    assert!(own.borrow().is_empty());
    assert!(store.list("s/").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_shard_that_its_work_gave_away_is_released_with_its_member() {
    let (mut crew, store) = crew();
    let given_away = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&given_away);
    let member = crew.join_with(store.clone(), twelve, move |_, shard| {
        kept.lock().unwrap().push(shard);
        std::future::pending()
    });
    crew.until("are all given away", |_| {
        given_away.lock().unwrap().len() == 12
    })
    .await;
    member.serving.abort();
    crew.pass(secs(1)).await;
    assert!(store.list("s/").await.unwrap().is_empty());
    let shards = given_away.lock().unwrap();
    assert!(shards.iter().all(|shard| !shard.lease().is_live()));
}

/// Panics when it is raised for the first time.
#[derive(Clone, Debug, Default)]
struct PanicsOnce(Arc<AtomicUsize>);

impl Fence for PanicsOnce {
    async fn raise(&self, _: &Key, _: FencingToken) -> Result<(), Error> {
        let is_first = self.0.fetch_add(1, Ordering::SeqCst) == 0;
        assert!(!is_first, "the fence panics");
        Ok(())
    }
}

#[tokio::test]
async fn a_shard_whose_fence_panicked_is_asked_for_again() {
    let (mut crew, store) = crew();
    let fence = PanicsOnce::default();
    let _member = crew.join(store, |locks| twelve(locks).fence(fence.clone()));
    crew.until_loads([(0, 12)]).await;
    assert_eq!(fence.0.load(Ordering::SeqCst), 13);
}

#[tokio::test]
async fn a_membership_that_outlived_its_lease_is_no_second_member() {
    let (mut crew, store) = crew();
    let _first = crew.join(store.clone(), twelve);
    crew.until_loads([(0, 12)]).await;
    let key = "s/shard-members".parse().unwrap();
    let info = store.inspect(&key).await.unwrap().unwrap();
    let mut former = claim("s/shard-members", info.label.unwrap().as_str());
    former.mode = LockMode::Read;
    let joined = store.acquire(&former).await.unwrap();
    assert!(matches!(joined, Acquired::Granted(_)), "{joined:?}");
    let _second = crew.join(store, twelve);
    crew.until_loads([(0, 6), (1, 6)]).await;
    crew.assert_sound();
}

/// Work that ends in the way that its number of calls says.
#[tokio::test]
async fn work_that_fails_or_panics_begins_again_and_disturbs_no_other() {
    let (mut crew, store) = crew();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let _member = crew.join_with(
        store,
        |locks| locks.shards("s", 2),
        move |entry, shard| {
            let calls = Arc::clone(&counted);
            async move {
                if shard.index() == 0 {
                    match calls.fetch_add(1, Ordering::SeqCst) {
                        0 => return Err(Error::invalid("the work fails")),
                        1 => panic!("the work panics"),
                        2 => return Ok(()),
                        _ => {}
                    }
                }
                shard.leaving().await;
                drop(entry);
                Ok(())
            }
        },
    );
    crew.until("does it work", |book| {
        calls.load(Ordering::SeqCst) == 4 && book.owners.len() == 2
    })
    .await;
    assert_eq!(crew.book().begun, 5, "the other one began once");
    crew.assert_sound();
}

#[tokio::test]
async fn work_that_does_not_leave_is_dropped_when_its_time_is_over() {
    let (mut crew, store) = crew();
    let set_up = |locks: &LockManager| twelve(locks).drain_limit(secs(5));
    let _stubborn = crew.join_with(store.clone(), set_up, |entry, shard| async move {
        let _entry = entry;
        shard.lost().await;
        std::future::pending().await
    });
    crew.until_loads([(0, 12)]).await;
    let _next = crew.join(store, set_up);
    crew.until_loads([(0, 6), (1, 6)]).await;
    crew.assert_sound();
}

#[tokio::test]
async fn work_whose_lease_was_lost_is_dropped() {
    let (mut crew, store) = crew();
    let stubborn = crew.join_with(store, twelve, |entry, shard| async move {
        let _kept = (entry, shard);
        std::future::pending().await
    });
    crew.until_loads([(0, 12)]).await;
    crew.kill(&stubborn).await;
    let own = stubborn.shards.watch();
    let is_idle = |book: &Book| own.borrow().is_empty() && book.owners.is_empty();
    crew.until("was its work dropped", is_idle).await;
}

#[tokio::test]
async fn a_run_that_the_work_left_behind_has_what_is_left_of_the_drain_limit() {
    let (mut crew, store) = crew();
    let clock = Clock::from(crew.clock.clone().unwrap());
    let set_up = |locks: &LockManager| locks.shards("s", 1).drain_limit(secs(9));
    let only = crew.join_with(store.clone(), set_up, move |entry, shard| {
        let clock = clock.clone();
        async move {
            shard.leaving().await;
            let executor = shard.executor();
            let run = async move {
                let endless = async |_: &_| std::future::pending::<Result<(), Abort>>().await;
                executor.guarded_async(endless).await
            };
            tokio::spawn(run);
            clock.sleep(secs(8)).await;
            drop(entry);
            Ok(())
        }
    });
    crew.until_loads([(0, 1)]).await;
    only.stop.cancel();
    // The limit, and the TTL that ends a hold whose run is still in progress.
    crew.pass(secs(20)).await;
    assert!(store.list("s/").await.unwrap().is_empty());
    crew.left(only).await.unwrap();
}

#[tokio::test]
async fn a_member_that_nobody_polls_lets_others_have_their_share() {
    let (mut crew, store) = crew();
    let builder = LockManager::builder(store.clone()).clock(crew.clock.clone().unwrap());
    let locks = builder.build().unwrap();
    let shards = twelve(&locks);
    let mut serving = pin!(shards.serve(async |shard: Shard| {
        shard.leaving().await;
        Ok::<_, Error>(())
    }));
    while shards.watch().borrow().len() < 12 {
        assert!(poll_once(&mut serving).await.is_pending());
        crew.step().await;
        locks.settled().await;
    }
    let _second = crew.join(store, twelve);
    crew.until_loads([(0, 6)]).await;
}

#[tokio::test]
async fn what_waits_until_the_shard_leaves_is_dropped_then() {
    let (mut crew, store) = crew();
    let saved = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&saved);
    let first = crew.join_with(store, twelve, move |entry, shard| {
        let saved = Arc::clone(&counted);
        async move {
            let _entry = entry;
            assert_eq!(shard.until_leaving(async { 7 }).await, Some(7));
            assert!(!shard.is_leaving());
            assert_eq!(
                shard.until_leaving(std::future::pending::<()>()).await,
                None
            );
            assert!(shard.is_leaving() && shard.lease().is_live());
            saved.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    });
    crew.until_loads([(0, 12)]).await;
    first.stop.cancel();
    crew.left(first).await.unwrap();
    assert_eq!(saved.load(Ordering::SeqCst), 12);
}

#[tokio::test]
async fn a_former_owner_is_shut_out_before_the_next_one_begins() {
    let (mut crew, store) = crew();
    let gate = FenceGate::new();
    let set_up = |locks: &LockManager| twelve(locks).fence(gate.clone());
    let first = crew.join(store.clone(), set_up);
    crew.until_loads([(0, 12)]).await;
    let second = crew.join(store, set_up);
    crew.until_loads([(0, 6), (1, 6)]).await;
    crew.kill(&first).await;
    crew.until_loads([(second.number, 12)]).await;
    let tokens = second.shards.owners().await.unwrap();
    for (index, owner) in tokens {
        let key = format!("s/shard/{index:05}").parse().unwrap();
        let token = owner.token.unwrap();
        let before = FencingToken::new(token.number() - 1).unwrap();
        assert!(gate.raise(&key, before).await.is_err(), "{key}");
        assert!(gate.raise(&key, token).await.is_ok(), "{key}");
    }
    crew.assert_sound();
}

#[tokio::test]
async fn a_membership_that_was_taken_away_is_asked_for_again() {
    let (mut crew, store) = crew();
    let first = crew.join(store.clone(), twelve);
    let _second = crew.join(store, twelve);
    crew.until_loads([(0, 6), (1, 6)]).await;
    let now = leasehold::store::Revoke::Now;
    let revoked = first.locks.revoke("s/shard-members", now).await.unwrap();
    assert!(matches!(revoked, leasehold::store::Revoked::Revoked { .. }));
    crew.pass(secs(30)).await;
    crew.until_loads([(0, 6), (1, 6)]).await;
    let members = first.locks.inspect("s/shard-members").await.unwrap();
    assert_eq!(members.unwrap().holders, 2);
    crew.assert_sound();
}

async fn refused<S: Store + Clone>(crew: &Crew, process: Process<S>) -> ErrorKind {
    crew.left(process).await.unwrap_err().kind()
}

#[tokio::test]
async fn members_that_count_otherwise_are_refused() {
    let (mut crew, store) = crew();
    let _first = crew.join(store.clone(), twelve);
    crew.until_loads([(0, 12)]).await;
    let other = crew.join(store, |locks| locks.shards("s", 13));
    assert_eq!(refused(&crew, other).await, ErrorKind::Invalid);
    crew.pass(secs(10)).await;
    crew.until_loads([(0, 12)]).await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_at_once() {
    let (mut crew, store) = crew();
    for (count, weight) in [(0, 1), (MAX_SHARDS + 1, 1), (12, 0), (12, MAX_WEIGHT + 1)] {
        let set_up = |locks: &LockManager| locks.shards("s", count).weight(weight);
        let process = crew.join(store.clone(), set_up);
        let owners = process.shards.owners().await;
        assert_eq!(owners.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(refused(&crew, process).await, ErrorKind::Invalid);
    }
    let process = crew.join(store.clone(), |locks| locks.shards("", 12));
    assert_eq!(refused(&crew, process).await, ErrorKind::Invalid);
    let process = crew.join(store, |locks| twelve(locks).ttl(ms(1)));
    assert_eq!(refused(&crew, process).await, ErrorKind::Invalid);
}

#[tokio::test]
async fn a_store_without_readers_or_a_queue_is_refused_at_once() {
    let members = [(); 3].map(|()| MemoryStore::new().unwrap());
    let quorum = leasehold::store::quorum::Quorum::new(members).unwrap();
    let locks = LockManager::new(quorum).unwrap();
    let work = |_: Shard| async { Ok::<_, Error>(()) };
    let refused = twelve(&locks).serve(work).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("queue"), "{refused}");
}

#[tokio::test]
async fn a_manager_that_is_shut_down_ends_its_part() {
    let (mut crew, store) = crew();
    let first = crew.join(store.clone(), twelve);
    let _second = crew.join(store, twelve);
    crew.until_loads([(0, 6), (1, 6)]).await;
    let locks = first.locks.clone();
    let shutdown = tokio::spawn(async move { locks.shutdown().await });
    assert_eq!(refused(&crew, first).await, ErrorKind::Closed);
    shutdown.await.unwrap();
    crew.until_loads([(1, 12)]).await;
    crew.assert_sound();
}

#[test]
fn they_need_no_runtime_of_their_caller() {
    let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
    let shards = twelve(&locks);
    let stop = CancellationToken::new();
    let mut own = shards.watch();
    let stopped = stop.clone();
    let work = |shard: Shard| async move {
        shard.leaving().await;
        Ok::<_, Error>(())
    };
    let serving =
        std::thread::spawn(move || crate::bare_thread::block_on(shards.serve(work).until(stopped)));
    let all = crate::bare_thread::block_on(own.wait_for(|own| own.len() == 12));
    assert!(all.is_ok());
    drop(all);
    stop.cancel();
    serving.join().unwrap().unwrap();
}
