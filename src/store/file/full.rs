//! A long queue: what each request costs, and that one claim more than it takes is refused at once.

use std::time::Duration;

use super::tests::{Temporary, claim, granted};
use super::{FileOptions, FileStore, OnDeath};
use crate::clock::{Clock, ManualClock};
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::store::{Acquired, Claim, LockMode, Released, Renewed, Store};

/// With the longest label, without and with the longest purpose.
fn reader(has_purpose: bool) -> Claim {
    let mut claim = claim("k");
    let longest = "l".repeat(Label::MAX_LEN);
    claim.label = Label::parse(&longest).unwrap();
    if has_purpose {
        claim.label = claim.label.with_purpose(&longest).unwrap();
    }
    claim.mode = LockMode::Read;
    claim
}

/// Readers that wait, until one is refused.
async fn fill(store: &FileStore, has_purpose: bool) -> (Vec<Claim>, Error) {
    let mut waiting = Vec::new();
    loop {
        let next = reader(has_purpose);
        match store.acquire(&next).await {
            Ok(Acquired::Busy { .. }) => waiting.push(next),
            Ok(other) => panic!("{other:?}"),
            Err(refused) => return (waiting, refused),
        }
    }
}

/// They hold together, and a holder takes more of the file than a place.
#[tokio::test]
async fn readers_that_fill_the_queue_all_enter_and_one_more_is_refused() {
    for (has_purpose, places) in [(false, 370), (true, 230)] {
        fills(has_purpose, places).await;
    }
}

async fn fills(has_purpose: bool, places: usize) {
    let directory = Temporary::new();
    // However slow the machine is, no place ends.
    let clock = Clock::from(ManualClock::new());
    let store = FileStore::open_with_clock(&directory.options(), clock).unwrap();
    let mut writer = claim("k");
    writer.mode = LockMode::Write;
    let held = granted(&store, &writer).await;
    let (waiting, refused) = fill(&store, has_purpose).await;
    assert!(waiting.len() >= places, "{} places", waiting.len());
    let renewed = store.renew(std::slice::from_ref(&held)).await;
    assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
    let again = store.acquire(&waiting[7]).await;
    assert!(matches!(again, Ok(Acquired::Busy { .. })), "{again:?}");
    let released = store.release(&held).await;
    assert!(matches!(released, Released::Released), "{released:?}");
    for reads in &waiting {
        let _ = granted(&store, reads).await;
    }
    // Its manager does not try again by itself: nobody could be served while all of a crowd do.
    assert_eq!(refused.kind(), ErrorKind::Contended, "{refused}");
    assert!(refused.is_retryable() && refused.retry_after().is_some());
    assert!(refused.to_string().contains("is full"), "{refused}");
}

/// How many bytes this thread has read and written.
fn transferred() -> [usize; 2] {
    let counts = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    ["rchar: ", "wchar: "].map(|name| {
        let count = counts.lines().find_map(|line| line.strip_prefix(name));
        count.unwrap().parse().unwrap()
    })
}

async fn queued(store: &FileStore, claim: &Claim) {
    let acquired = store.acquire(claim).await;
    assert!(
        matches!(acquired, Ok(Acquired::Busy { .. })),
        "{acquired:?}"
    );
}

async fn waiting(store: &FileStore, key: &Key) -> usize {
    let info = store.inspect(key).await.unwrap();
    info.unwrap().queue.unwrap()
}

#[tokio::test]
async fn a_long_queue_is_read_again_only_after_another_process_has_changed_it() {
    const CROWD: usize = 500;
    let directory = Temporary::new();
    let clock = Clock::from(ManualClock::new());
    let open = || FileStore::open_with_clock(&directory.options(), clock.clone()).unwrap();
    let (store, other) = (open(), open());
    let held = granted(&store, &claim("k")).await;
    for _ in 0..CROWD {
        queued(&store, &claim("k")).await;
    }
    let key = &held.claim.key;
    let [before, _] = transferred();
    assert_eq!(waiting(&store, key).await, CROWD);
    let [after, _] = transferred();
    assert!(after - before < 3 * 4096, "{} bytes", after - before);
    for more in 1..4 {
        queued(&other, &claim("k")).await;
        assert_eq!(waiting(&store, key).await, CROWD + more);
    }
    let released = store.release(&held).await;
    assert!(matches!(released, Released::Released), "{released:?}");
    let info = other.inspect(key).await.unwrap().unwrap();
    assert!(info.token > Some(held.token), "{info:?}");
}

/// The first that asks keeps the places of all, and the others find that nothing is to be done.
#[tokio::test]
async fn a_waiter_keeps_the_places_of_those_of_its_process_that_still_wait() {
    let directory = Temporary::new();
    let clock = ManualClock::new();
    let open = || FileStore::open_with_clock(&directory.options(), Clock::from(clock.clone()));
    let [store, other] = [open().unwrap(), open().unwrap()];
    let mut long = claim("k");
    long.ttl *= 100;
    let held = granted(&store, &long).await;
    let wait = async |store: &FileStore| {
        let claim = claim("k");
        queued(store, &claim).await;
        let hint = store.subscribe(&claim).await.unwrap();
        (claim, hint)
    };
    let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
    for _ in 0..15 {
        ours.push(wait(&store).await);
        theirs.push(wait(&other).await);
    }
    // One gives up, and nobody says so.
    drop(ours.remove(4));
    clock.advance(long.place_ttl / 2);
    queued(&store, &ours[0].0).await;
    let [_, before] = transferred();
    for (claim, _) in &ours {
        queued(&store, claim).await;
    }
    let [_, after] = transferred();
    assert_eq!(after, before, "bytes that were written");
    clock.advance(long.place_ttl * 4 / 5);
    assert_eq!(waiting(&store, &held.claim.key).await, ours.len());
}

/// The holder's renewals keep the places of its process.
#[tokio::test]
async fn a_waiter_that_nobody_polls_keeps_its_place_for_a_while_only() {
    let directory = Temporary::new();
    let clock = ManualClock::new();
    let open = || FileStore::open_with_clock(&directory.options(), Clock::from(clock.clone()));
    let [store, other] = [open().unwrap(), open().unwrap()];
    let held = granted(&store, &reader(false)).await;
    let mut writer = claim("k");
    writer.mode = LockMode::Write;
    queued(&store, &writer).await;
    let _unpolled = store.subscribe(&writer).await.unwrap();
    let mut enters = reader(false);
    // It asks only now and then, so nothing of its own ends the place.
    enters.place_ttl *= 100;
    let mut rounds = 0;
    loop {
        clock.advance(writer.place_ttl / 3);
        rounds += 1;
        let renewed = store.renew(std::slice::from_ref(&held)).await;
        assert!(matches!(renewed[..], [Renewed::Extended(_)]), "{renewed:?}");
        match other.acquire(&enters).await.unwrap() {
            Acquired::Granted(_) => break,
            _ => assert!(rounds < 6, "its place has no end"),
        }
    }
    assert!(rounds > 2, "its place ended early");
}

/// A step of each for itself would keep those that are called from asking.
#[tokio::test]
async fn one_waiter_of_a_process_checks_for_all_whether_the_holder_died() {
    let directory = Temporary::new();
    let mut options = directory.options();
    options.on_death = OnDeath::Now;
    let clock = ManualClock::new();
    let open = |options: &FileOptions| {
        FileStore::open_with_clock(options, Clock::from(clock.clone())).unwrap()
    };
    let (one, other) = (open(&options), open(&directory.options()));
    let _held = granted(&one, &claim("k")).await;
    let mut hints = Vec::new();
    for _ in 0..20 {
        let claim = claim("k");
        queued(&other, &claim).await;
        hints.push(Box::pin(other.subscribe(&claim).await.unwrap()));
    }
    for rounds in 0..4 {
        let [before, _] = transferred();
        for hint in &mut hints {
            assert!(futures_util::poll!(hint.as_mut()).is_pending());
        }
        let read = transferred()[0] - before;
        assert!(
            (1..4 * 4096).contains(&read),
            "round {rounds}: {read} bytes"
        );
        // Whoever checks may leave.
        drop(hints.remove(0));
        clock.advance(Duration::from_millis(20));
    }
}
