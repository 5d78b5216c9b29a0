//! The gate and the drain (I5).

use super::*;

#[test]
fn a_closed_hold_begins_no_run_and_stays_live() {
    let (lease, _hand) = lease();
    let clone = lease.register();
    lease.close();
    assert!(lease.is_closed() && lease.is_live());
    assert_eq!(clone.enter().err(), Some(LeaseError::Ending));
    lease.revoke(Ended::Released);
    assert_eq!(clone.enter().err(), Some(lost(Ended::Released)));
}

#[test]
fn a_hold_without_runs_is_drained_at_once() {
    let (lease, _hand) = lease();
    let _clone = lease.register();
    lease.close();
    assert_eq!(lease.drained().now_or_never(), Some(()));
}

#[test]
fn the_drain_waits_for_the_runs_of_every_clone() {
    let (lease, _hand) = lease();
    let (one, other) = (lease.register(), lease.register().clone());
    let runs = [one.enter().unwrap(), other.enter().unwrap()];
    lease.close();
    let mut drained = Box::pin(lease.drained());
    assert_eq!(drained.as_mut().now_or_never(), None);
    let [first, second] = runs;
    drop(second);
    assert_eq!(drained.as_mut().now_or_never(), None, "one run is left");
    drop(first);
    assert_eq!(drained.now_or_never(), Some(()));
}

#[test]
fn the_drain_waits_for_every_run_of_one_clone() {
    let (lease, _hand) = lease();
    let clone = lease.register();
    let (outer, inner) = (clone.enter().unwrap(), clone.enter().unwrap());
    lease.close();
    let mut drained = Box::pin(lease.drained());
    drop(inner);
    assert_eq!(drained.as_mut().now_or_never(), None);
    drop(outer);
    assert_eq!(drained.now_or_never(), Some(()));
}

#[test]
fn a_refused_run_does_not_hold_up_the_drain() {
    let (lease, _hand) = lease();
    let clone = lease.register();
    lease.close();
    assert!(clone.enter().is_err());
    assert_eq!(lease.drained().now_or_never(), Some(()));
}

#[test]
fn a_refused_run_does_not_count_as_in_progress() {
    let (lease, _hand) = lease();
    let clone = lease.register();
    let run = clone.enter().unwrap();
    lease.close();
    let (waker, woken) = counting_waker();
    let mut drained = Box::pin(lease.drained());
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(drained.as_mut().poll(&mut cx).is_pending());
    // A counted run wakes the drain when it leaves.
    for _ in 0..100 {
        assert!(clone.enter().is_err());
    }
    assert_eq!(woken.load(std::sync::atomic::Ordering::SeqCst), 0);
    drop(run);
    assert!(drained.as_mut().poll(&mut cx).is_ready());
}

/// A waker, and how often it was woken.
fn counting_waker() -> (
    std::task::Waker,
    std::sync::Arc<std::sync::atomic::AtomicUsize>,
) {
    struct Count(std::sync::Arc<std::sync::atomic::AtomicUsize>);
    impl std::task::Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let count = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
    let waker = std::sync::Arc::new(Count(std::sync::Arc::clone(&count))).into();
    (waker, count)
}

#[test]
fn a_clone_that_is_gone_is_not_waited_for() {
    let (lease, _hand) = lease();
    drop(lease.register());
    lease.close();
    assert_eq!(lease.drained().now_or_never(), Some(()));
}

#[test]
fn the_end_of_a_lease_does_not_drain_it() {
    let (lease, hand) = lease();
    let clone = lease.register();
    let run = clone.enter().unwrap();
    lease.close();
    hand.advance(TTL);
    assert!(!lease.is_live());
    assert_eq!(lease.drained().now_or_never(), None, "the run goes on");
    drop(run);
    assert_eq!(lease.drained().now_or_never(), Some(()));
}
