//! A lease against a model of it, through anything that may happen to it, in any order.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use super::*;

/// What may happen to a lease, in any order.
#[derive(Clone, Copy, Debug)]
enum Event {
    Advance(u64),
    Jump(ClockKind, u64),
    StepBack(ClockKind, u64),
    Renew { sent_ago: u64, ttl: u64 },
    LookFast,
    LookStrict,
    DistrustFast,
    Revoke,
}

const MILLIS: std::ops::Range<u64> = 0..12_000;

fn any_lane() -> impl Strategy<Value = ClockKind> {
    prop::sample::select(ClockKind::ALL.to_vec())
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..5_000u64).prop_map(Event::Advance),
        1 => (any_lane(), MILLIS).prop_map(|(lane, by)| Event::Jump(lane, by)),
        1 => (any_lane(), 0..10_000u64).prop_map(|(lane, by)| Event::StepBack(lane, by)),
        6 => (0..3_000u64, MILLIS).prop_map(|(sent_ago, ttl)| Event::Renew { sent_ago, ttl }),
        4 => Just(Event::LookFast),
        4 => Just(Event::LookStrict),
        1 => Just(Event::DistrustFast),
        1 => Just(Event::Revoke),
    ]
}

/// A reading of every lane `ago` before now.
fn stamp_ago(clock: &Clock, ago: Duration) -> Stamp {
    let now = clock.stamp();
    let back = ago.as_nanos() as u64;
    Stamp::from_nanos(ClockKind::ALL.map(|lane| now.on(lane) - back))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    /// The lease against the latest deadline that any proof gave, whatever the clocks do.
    #[test]
    fn no_look_sees_a_lease_live_past_i1_or_after_its_end(
        events in prop::collection::vec(any_event(), 1..60),
    ) {
        let (lease, hand) = lease();
        let start = lease.clock().stamp();
        let mut latest = ClockKind::ALL.map(|lane| start.on(lane) + usable().as_nanos() as u64);
        let mut has_ended = false;
        for event in events {
            let look = match event {
                Event::Advance(by) => { hand.advance(Duration::from_millis(by)); continue }
                Event::Jump(lane, by) => { hand.advance_only(lane, Duration::from_millis(by)); continue }
                Event::StepBack(lane, by) => { hand.step_back(lane, Duration::from_millis(by)); continue }
                Event::DistrustFast => { lease.clock().distrust_fast(); continue }
                Event::Revoke => { lease.revoke(Ended::Gone); has_ended = true; continue }
                Event::Renew { sent_ago, ttl } => {
                    let sent_at = stamp_ago(lease.clock(), Duration::from_millis(sent_ago));
                    let ttl = Duration::from_millis(ttl);
                    let renewed = renew_from(&lease, &sent_at, ttl);
                    if renewed.is_ok() {
                        let usable = terms().usable(ttl).as_nanos() as u64;
                        for lane in ClockKind::ALL {
                            let word = &mut latest[lane as usize];
                            *word = (*word).max(sent_at.on(lane) + usable);
                        }
                    }
                    renewed.map(|()| None)
                }
                Event::LookFast => lease.look_fast().map(|left| Some((left, vec![lease.clock().fast()]))),
                Event::LookStrict => {
                    lease.look_strict().map(|left| Some((left, lease.clock().strict().to_vec())))
                }
            };
            match look {
                Ok(seen) => {
                    prop_assert!(!has_ended, "live after its end");
                    if let Some((left, readings)) = seen {
                        let i1 = readings
                            .iter()
                            .map(|r| latest[r.lane as usize].saturating_sub(r.nanos))
                            .min();
                        prop_assert_eq!(Some(left.as_nanos() as u64), i1);
                    }
                }
                Err(LeaseError::Lost(_)) => has_ended = true,
                Err(other) => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert!(!has_ended || !lease.is_live());
    }

    /// Without a renewal, what is left only shrinks while the clocks go forward.
    #[test]
    fn what_is_left_never_grows_without_a_renewal(
        steps in prop::collection::vec((0u64..2_000, prop::option::of(any_lane())), 1..40),
    ) {
        let (lease, hand) = lease();
        let mut left = lease.remaining();
        for (millis, lane) in steps {
            let by = Duration::from_millis(millis);
            lane.map_or_else(|| hand.advance(by), |lane| hand.advance_only(lane, by));
            let now_left = lease.remaining();
            prop_assert!(now_left <= left);
            left = now_left;
        }
    }
}
