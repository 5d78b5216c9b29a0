//! What a gate admits, and in which order.

use super::*;

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn key() -> Key {
    Key::parse("a").unwrap()
}

#[test]
fn a_smaller_token_is_refused_once_a_larger_one_was_seen() {
    let gate = FenceGate::new();
    assert_eq!(gate.admit(&key(), token(5), || ()), Ok(()));
    let refused = gate.admit(&key(), token(4), || panic!("a refused change must not run"));
    assert_eq!(refused, Err(Refusal::Fenced { seen: token(5) }));
    assert_eq!(gate.admit(&key(), token(5), || ()), Ok(()));
    assert_eq!(gate.admit(&key(), token(6), || ()), Ok(()));
    assert!(gate.admit(&key(), token(5), || ()).is_err());
}

#[test]
fn a_raised_fence_locks_out_before_the_first_write() {
    let gate = FenceGate::new();
    gate.admit(&key(), token(1), || ()).unwrap();
    gate.raise_to(&key(), token(2)).unwrap();
    assert_eq!(
        gate.admit(&key(), token(1), || ()),
        Err(Refusal::Fenced { seen: token(2) })
    );
    assert_eq!(
        gate.raise_to(&key(), token(1)),
        Err(Refusal::Fenced { seen: token(2) })
    );
    assert_eq!(gate.largest(&key()), Some(token(2)));
}

#[test]
fn under_the_equal_policy_a_holder_has_to_be_announced() {
    let gate = FenceGate::with_policy(Policy::Equal);
    assert_eq!(
        gate.admit(&key(), token(1), || ()),
        Err(Refusal::NotRaised { raised: None })
    );
    gate.raise_to(&key(), token(2)).unwrap();
    assert_eq!(gate.admit(&key(), token(2), || ()), Ok(()));
    assert_eq!(
        gate.admit(&key(), token(3), || ()),
        Err(Refusal::NotRaised {
            raised: Some(token(2))
        })
    );
    assert_eq!(
        gate.admit(&key(), token(1), || ()),
        Err(Refusal::Fenced { seen: token(2) })
    );
}

#[test]
fn one_poisoned_token_does_not_lock_out_the_valid_ones() {
    for policy in [Policy::Monotone, Policy::Equal] {
        let gate = FenceGate::with_policy(policy);
        gate.raise_to(&key(), token(1_000)).unwrap();
        let poison = gate.raise_to(&key(), FencingToken::MAX);
        assert_eq!(poison, Err(Refusal::Implausible { seen: token(1_000) }));
        assert!(gate.admit(&key(), FencingToken::MAX, || ()).is_err());
        gate.raise_to(&key(), token(1_001)).unwrap();
        gate.raise_to(&key(), token(1_001 + FenceGate::MAX_JUMP))
            .unwrap();
    }
}

#[test]
fn keys_do_not_lock_out_each_other() {
    let gate = FenceGate::new();
    gate.raise_to(&key(), token(9)).unwrap();
    assert_eq!(
        gate.admit(&Key::parse("b").unwrap(), token(1), || ()),
        Ok(())
    );
}

#[test]
fn a_change_and_its_check_are_one_step() {
    // Whoever raises waits for the change that was admitted, and none is admitted afterwards.
    let gate = FenceGate::new();
    let changes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let (gate, changes) = (&gate, &changes);
        let raised = gate
            .admit(&key(), token(1), || {
                let raising = scope.spawn(move || {
                    gate.raise_to(&key(), token(2)).unwrap();
                    changes.lock().push("raised");
                });
                // A turn for the other thread: without the lock it would be through.
                for _ in 0..1_000 {
                    std::thread::yield_now();
                }
                changes.lock().push("changed");
                raising
            })
            .unwrap();
        raised.join().unwrap();
    });
    assert_eq!(*changes.lock(), ["changed", "raised"]);
}
