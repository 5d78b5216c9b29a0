//! A fence that is tied to a lock is raised before the guard is handed out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;

use futures_util::future::{Either, select};
use leasehold::clock::ManualClock;
use leasehold::fence::{Fence, FenceGate, Refusal, Resolve};
use leasehold::reentrant::Scope;
use leasehold::run::{Applied, CommitProof, Doubt, EffectError, HeldKey, Resolution, TxnId};
use leasehold::store::{MemoryStore, Revoke};
use leasehold::testing::Operation;
use leasehold::{Error, ErrorKind, FencingToken, Key, LockManager, RunError};
use parking_lot::Mutex;

#[path = "support/plain.rs"]
mod plain;
mod support;
use plain::plain;
use support::{Far, World, ms, poll_once, secs, while_time_passes};

fn key() -> Key {
    "a".parse().expect("a key")
}

#[tokio::test]
async fn the_guard_is_handed_out_only_behind_a_raised_fence() {
    let world = World::new();
    let gate = FenceGate::new();
    let lock = world.ours.lock("a").fence(gate.clone());
    let first = lock.acquire().await.expect("free");
    assert_eq!(gate.largest(&key()), Some(first.token()));
    drop(first.release().await);
    let second = lock.acquire().await.expect("free");
    // Nothing was written under the second one yet.
    assert_eq!(gate.largest(&key()), Some(second.token()));
}

#[tokio::test]
async fn a_fence_that_has_seen_a_newer_holder_fails_the_acquire_and_frees_the_lock() {
    let world = World::new();
    let gate = FenceGate::new();
    let newer = FencingToken::new(1 << 40).expect("a token");
    gate.raise_to(&key(), newer).expect("the first");
    let refused = world.ours.lock("a").fence(gate).try_acquire().await;
    assert!(matches!(
        refused.expect_err("fenced").kind(),
        ErrorKind::Lost(_)
    ));
    assert!(world.is_theirs_to_take("a").await, "it is free again");
}

#[tokio::test]
async fn a_fence_that_was_raised_by_a_store_that_counts_otherwise_says_so_and_how_to_move_on() {
    let world = World::new();
    let gate = FenceGate::new();
    let theirs = FencingToken::new(1 << 50).expect("a token");
    gate.raise_to(&key(), theirs).expect("the first");
    let lock = world.ours.lock("a").fence(gate.clone());
    let refused = lock.try_acquire().await.expect_err("far below");
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(!refused.is_retryable());
    let text = refused.to_string();
    assert!(text.contains("another store"), "{text}");
    assert!(text.contains("FenceGate::forget"), "{text}");
    gate.forget(&key());
    drop(lock.acquire().await.expect("moved"));
}

/// The key, and the token that it was raised to before the guard was there.
async fn raised(gate: &FenceGate, key: &str, token: FencingToken) {
    let key = key.parse().expect("a key");
    assert_eq!(gate.largest(&key), Some(token), "{key}");
}

#[tokio::test]
async fn every_kind_of_lock_raises_its_fence_before_the_guard_is_handed_out() {
    let world = World::new();
    let gate = FenceGate::new();
    let locks = &world.ours;

    let reentrant = locks.reentrant("reentrant").fence(gate.clone());
    let held = reentrant.acquire(&Scope::new()).await.expect("free");
    raised(&gate, "reentrant", held.token()).await;

    let leader = locks.election("office").fence(gate.clone());
    let leader = leader.campaign("host-a").await.expect("vacant");
    raised(&gate, "office", leader.term()).await;

    let all = locks.lock_all(["b", "c"]).fence(gate.clone());
    let all = all.acquire().await.expect("free");
    for key in ["b", "c"] {
        raised(&gate, key, all.token(key).expect("held")).await;
    }

    let semaphore = locks.semaphore("slots", 2).fence(gate.clone());
    for _ in 0..2 {
        let slot = semaphore.acquire().await.expect("free");
        raised(&gate, slot.key().as_str(), slot.token()).await;
    }

    let book = locks.read_write("book").fence(gate.clone());
    let writer = book.write().await.expect("free");
    raised(&gate, "book", writer.token()).await;
}

#[tokio::test]
async fn a_reader_shuts_former_writers_out_and_no_other_reader() {
    let world = World::new();
    let gate = FenceGate::new();
    let book = world.ours.read_write("a").fence(gate.clone());
    let zombie = book.write().await.expect("free");
    let former = zombie.token();
    world.clock.advance(secs(11));
    let reader = book.read().await.expect("the writer lapsed");
    assert!(former < reader.token());
    assert!(gate.admit(&key(), former, || ()).is_err());
    // A reader that came later was faster at the fence.
    let faster = FencingToken::new(reader.token().number() + 10).expect("a token");
    gate.raise_to(&key(), faster).expect("a larger one");
    let slower = book.read().await.expect("readers hold together");
    assert!(slower.token() < faster && slower.lease().is_live());
    assert!(reader.lease().is_live());
    drop((reader, slower));
    world.settled().await;
    let refused = book.try_write().await.expect_err("no writer below it");
    assert!(matches!(refused.kind(), ErrorKind::Lost(_)), "{refused}");
}

#[derive(Debug)]
struct Silent;

impl Fence for Silent {
    async fn raise(&self, _: &Key, _: FencingToken) -> Result<(), Error> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_fence_that_does_not_answer_is_given_up_after_the_request_time_out() {
    let world = World::new();
    let lock = world.ours.lock("a").fence(Silent);
    let asking = tokio::spawn(async move { lock.try_acquire().await.map(|guard| guard.is_some()) });
    let clock = world.clock.clone();
    while !asking.is_finished() {
        clock.advance(ms(50));
        tokio::task::yield_now().await;
    }
    let error = asking
        .await
        .expect("no panic")
        .expect_err("no guard without its fence");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(world.is_theirs_to_take("a").await, "it is free again");
}

/// A fence at which a transaction of a former holder is open during the first attempts.
#[derive(Debug)]
struct Occupied {
    gate: FenceGate,
    attempts: Arc<AtomicU32>,
    /// For how many attempts.
    first: u32,
    /// Whether it reports the transaction, or leaves the caller without an answer.
    answers: bool,
}

impl Fence for Occupied {
    async fn raise(&self, key: &Key, token: FencingToken) -> Result<(), Error> {
        if self.attempts.fetch_add(1, Ordering::SeqCst) >= self.first {
            return self.gate.raise(key, token).await;
        }
        if !self.answers {
            std::future::pending::<()>().await;
        }
        Err(Error::new(ErrorKind::Unavailable, "a transaction is open"))
    }
}

#[tokio::test]
async fn a_fence_that_is_occupied_for_a_while_is_raised_within_the_wait() {
    for answers in [true, false] {
        let world = World::new();
        let (gate, attempts) = (FenceGate::new(), Arc::new(AtomicU32::new(0)));
        let occupied = |first| Occupied {
            gate: gate.clone(),
            attempts: Arc::clone(&attempts),
            first,
            answers,
        };
        let lock = world.ours.lock("a").fence(occupied(5));
        // Longer than the lease: the hold is renewed meanwhile.
        let acquiring = Box::pin(lock.acquire_within(secs(30)));
        let held = while_time_passes(&world, secs(30), acquiring).await;
        let held = held.expect("raised").expect("free");
        assert_eq!(attempts.load(Ordering::SeqCst), 6);
        assert_eq!(gate.largest(&key()), Some(held.token()));
        drop(held.release().await);

        attempts.store(0, Ordering::SeqCst);
        let lock = world.ours.lock("a").fence(occupied(u32::MAX));
        let acquiring = Box::pin(lock.acquire_within(secs(3)));
        let refused = while_time_passes(&world, secs(4), acquiring).await;
        let refused = refused.expect_err("occupied for all of the wait");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(attempts.load(Ordering::SeqCst) > 1);
        assert!(world.is_theirs_to_take("a").await, "it is free again");

        attempts.store(0, Ordering::SeqCst);
        let lock = world.ours.lock("b").fence(occupied(u32::MAX));
        let trying = Box::pin(lock.try_acquire());
        let refused = while_time_passes(&world, secs(1), trying).await;
        assert!(refused.is_err());
        assert_eq!(attempts.load(Ordering::SeqCst), 1, "one attempt");
    }
}

#[tokio::test]
async fn a_fence_that_does_not_answer_is_given_up_with_the_wait() {
    let world = World::new();
    let lock = world.ours.lock("a").fence(Silent);
    let began = world.now();
    let mut acquiring = Box::pin(lock.acquire_within(secs(3)));
    // In steps that are shorter than the pauses between two attempts.
    let refused = loop {
        if let Poll::Ready(refused) = poll_once(&mut acquiring).await {
            break refused;
        }
        world.clock.advance(ms(1));
        world.settled().await;
    };
    assert_eq!(refused.expect_err("silent").kind(), ErrorKind::Unavailable);
    let took = world.now().since(&began);
    assert!(took >= ms(2_900) && took <= ms(3_010), "{took:?}");
}

#[tokio::test]
async fn a_fence_is_not_raised_again_once_its_manager_shuts_down() {
    let world = World::new();
    let attempts = Arc::new(AtomicU32::new(0));
    let lock = world.ours.lock("a").fence(Occupied {
        gate: FenceGate::new(),
        attempts: Arc::clone(&attempts),
        first: u32::MAX,
        answers: true,
    });
    let mut acquiring = Box::pin(lock.acquire_within(secs(30)));
    assert!(poll_once(&mut acquiring).await.is_pending());
    assert_eq!(attempts.load(Ordering::SeqCst), 1, "it pauses");
    let both = Box::pin(async { tokio::join!(acquiring, world.ours.shutdown()) });
    let (refused, ()) = while_time_passes(&world, secs(5), both).await;
    assert!(refused.is_err());
    assert_eq!(attempts.load(Ordering::SeqCst), 1, "no further attempt");
}

#[tokio::test]
async fn a_slot_whose_fence_is_occupied_for_a_while_is_held_within_the_wait() {
    for answers in [true, false] {
        // The first attempt is made before the wait.
        for first in [1, 3] {
            let world = World::new();
            let (gate, attempts) = (FenceGate::new(), Arc::new(AtomicU32::new(0)));
            let semaphore = world.ours.semaphore("s", 1).fence(Occupied {
                gate: gate.clone(),
                attempts: Arc::clone(&attempts),
                first,
                answers,
            });
            let acquiring = Box::pin(semaphore.acquire_within(secs(10)));
            let held = while_time_passes(&world, secs(11), acquiring).await;
            let held = held.expect("raised").expect("free");
            assert_eq!(attempts.load(Ordering::SeqCst), first + 1);
            assert_eq!(gate.largest(held.key()), Some(held.token()));
        }
    }
}

#[tokio::test]
async fn a_caller_whose_fence_cannot_be_raised_leaves_slots_to_others() {
    for answers in [true, false] {
        let world = World::new();
        let theirs = world.theirs.semaphore("s", 4);
        let mut busy = Vec::new();
        for _ in 0..4 {
            busy.push(theirs.acquire().await.expect("free"));
        }
        let ours = world.ours.semaphore("s", 4).fence(Occupied {
            gate: FenceGate::new(),
            attempts: Arc::default(),
            first: u32::MAX,
            answers,
        });
        let mut failing = Box::pin(ours.acquire_within(secs(30)));
        assert!(poll_once(&mut failing).await.is_pending());
        for slot in busy {
            drop(slot.release().await);
        }
        // All slots are handed to the one that waits.
        world.settled().await;
        let other = Box::pin(theirs.acquire_within(secs(2)));
        match while_time_passes(&world, secs(3), select(failing, other)).await {
            Either::Left((ended, _)) => panic!("it has {ended:?}"),
            Either::Right((held, _)) => drop(held.expect("no fault").expect("a free slot")),
        }
    }
}

#[tokio::test]
async fn a_slot_of_a_store_that_does_not_answer_for_a_while_is_held_within_the_wait() {
    let far = Far::new();
    far.network.block(Operation::Acquire);
    let semaphore = far.locks.semaphore("s", 2);
    let mut acquiring = Box::pin(semaphore.acquire_within(secs(10)));
    for _ in 0..20 {
        assert!(poll_once(&mut acquiring).await.is_pending());
        far.pass(ms(100)).await;
    }
    far.network.unblock(Operation::Acquire);
    for _ in 0..60 {
        if let Poll::Ready(held) = poll_once(&mut acquiring).await {
            drop(held.expect("it answers").expect("free"));
            return;
        }
        far.pass(ms(100)).await;
    }
    panic!("the store answers, and no slot is held");
}

/// The process is stopped while it raises this fence.
#[derive(Debug)]
struct Stopping(ManualClock);

impl Fence for Stopping {
    async fn raise(&self, _: &Key, _: FencingToken) -> Result<(), Error> {
        self.0.advance(secs(11));
        Ok(())
    }
}

#[tokio::test]
async fn no_guard_is_returned_whose_lease_ended_while_its_fence_was_raised() {
    let world = World::new();
    let lock = world.ours.lock("a").fence(Stopping(world.clock.clone()));
    let error = lock.try_acquire().await.expect_err("the lease is over");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(world.is_theirs_to_take("a").await);
}

/// Notes when it is dropped before its end.
#[derive(Debug, Default, Clone)]
struct Slow(Arc<AtomicBool>);

impl Fence for Slow {
    async fn raise(&self, _: &Key, _: FencingToken) -> Result<(), Error> {
        self.0.store(true, Ordering::SeqCst);
        std::future::pending().await
    }
}

#[tokio::test]
async fn an_acquire_that_is_dropped_while_the_fence_is_raised_leaves_the_lock_free() {
    let world = World::new();
    let slow = Slow::default();
    let lock = world.ours.lock("a").fence(slow.clone());
    let asking = tokio::spawn(async move { lock.try_acquire().await });
    while !slow.0.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    asking.abort();
    assert!(asking.await.expect_err("aborted").is_cancelled());
    world.ours.settled().await;
    assert!(world.is_theirs_to_take("a").await, "it is free again");
}

#[tokio::test]
async fn a_commit_through_a_gate_is_fenced_whatever_the_lease_says() {
    let world = World::new();
    let gate = FenceGate::new();
    let lock = world.ours.lock("a").fence(gate.clone());
    let guard = lock.acquire().await.expect("free");
    let executor = guard.executor();
    let commit = |gate: FenceGate| {
        executor.guarded(move |tx| {
            tx.commit_with(move |permit| gate.apply(&permit, || ()));
            Ok(())
        })
    };
    assert_eq!(
        commit(gate.clone()).expect("applied").proof,
        CommitProof::Fenced
    );
    let newer = FencingToken::new(guard.token().number() + 1).expect("a token");
    gate.raise_to(&key(), newer).expect("newer");
    let refused = commit(gate).expect_err("fenced");
    assert!(
        matches!(refused, RunError::Fenced { seen: Some(seen), .. } if seen == newer),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_commit_under_two_locks_is_fenced_by_a_newer_holder_of_either() {
    for taken in ["row/a", "row/b"] {
        let world = World::new();
        let (gate, value) = (FenceGate::new(), Arc::new(Mutex::new("none")));
        let both = world.ours.lock_all(["row/a", "row/b"]).fence(gate.clone());
        let guard = both.acquire().await.expect("free");
        let (ours_gate, written) = (gate.clone(), Arc::clone(&value));
        let (theirs, their_gate) = (world.theirs.clone(), gate.clone());
        let outcome = guard
            .executor()
            .guarded_async(async move |tx| {
                tx.commit_with(async move |permit| {
                    // We are stopped here, and another process takes one of the locks and commits.
                    let _ = theirs.revoke(taken, Revoke::Now).await?;
                    let lock = theirs.lock(taken).fence(their_gate.clone());
                    let their_guard = lock.acquire().await?;
                    let (key, token) = (their_guard.key().clone(), their_guard.token());
                    their_gate.admit(&key, token, || *written.lock() = "theirs")?;
                    ours_gate.apply(&permit, || *written.lock() = "ours")
                });
                Ok(())
            })
            .await;
        assert!(
            matches!(outcome, Err(RunError::Fenced { seen: Some(_), .. })),
            "{taken}: {outcome:?}"
        );
        assert_eq!(*value.lock(), "theirs");
    }
}

#[test]
fn a_resource_that_compares_one_token_refuses_a_run_under_several_locks() {
    let world = World::new();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let both = world.ours.lock_all(["a", "b"]);
    let guard = runtime.block_on(both.acquire()).expect("free");
    let outcome = guard.executor().guarded(|tx| {
        tx.commit_with(|permit| {
            assert_eq!(permit.locks().len(), 2);
            permit.single()?;
            Ok(())
        });
        Ok(())
    });
    assert!(
        matches!(outcome, Err(RunError::RolledBack { .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_refusal_that_is_converted_by_hand_keeps_its_meaning() {
    let seen = FencingToken::new(2).expect("a token");
    let error = Error::from(Refusal::Implausible { seen });
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    // A bare `?` on a refusal proves nothing to the executor, which is why the gate has `apply`.
    assert!(matches!(
        EffectError::from(Refusal::Fenced { seen }),
        EffectError::Unknown(_)
    ));
}

#[tokio::test]
async fn a_store_whose_tokens_may_go_back_can_have_no_fence() {
    let clock = ManualClock::new();
    let store = plain(MemoryStore::with_clock(clock.clone()));
    let locks = LockManager::builder(store)
        .clock(clock)
        .build()
        .expect("a manager");
    let refused = locks.lock("a").fence(FenceGate::new()).try_acquire().await;
    assert_eq!(
        refused.expect_err("no fence").kind(),
        ErrorKind::Unsupported
    );
    assert!(locks.held().is_empty());
}

/// The names of so many runs under these keys, one after the other, and the locks of each.
async fn runs<const N: usize>(keys: &[&str]) -> ([TxnId; N], Vec<HeldKey>) {
    let world = World::new();
    let guard = world.ours.lock_all(keys.iter().copied()).acquire().await;
    let guard = guard.expect("free");
    let mut locks = Vec::new();
    let names = [(); N].map(|()| {
        let named = guard.executor().guarded(|tx| {
            locks = tx.locks().to_vec();
            Ok(tx.txn_id()?)
        });
        named.expect("live").value
    });
    (names, locks)
}

#[tokio::test]
async fn a_commit_that_a_gate_admitted_is_resolved_as_applied_and_is_not_admitted_again() {
    let gate = FenceGate::new();
    let ([name], mut locks) = runs(&["a", "b"]).await;
    locks.reverse();
    assert_eq!(gate.admit_commit(&locks, name, || 7), Ok(7));
    let again = gate.admit_commit(&locks, name, || panic!("twice"));
    assert_eq!(again, Err(Refusal::Again));
    let doubt = Doubt::new(locks, name);
    for _ in 0..2 {
        let resolution = gate.resolve(&doubt).await;
        assert_eq!(resolution.expect("known"), Resolution::Applied);
    }
}

#[tokio::test]
async fn a_commit_that_arrives_at_a_gate_after_it_was_resolved_is_refused() {
    let gate = FenceGate::new();
    let ([name], locks) = runs(&["a", "b"]).await;
    let doubt = Doubt::new(locks.clone(), name);
    for _ in 0..2 {
        let resolution = gate.resolve(&doubt).await;
        assert_eq!(resolution.expect("known"), Resolution::NotApplied);
        let late = gate.admit_commit(&locks, name, || panic!("it is void"));
        assert_eq!(late, Err(Refusal::Void));
    }
}

#[tokio::test]
async fn a_service_that_did_not_answer_is_asked_through_its_gate() {
    let world = World::new();
    let gate = FenceGate::new();
    let lock = world.ours.lock("a").fence(gate.clone());
    let guard = lock.acquire().await.expect("free");
    for arrives in [true, false] {
        let service = gate.clone();
        let outcome = guard.executor().guarded(move |tx| {
            tx.commit_with(move |permit| {
                if arrives {
                    drop(service.apply(&permit, || ()));
                }
                Err::<(), _>(EffectError::unknown("no answer"))
            });
            Ok(())
        });
        let doubt = outcome.expect_err("in doubt").doubt().expect("in doubt");
        let resolution = gate.resolve(&doubt).await.expect("known");
        assert_eq!(resolution == Resolution::Applied, arrives);
    }
}

#[tokio::test]
async fn a_gate_claims_nothing_about_names_that_it_may_have_deleted() {
    let ([before], first) = runs(&["a"]).await;
    // Names are made in milliseconds.
    while runs::<1>(&["a"]).await.0[0].made_at() == before.made_at() {}
    let gate = FenceGate::new().keep_names(2);
    // A gate of the process before this one may have admitted it.
    let error = gate.resolve(&Doubt::new(first, before)).await;
    let error = error.expect_err("it is from before");
    assert!(error.to_string().contains("too old"), "{error}");
    let (mut names, locks) = runs::<3>(&["a"]).await;
    let resolve = async |name| gate.resolve(&Doubt::new(locks.clone(), name)).await;
    names.sort_unstable();
    for name in names {
        assert_eq!(gate.admit_commit(&locks, name, || ()), Ok(()));
    }
    let error = resolve(names[0]).await.expect_err("it was deleted");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("too old"), "{error}");
    let late = gate.admit_commit(&locks, names[0], || panic!("perhaps again"));
    assert_eq!(late, Err(Refusal::Forgotten));
    let newest = resolve(names[2]).await;
    assert_eq!(newest.expect("known"), Resolution::Applied);
}

#[tokio::test]
async fn a_commit_that_is_sent_again_after_its_name_was_deleted_is_in_doubt() {
    let world = World::new();
    let gate = FenceGate::new().keep_names(1);
    let guard = world.ours.lock("a").acquire().await.expect("free");
    let (executor, changes) = (guard.executor(), Mutex::new(0));
    let outcome = executor.guarded(|tx| {
        tx.commit_with(|permit| {
            drop(gate.apply(&permit, || *changes.lock() += 1));
            let newer = std::iter::repeat_with(|| executor.guarded(|tx| Ok(tx.txn_id()?)))
                .map(|named| named.expect("live").value)
                .find(|name| *name > permit.txn_id);
            let newer = gate.admit_commit(permit.locks(), newer.expect("later"), || ());
            assert_eq!(newer, Ok(()));
            gate.apply(&permit, || *changes.lock() += 1)
        });
        Ok(())
    });
    assert!(
        matches!(outcome, Err(RunError::InDoubt { .. })),
        "{outcome:?}"
    );
    assert_eq!(*changes.lock(), 1);
}

#[tokio::test]
async fn a_gate_admits_no_commit_without_all_locks_of_its_run() {
    let gate = FenceGate::new();
    let ([name], locks) = runs(&["a", "b"]).await;
    for some in [&locks[1..], &locks[..1], &[]] {
        let refused = gate.admit_commit(some, name, || panic!("a lock is missing"));
        assert_eq!(refused, Err(Refusal::OtherLocks));
    }
    let doubt = Doubt::new(locks, name);
    let resolution = gate.resolve(&doubt).await;
    assert_eq!(resolution.expect("known"), Resolution::NotApplied);
}

#[test]
fn a_gate_makes_no_change_under_no_lock() {
    let refused = FenceGate::new().admit_all(&[], || panic!("nothing was compared"));
    assert_eq!(refused, Err(Refusal::OtherLocks));
}

#[tokio::test]
async fn a_gate_resolves_no_doubt_without_all_locks_of_its_run() {
    let gate = FenceGate::new();
    let ([name], locks) = runs(&["a", "b"]).await;
    assert_eq!(gate.admit_commit(&locks, name, || 7), Ok(7));
    let mut other = locks.clone();
    other[0].token = FencingToken::new(other[0].token.number() + 1).expect("a token");
    for some in [&locks[1..], &locks[..1], &other, &[]] {
        let refused = gate.resolve(&Doubt::new(some.to_vec(), name)).await;
        let error = refused.expect_err("a lock is missing");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let resolution = gate.resolve(&Doubt::new(locks, name)).await;
    assert_eq!(resolution.expect("known"), Resolution::Applied);
}

#[tokio::test]
async fn a_change_that_panicked_is_neither_applied_nor_void() {
    let gate = FenceGate::new();
    let ([name], locks) = runs(&["a"]).await;
    let (service, theirs) = (gate.clone(), locks.clone());
    let panicked =
        std::thread::spawn(move || service.admit_commit(&theirs, name, || panic!("half way")));
    assert!(panicked.join().is_err());
    let error = gate.resolve(&Doubt::new(locks, name)).await;
    assert_eq!(error.expect_err("unknown").kind(), ErrorKind::Corrupt);
}

/// A run whose call keeps a copy of its permit and reports that nothing was applied.
fn keeps_its_permit(guard: &leasehold::LockGuard) -> leasehold::run::CommitPermit {
    let mut kept = None;
    let stopped = guard.executor().guarded(|tx| {
        tx.commit_with(|permit| {
            kept = Some(permit);
            Err::<(), _>(EffectError::not_applied("not today"))
        });
        Ok(())
    });
    assert!(
        matches!(stopped, Err(RunError::RolledBack { .. })),
        "{stopped:?}"
    );
    kept.expect("called")
}

#[tokio::test]
async fn a_permit_that_is_kept_after_its_run_admits_no_change() {
    let world = World::new();
    let gate = FenceGate::new();
    let lock = world.ours.lock("a").fence(gate.clone());
    let guard = lock.acquire().await.expect("free");
    let permit = keeps_its_permit(&guard);
    let mut is_changed = false;
    let refused = gate.apply(&permit, || is_changed = true);
    assert!(
        matches!(refused, Err(EffectError::Unknown(_))),
        "{refused:?}"
    );
    assert!(!is_changed);
}

#[tokio::test]
async fn a_run_whose_call_returned_before_its_gate_had_is_in_doubt() {
    let world = World::new();
    let gate = FenceGate::new();
    let lock = world.ours.lock("a").fence(gate.clone());
    let guard = lock.acquire().await.expect("free");
    let (began, begins) = std::sync::mpsc::channel();
    let (go, told) = std::sync::mpsc::channel();
    let stopped = guard.executor().guarded(move |tx| {
        tx.commit_with(move |permit| {
            std::thread::spawn(move || {
                let change = || {
                    began.send(()).expect("waited for");
                    told.recv().expect("told");
                };
                gate.apply(&permit, change).expect("admitted");
            });
            begins.recv().expect("begun");
            Err::<(), _>(EffectError::not_applied("not today"))
        });
        Ok(())
    });
    assert!(
        matches!(stopped, Err(RunError::InDoubt { .. })),
        "{stopped:?}"
    );
    go.send(()).expect("it waits");
}

/// A fence of another crate can't say whether it has sent its change.
#[tokio::test]
async fn a_run_whose_call_drops_its_fence_is_in_doubt() {
    let world = World::new();
    let guard = world.ours.lock("a").acquire().await.expect("free");
    let stopped = guard.guarded_async(async |tx| {
        tx.commit_with(|permit| async move {
            type Answer = Result<Result<Applied, Error>, EffectError>;
            let waits = std::future::pending::<Answer>();
            let mut sent = Box::pin(permit.used_for(waits));
            assert!(poll_once(&mut sent).await.is_pending());
            drop(sent);
            Err::<(), _>(EffectError::not_applied("given up"))
        });
        Ok(())
    });
    let stopped = stopped.await;
    assert!(
        matches!(stopped, Err(RunError::InDoubt { .. })),
        "{stopped:?}"
    );
}

#[tokio::test]
async fn a_run_that_reports_nothing_after_a_gate_has_applied_is_in_doubt() {
    let world = World::new();
    let (first, second) = (FenceGate::new(), FenceGate::new());
    let guard = world.ours.lock("a").acquire().await.expect("free");
    let newer = FencingToken::new(1 << 40).expect("a token");
    second.raise_to(&key(), newer).expect("the first");
    let stopped = guard.executor().guarded(move |tx| {
        tx.commit_with(move |permit| {
            first.apply(&permit, || ())?;
            second.apply(&permit, || ())
        });
        Ok(())
    });
    assert!(
        matches!(stopped, Err(RunError::InDoubt { .. })),
        "{stopped:?}"
    );
}

/// What the second use of its permit was refused says nothing of the first.
#[tokio::test]
async fn a_run_whose_fence_is_in_doubt_is_not_rolled_back_by_a_second_use() {
    type Answer = Result<Result<Applied, Error>, EffectError>;
    let refusals: [fn() -> EffectError; 2] = [
        || EffectError::not_applied("the resource was changed"),
        || EffectError::Fenced { seen: None },
    ];
    for refusal in refusals {
        let world = World::new();
        let guard = world.ours.lock("a").acquire().await.expect("free");
        let stopped = guard.guarded_async(async move |tx| {
            tx.commit_with(move |permit| async move {
                let lost = async { Answer::Err(EffectError::unknown("the answer is lost")) };
                let first = permit.used_for(lost).await;
                assert!(matches!(first, Err(EffectError::Unknown(_))));
                permit.used_for(async { Answer::Err(refusal()) }).await
            });
            Ok(())
        });
        let stopped = stopped.await;
        assert!(
            matches!(stopped, Err(RunError::InDoubt { .. })),
            "{stopped:?}"
        );
    }
}
