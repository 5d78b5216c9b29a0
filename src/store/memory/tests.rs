//! The memory store's own clauses, on the manual clock.

use super::*;
use crate::clock::ManualClock;
use crate::model::holder::{Label, OwnerToken};

const TTL: Duration = Duration::from_secs(10);

/// The memory store never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    use futures_util::FutureExt;
    future.now_or_never().unwrap()
}

fn claim(key: &str) -> Claim {
    let owner = OwnerToken::generate().unwrap();
    let label = Label::parse("test").unwrap();
    Claim::new(Key::parse(key).unwrap(), owner, label, TTL)
}

fn entries(store: &MemoryStore) -> usize {
    let state = store.state.lock();
    state.lines.len() + state.withdrawn.len() + state.waiting.len()
}

fn granted(store: &MemoryStore, claim: &Claim) -> Grant {
    match now(store.acquire(claim)).unwrap() {
        Acquired::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

#[test]
fn expired_entries_do_not_accumulate() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    for round in 0..10_000 {
        let lapsed = claim(&format!("lapsed/{round}"));
        let _ = granted(&store, &lapsed);
        drop(now(store.subscribe(&claim(&format!("waited/{round}")))).unwrap());
        now(store.withdraw(&claim("withdrawn"))).unwrap();
        clock.advance(TTL / 100);
    }
    let alive = 3 * 100;
    assert!(entries(&store) <= SWEEP_FLOOR.max(2 * alive));
}

#[test]
fn live_entries_survive_every_sweep() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock);
    let withdrawn = claim("withdrawn");
    now(store.withdraw(&withdrawn)).unwrap();
    let claims: Vec<_> = (0..5_000).map(|n| claim(&format!("key/{n}"))).collect();
    let grants: Vec<_> = claims.iter().map(|claim| granted(&store, claim)).collect();
    let renewed = now(store.renew(&grants));
    assert!(
        renewed
            .iter()
            .all(|renewed| matches!(renewed, Renewed::Extended(_)))
    );
    assert!(now(store.acquire(&withdrawn)).is_err());
}

#[test]
fn a_tombstone_lasts_for_one_ttl_at_least() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let withdrawn = claim("key");
    now(store.withdraw(&withdrawn)).unwrap();
    clock.advance(TTL - Duration::from_nanos(1));
    assert!(now(store.acquire(&withdrawn)).is_err());
}

#[test]
fn tokens_grow_after_the_store_forgot() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let mut last = granted(&store, &claim("key")).token;
    for _ in 0..100 {
        clock.advance(Duration::from_micros(1));
        store.forget();
        let token = granted(&store, &claim("key")).token;
        assert!(token > last, "{last} then {token}");
        last = token;
    }
}

#[test]
fn tokens_grow_while_the_clock_does_not_advance() {
    let store = MemoryStore::with_clock(ManualClock::new());
    let mut last = None;
    for _ in 0..100 {
        let grant = granted(&store, &claim("key"));
        let _ = now(store.release(&grant));
        assert!(Some(grant.token) > last);
        last = Some(grant.token);
    }
}

#[test]
fn a_clock_past_the_largest_token_grants_nothing() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    clock.advance(Duration::from_micros(FencingToken::MAX.number()));
    let error = now(store.acquire(&claim("key"))).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
    assert!(
        now(store.inspect(&Key::parse("key").unwrap()))
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_waiter_that_does_not_know_of_its_handover_keeps_its_turn_when_the_key_is_revoked() {
    for how in [Revoke::Now, Revoke::AfterTtl] {
        let store = MemoryStore::with_clock(ManualClock::new());
        let held = granted(&store, &claim("key"));
        let [first, second] = [(); 2].map(|()| claim("key"));
        for waiter in [&first, &second] {
            let asked = now(store.acquire(waiter)).unwrap();
            assert!(matches!(asked, Acquired::Busy { .. }), "{asked:?}");
        }
        let _ = now(store.release(&held));
        let revoked = now(store.revoke(&first.key, how)).unwrap();
        assert!(matches!(revoked, Revoked::NotHeld), "{revoked:?}");
        let asked = now(store.acquire(&second)).unwrap();
        assert!(matches!(asked, Acquired::Busy { .. }), "{asked:?}");
        assert!(granted(&store, &first).token > held.token);
    }
}
