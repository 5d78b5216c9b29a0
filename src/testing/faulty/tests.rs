//! Each fault does what its name says and follows from the seed.

use std::time::Duration;

use futures_util::FutureExt;

use super::*;
use crate::clock::ManualClock;
use crate::model::error::ErrorKind;
use crate::model::holder::{Label, OwnerToken};
use crate::store::MemoryStore;

const SEED: u64 = 7;
const TTL: Duration = Duration::from_secs(10);

fn claim() -> Claim {
    let owner = OwnerToken::generate().unwrap();
    let label = Label::parse("test").unwrap();
    Claim::new(Key::parse("key").unwrap(), owner, label, TTL)
}

fn store() -> (ManualClock, MemoryStore, Faulty<MemoryStore>) {
    let clock = ManualClock::new();
    let memory = MemoryStore::with_clock(clock.clone());
    let hook = memory.clone();
    let faulty = Faulty::on_restart(memory.clone(), clock.clone(), SEED, move || hook.forget());
    (clock, memory, faulty)
}

fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().unwrap()
}

fn only(set: impl FnOnce(&mut Faults)) -> Faults {
    let mut faults = Faults::default();
    set(&mut faults);
    faults
}

fn held(memory: &MemoryStore) -> bool {
    now(memory.inspect(&Key::parse("key").unwrap()))
        .unwrap()
        .is_some()
}

fn in_doubt<T: std::fmt::Debug>(answer: Result<T, Error>) {
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::InDoubt);
}

#[test]
fn the_store_never_sees_a_request_that_is_lost_before() {
    let (_, memory, faulty) = store();
    faulty.set(only(|f| f.lost_before = 1.0)).unwrap();
    in_doubt(now(faulty.acquire(&claim())));
    assert!(!held(&memory));
    let counts = faulty.counts(Operation::Acquire);
    assert_eq!(
        (counts.asked, counts.delivered, counts.lost_before),
        (1, 0, 1)
    );
}

#[test]
fn the_store_executes_a_request_whose_answer_is_lost() {
    let (_, memory, faulty) = store();
    faulty.set(only(|f| f.lost_after = 1.0)).unwrap();
    in_doubt(now(faulty.acquire(&claim())));
    assert!(held(&memory));
    let counts = faulty.counts(Operation::Acquire);
    assert_eq!((counts.delivered, counts.lost_after), (1, 1));
}

#[test]
fn a_late_acquire_arrives_after_its_withdrawal_and_is_refused() {
    let (_, memory, faulty) = store();
    faulty.set(only(|f| f.late = 1.0)).unwrap();
    let late = claim();
    in_doubt(now(faulty.acquire(&late)));
    assert_eq!(faulty.counts(Operation::Acquire).delivered, 0);
    now(faulty.withdraw(&late)).unwrap();
    let counts = faulty.counts(Operation::Acquire);
    assert_eq!((counts.late, counts.delivered), (1, 1));
    assert!(!held(&memory), "the tombstone refused it");
}

#[test]
fn a_late_acquire_that_was_not_withdrawn_is_granted() {
    let (_, memory, faulty) = store();
    faulty.set(only(|f| f.late = 1.0)).unwrap();
    in_doubt(now(faulty.acquire(&claim())));
    now(faulty.deliver());
    assert!(held(&memory));
}

#[test]
fn a_duplicate_arrives_twice_and_is_answered_once() {
    let (_, _, faulty) = store();
    faulty.set(only(|f| f.duplicated = 1.0)).unwrap();
    let Acquired::Granted(grant) = now(faulty.acquire(&claim())).unwrap() else {
        panic!("the first delivery is granted");
    };
    assert!(matches!(now(faulty.release(&grant)), Released::Released));
    let counts = faulty.counts(Operation::Release);
    assert_eq!(
        (counts.asked, counts.delivered, counts.duplicated),
        (1, 2, 1)
    );
}

#[test]
fn a_delayed_request_arrives_when_the_clock_has_moved() {
    let (clock, memory, faulty) = store();
    let delay = Duration::from_secs(1);
    faulty
        .set(Faults {
            delayed: 1.0,
            delay,
            ..Faults::default()
        })
        .unwrap();
    let claim = claim();
    let mut acquire = std::pin::pin!(faulty.acquire(&claim));
    assert!(acquire.as_mut().now_or_never().is_none());
    assert!(!held(&memory));
    clock.advance(delay);
    assert!(matches!(now(acquire), Ok(Acquired::Granted(_))));
}

#[test]
fn a_restart_calls_the_hook() {
    let (_, memory, faulty) = store();
    let _ = now(faulty.acquire(&claim())).unwrap();
    assert!(held(&memory));
    faulty.restart().unwrap();
    assert!(!held(&memory));
    faulty.set(only(|f| f.restarted = 1.0)).unwrap();
    let _ = now(faulty.acquire(&claim())).unwrap();
    assert_eq!(faulty.restarts(), 2);
}

#[test]
fn a_store_without_a_hook_cannot_restart() {
    let clock = ManualClock::new();
    let faulty = Faulty::new(MemoryStore::with_clock(clock.clone()), clock, SEED);
    assert_eq!(faulty.restart().unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(faulty.set(only(|f| f.restarted = 0.1)).is_err());
    assert!(faulty.set(only(|f| f.lost_after = 1.1)).is_err());
    assert!(faulty.set(only(|f| f.late = f64::NAN)).is_err());
}

#[test]
fn a_blocked_renewal_proves_nothing_and_other_requests_pass() {
    let (clock, memory, faulty) = store();
    let Acquired::Granted(grant) = now(faulty.acquire(&claim())).unwrap() else {
        panic!("free");
    };
    faulty.block(Operation::Renew);
    assert!(matches!(
        now(faulty.renew(std::slice::from_ref(&grant)))[..],
        [Renewed::Unknown(_)]
    ));
    faulty.unblock(Operation::Renew);
    assert!(matches!(
        now(faulty.renew(std::slice::from_ref(&grant)))[..],
        [Renewed::Extended(_)]
    ));
    faulty.block(Operation::Renew);
    clock.advance(TTL);
    assert!(!held(&memory));
}

#[test]
fn a_stalled_request_is_executed_after_the_stall() {
    let (_, memory, faulty) = store();
    faulty.stall(Operation::Acquire);
    let claim = claim();
    let mut acquire = std::pin::pin!(faulty.acquire(&claim));
    assert!(acquire.as_mut().now_or_never().is_none());
    assert!(!held(&memory));
    faulty.unblock(Operation::Acquire);
    assert!(matches!(now(acquire), Ok(Acquired::Granted(_))));
    assert_eq!(faulty.counts(Operation::Acquire).stalled, 1);
}

#[test]
fn the_same_seed_brings_the_same_faults() {
    let trace = |seed| {
        let clock = ManualClock::new();
        let faulty = Faulty::new(MemoryStore::with_clock(clock.clone()), clock, seed);
        faulty.set(Faults::each(0.3, Duration::ZERO)).unwrap();
        let claim = claim();
        (0..64)
            .map(|_| now(faulty.acquire(&claim)).is_ok())
            .collect::<Vec<_>>()
    };
    assert_eq!(trace(SEED), trace(SEED));
    assert_ne!(trace(SEED), trace(SEED + 1));
}
