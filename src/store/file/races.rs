//! What another process does between two calls of one step, and rules that only a strange moment
//! can break.

use std::fs::File;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use rustix::fs::{FlockOperation, Mode};

use super::directory::Directory;
use super::tests::{Temporary, claim, granted, is_busy};
use super::tokens::{Meta, Tokens};
use super::*;
use crate::clock::{Clock, ManualClock};
use crate::model::error::ErrorKind;
use crate::store::{Acquired, Asked, Claim, LockMode, Released, Renewed, Store, Wakes};

/// One attempt to hold a key. `meanwhile` gets how often the step has decided before.
fn attempt(store: &FileStore, claim: &Claim, meanwhile: impl Fn(usize) + Sync) -> Option<Acquired> {
    let inner = store.inner();
    let origin = inner.process.origin;
    let decided = AtomicUsize::new(0);
    let step = inner.attempt(&claim.key, &mut |line, now, token| {
        meanwhile(decided.fetch_add(1, Ordering::Relaxed));
        line.acquire(Asked { claim, origin, now }, token)
    });
    step.unwrap().map(|(acquired, _)| acquired)
}

#[tokio::test]
async fn a_file_that_another_process_made_meanwhile_is_not_replaced() {
    let directory = Temporary::new();
    let (slow, fast) = (directory.store(), directory.store());
    let theirs = claim("a");
    let ours = attempt(&slow, &claim("a"), |decided| {
        if decided == 0 {
            drop(granted(&fast, &theirs).now_or_never().unwrap());
        }
    });
    assert!(ours.is_none(), "{ours:?}");
    assert!(is_busy(&slow, "a").await);
    assert_eq!(directory.files().len(), 1, "an unfinished file stays");
}

#[tokio::test]
async fn a_file_is_locked_when_it_appears() {
    let directory = Temporary::new();
    let (first, second) = (directory.store(), directory.store());
    let ours = attempt(&first, &claim("a"), |decided| {
        let theirs = (decided == 1).then(|| attempt(&second, &claim("a"), |_| {}));
        assert!(!matches!(theirs, Some(Some(_))), "two steps at once");
    });
    assert!(matches!(ours, Some(Acquired::Granted(_))), "{ours:?}");
    assert!(is_busy(&second, "a").await);
}

/// The tokens of two holds in the same microsecond differ, although no hold is between them.
#[tokio::test]
async fn tokens_grow_while_the_clock_stands_still() {
    let directory = Temporary::new();
    let clock = Clock::from(ManualClock::new());
    let store = FileStore::open_with_clock(&directory.options(), clock).unwrap();
    let mut last = None;
    for _ in 0..4 {
        let grant = granted(&store, &claim("a")).await;
        assert!(Some(grant.token) > last, "{} after {last:?}", grant.token);
        last = Some(grant.token);
        assert!(matches!(store.release(&grant).await, Released::Released));
    }
}

#[tokio::test]
async fn a_process_whose_life_file_is_missing_counts_as_alive() {
    let directory = Temporary::new();
    let mut options = directory.options();
    options.on_death = OnDeath::Now;
    let (one, other) = (FileStore::open(&options).unwrap(), directory.store());
    let grant = granted(&one, &claim("a")).await;
    std::fs::remove_dir_all(directory.0.join("p")).unwrap();
    assert!(is_busy(&other, "a").await);
    let renewed = one.renew(std::slice::from_ref(&grant)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
}

/// A container may have a boot clock that differs from the machine's.
#[test]
fn another_time_namespace_is_refused() {
    let directory = Temporary::new();
    let store = directory.store();
    let root = || File::open(&directory.0).unwrap().into();
    let Directory { boot, .. } = store.inner().directory;
    let opened = |time_namespace: &str| {
        let meta = Meta {
            boot,
            time_namespace: time_namespace.to_owned(),
        };
        let place = (root(), directory.0.clone(), Mode::RUSR | Mode::WUSR);
        Tokens::open(place, &meta, |_| Ok(false), 0, 0).map(drop)
    };
    let ours = std::fs::read_link("/proc/self/ns/time").unwrap();
    assert!(opened(&ours.to_string_lossy()).is_ok());
    let refused = opened("time:[1]").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
}

/// A new file would begin with a mark of nothing, and a boot later tokens would go back.
#[tokio::test]
async fn a_file_of_tokens_that_was_deleted_in_use_is_not_made_again() {
    let directory = Temporary::new();
    let clock = ManualClock::new();
    let store = FileStore::open_with_clock(&directory.options(), Clock::from(clock.clone()));
    let store = store.unwrap();
    drop(granted(&store, &claim("a")).await);
    std::fs::remove_file(directory.0.join("leasehold")).unwrap();
    // The mark has to be moved, once an hour.
    clock.advance(Duration::from_secs(7200));
    let error = store.acquire(&claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

/// A process that is stopped within its step keeps the file of one key locked.
#[tokio::test]
async fn a_file_that_stays_locked_keeps_no_other_key_from_its_renewal() {
    let directory = Temporary::new();
    let clock = ManualClock::new();
    let open = || FileStore::open_with_clock(&directory.options(), Clock::from(clock.clone()));
    let (store, other) = (open().unwrap(), open().unwrap());
    let grants = [
        granted(&store, &claim("a")).await,
        granted(&store, &claim("b")).await,
    ];
    let of_a = directory
        .files()
        .into_iter()
        .find(|file| file.ends_with("a"));
    let stopped = File::open(of_a.unwrap()).unwrap();
    rustix::fs::flock(&stopped, FlockOperation::NonBlockingLockExclusive).unwrap();
    clock.advance(Duration::from_secs(1));
    let mut renewing = pin!(store.renew(&grants));
    assert!(futures_util::poll!(&mut renewing).is_pending());
    let info = other.inspect(&grants[1].claim.key).await.unwrap();
    assert_eq!(info.unwrap().remaining, Some(grants[1].claim.ttl));
    rustix::fs::flock(&stopped, FlockOperation::Unlock).unwrap();
    clock.advance(Duration::from_secs(1));
    let renewed = renewing.await;
    assert!(
        matches!(renewed[..], [Renewed::Extended(_), Renewed::Extended(_)]),
        "{renewed:?}"
    );
}

/// The first in line has to be polled to try again.
#[tokio::test]
async fn a_request_that_nobody_polls_keeps_none_of_its_process_waiting_for_long() {
    let directory = Temporary::new();
    let clock = ManualClock::new();
    let store = FileStore::open_with_clock(&directory.options(), Clock::from(clock.clone()));
    let store = store.unwrap();
    let held = granted(&store, &claim("a")).await;
    let stopped = File::open(directory.files().remove(0)).unwrap();
    rustix::fs::flock(&stopped, FlockOperation::NonBlockingLockExclusive).unwrap();
    let (first, second) = (claim("a"), claim("a"));
    let mut unpolled = pin!(store.acquire(&first));
    assert!(futures_util::poll!(&mut unpolled).is_pending());
    let mut behind = pin!(store.acquire(&second));
    assert!(futures_util::poll!(&mut behind).is_pending());
    rustix::fs::flock(&stopped, FlockOperation::Unlock).unwrap();
    // Whoever holds the key is not in line.
    assert!(matches!(store.release(&held).await, Released::Released));
    assert!(futures_util::poll!(&mut behind).is_pending());
    clock.advance(Duration::from_millis(100));
    assert!(matches!(behind.await, Ok(Acquired::Granted(_))));
}

/// With a limit on its time, as its caller may have, it would not try at all.
#[tokio::test]
async fn a_request_tries_at_once_although_nobody_polls_the_one_before_it() {
    let directory = Temporary::new();
    let clock = ManualClock::new();
    let store = FileStore::open_with_clock(&directory.options(), Clock::from(clock.clone()));
    let store = store.unwrap();
    let held = granted(&store, &claim("a")).await;
    let stopped = File::open(directory.files().remove(0)).unwrap();
    rustix::fs::flock(&stopped, FlockOperation::NonBlockingLockExclusive).unwrap();
    let (first, second) = (claim("a"), claim("a"));
    let mut unpolled = pin!(store.acquire(&first));
    assert!(futures_util::poll!(&mut unpolled).is_pending());
    rustix::fs::flock(&stopped, FlockOperation::Unlock).unwrap();
    assert!(matches!(store.release(&held).await, Released::Released));
    let behind = store.acquire(&second).now_or_never();
    assert!(
        matches!(behind, Some(Ok(Acquired::Granted(_)))),
        "{behind:?}"
    );
}

/// Also if it has to try again.
#[tokio::test]
async fn a_holder_waits_for_no_request_of_its_process() {
    let directory = Temporary::new();
    let clock = ManualClock::new();
    let store = FileStore::open_with_clock(&directory.options(), Clock::from(clock.clone()));
    let store = store.unwrap();
    let mut writer = claim("a");
    writer.mode = LockMode::Write;
    let held = granted(&store, &writer).await;
    let stopped = File::open(directory.files().remove(0)).unwrap();
    let lock = || rustix::fs::flock(&stopped, FlockOperation::NonBlockingLockExclusive).unwrap();
    let unlock = || rustix::fs::flock(&stopped, FlockOperation::Unlock).unwrap();
    lock();
    let next = claim("a");
    let mut unpolled = pin!(store.acquire(&next));
    assert!(futures_util::poll!(&mut unpolled).is_pending());
    let mut downgraded = pin!(store.downgrade(&held));
    assert!(futures_util::poll!(&mut downgraded).is_pending());
    unlock();
    clock.advance(Duration::from_millis(2));
    let downgraded = downgraded.now_or_never();
    assert!(matches!(downgraded, Some(Ok(_))), "{downgraded:?}");
    lock();
    let mut released = pin!(store.release(&held));
    assert!(futures_util::poll!(&mut released).is_pending());
    unlock();
    clock.advance(Duration::from_millis(2));
    let released = released.now_or_never();
    assert!(matches!(released, Some(Released::Released)), "{released:?}");
}

#[test]
fn a_request_of_the_same_process_is_not_taken_for_one_of_another() {
    let directory = Temporary::new();
    let mut options = directory.options();
    options.request_timeout = Duration::ZERO;
    let store = FileStore::open(&options).unwrap();
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap()
    };
    let held = runtime().block_on(granted(&store, &claim("a")));
    let key = &held.claim.key;
    let (may_end, ends) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (begins, has_begun) = std::sync::mpsc::channel();
        let inner = store.inner();
        scope.spawn(move || {
            let step = inner.attempt(key, &mut move |_, _, _| {
                begins.send(()).unwrap();
                ends.recv().unwrap();
                Ok(((), Wakes::default()))
            });
            assert!(step.unwrap().is_some());
        });
        has_begun.recv().unwrap();
        let other = scope.spawn(|| runtime().block_on(store.inspect(key)));
        // As long as it could try, and it may not give up.
        for _ in 0..50 {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        may_end.send(()).unwrap();
        let info = other.join().unwrap();
        assert!(info.unwrap().is_some(), "it is held");
    });
}

/// An empty message ends the thread that reads a socket. Its process lives and polls, so it may ask
/// before it is skipped.
#[tokio::test]
async fn a_waiter_without_a_socket_that_has_asked_keeps_what_it_holds() {
    let directory = Temporary::new();
    let (ours, theirs) = (directory.store(), directory.store());
    let held = granted(&ours, &claim("a")).await;
    let waits = claim("a");
    assert!(matches!(
        theirs.acquire(&waits).await,
        Ok(Acquired::Busy { .. })
    ));
    drop(theirs.subscribe(&waits).await.unwrap());
    let socket = directory
        .0
        .join("w")
        .join(process::name(theirs.inner().process.origin.process));
    let sender = std::os::unix::net::UnixDatagram::unbound().unwrap();
    sender.send_to(&[], &socket).unwrap();
    let closed = async {
        while sender.connect(&socket).is_ok() {
            tokio::task::yield_now().await;
        }
    };
    let clock = Clock::system().unwrap();
    let closed = clock.timeout(Duration::from_secs(60), closed).await;
    closed.expect("a closed socket");
    let inner = ours.inner();
    let released = inner.attempt(&held.claim.key, &mut |line, now, token| {
        Ok(line.release(&held.claim.owner, now, token))
    });
    let (_, wakes) = released.unwrap().unwrap();
    let theirs_now = granted(&theirs, &waits).await;
    inner.wake(&held.claim.key, wakes);
    assert!(is_busy(&ours, "a").await, "two hold it");
    let renewed = theirs.renew(std::slice::from_ref(&theirs_now)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
}
