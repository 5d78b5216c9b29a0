//! The arithmetic of I1 against exact numbers: `deadline = sent_at + granted_ttl * (1 - 500 ppm) /
//! (1 + server_drift) - granularity - margin`, never later, for every TTL, margin, drift and clock
//! that can be written down.
//!
//! Everything is compared as products of whole numbers in 128 bits: no division, so no rounding on
//! this side.

use std::time::Duration;

use super::super::deadline::{GRANULARITY, LOCAL_DRIFT_PPM, Terms};
use crate::clock::{Audit, Clock, ClockKind, ManualClock, Stamp};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const MILLION: u128 = 1_000_000;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 2_000,
        // The seed of a failure is printed and kept beside this file.
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

/// Durations of every size, and the edges.
fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => (0u32..=64, any::<u64>()).prop_map(|(bits, n)| {
            Duration::from_nanos(n.checked_shr(bits).unwrap_or(0))
        }),
        2 => (1u64..60_000).prop_map(Duration::from_millis),
        1 => (any::<u64>(), 0u32..1_000_000_000).prop_map(|(s, n)| Duration::new(s, n)),
        1 => Just(Duration::ZERO),
        1 => Just(Duration::MAX),
    ]
}

/// Drifts as settings allow them, and those that they do not.
fn any_drift() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..=500_000, 1 => any::<u32>(), 1 => Just(0), 1 => Just(u32::MAX)]
}

fn any_terms() -> impl Strategy<Value = Terms> {
    (any_drift(), any_span()).prop_map(|(server_drift_ppm, margin)| Terms {
        server_drift_ppm,
        margin,
    })
}

/// Terms under which something is left of most TTLs.
fn usual_terms() -> impl Strategy<Value = Terms> {
    (0u32..=500_000, 0u64..50).prop_map(|(server_drift_ppm, margin)| Terms {
        server_drift_ppm,
        margin: Duration::from_millis(margin),
    })
}

fn kept() -> u128 {
    MILLION - u128::from(LOCAL_DRIFT_PPM)
}

fn whole(terms: &Terms) -> u128 {
    MILLION + u128::from(terms.server_drift_ppm)
}

/// What is given up besides the drifts.
fn taken(terms: &Terms) -> u128 {
    GRANULARITY.as_nanos() + terms.margin.as_nanos()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_usable_is_never_more_than_i1_allows(terms in any_terms(), ttl in any_span()) {
        let usable = terms.usable(ttl).as_nanos();
        if usable > 0 {
            prop_assert!((usable + taken(&terms)) * whole(&terms) <= ttl.as_nanos() * kept());
        }
    }

    #[test]
    fn what_is_usable_is_i1_to_the_nanosecond(terms in usual_terms(), ttl in any_span()) {
        let usable = terms.usable(ttl).as_nanos();
        if usable < u128::from(u64::MAX) {
            prop_assert!((usable + taken(&terms) + 1) * whole(&terms) > ttl.as_nanos() * kept());
        }
    }

    #[test]
    fn a_longer_ttl_never_leaves_less(terms in any_terms(), ttl in any_span(), more in any_span()) {
        let longer = ttl.saturating_add(more);
        prop_assert!(terms.usable(longer) >= terms.usable(ttl));
    }

    #[test]
    fn a_wider_margin_or_drift_never_leaves_more(
        terms in any_terms(), ttl in any_span(), margin in any_span(), drift in any_drift(),
    ) {
        let stricter = Terms {
            server_drift_ppm: terms.server_drift_ppm.saturating_add(drift),
            margin: terms.margin.saturating_add(margin),
        };
        prop_assert!(stricter.usable(ttl) <= terms.usable(ttl));
    }

    /// The reason for I1: however the two clocks run within their bounds, the store still counts
    /// when we have stopped.
    #[test]
    fn the_lease_ends_before_the_store_frees_the_lock(
        terms in usual_terms(),
        ttl in (0u64..60_000_000).prop_map(Duration::from_micros),
        local_slow in 0..=LOCAL_DRIFT_PPM,
        server_part in 0u128..=1_000,
    ) {
        let usable = terms.usable(ttl).as_nanos();
        prop_assume!(usable > 0);
        let server_fast = u128::from(terms.server_drift_ppm) * server_part / 1_000;
        // True time until our clock has shown `usable`, and what the store's clock shows by then.
        let store_shows = (usable + taken(&terms)) * (MILLION + server_fast);
        let store_frees_at = ttl.as_nanos() * (MILLION - u128::from(local_slow));
        prop_assert!(store_shows <= store_frees_at);
    }

    #[test]
    fn a_stamp_never_wraps(nanos in any::<[u64; 3]>(), span in any_span()) {
        let earlier = Stamp::from_nanos(nanos);
        let later = earlier.plus(span);
        for lane in ClockKind::ALL {
            let exact = u128::from(earlier.on(lane)) + span.as_nanos();
            prop_assert_eq!(u128::from(later.on(lane)), exact.min(u128::from(u64::MAX)));
        }
        prop_assert!(later.since(&earlier) <= span);
        if span > Duration::ZERO {
            prop_assert_eq!(earlier.since(&later), Duration::ZERO);
        }
    }

    #[test]
    fn a_strict_clock_that_goes_backwards_is_always_a_fault(
        nanos in any::<[u64; 3]>(), later in any::<[u64; 3]>(), drift in any_drift(),
    ) {
        let backwards = later[1] < nanos[1] || later[2] < nanos[2];
        let audit = Audit::between(&Stamp::from_nanos(nanos), &Stamp::from_nanos(later), drift);
        if backwards {
            prop_assert_eq!(audit, Audit::Fault);
        }
    }

    /// Strict lanes that a sound audit has passed differ by no more than the drift and the slack.
    #[test]
    fn a_sound_audit_bounds_how_far_the_clocks_are_apart(
        start in any::<[u32; 3]>(), boot in 0u64..100_000_000_000, raw in 0u64..100_000_000_000,
        fast in 0u64..200_000_000_000, drift in 0u32..=500_000,
    ) {
        let start = start.map(u64::from);
        let later = [start[0] + fast, start[1] + boot, start[2] + raw];
        let audit = Audit::between(&Stamp::from_nanos(start), &Stamp::from_nanos(later), drift);
        let (most, least) = (u128::from(boot.max(raw)), u128::from(boot.min(raw)));
        let slack = Duration::from_millis(50).as_nanos();
        let apart = (most - least) * MILLION > most * u128::from(drift) + slack * MILLION;
        prop_assert_eq!(audit == Audit::Fault, apart);
        let hundred_ms = Duration::from_millis(100).as_nanos();
        if least >= hundred_ms && (u128::from(fast) + 1) * MILLION < least * (MILLION - 200) {
            prop_assert_ne!(audit, Audit::Sound, "a slow fast lane was trusted");
        }
    }
}

#[test]
fn nothing_is_usable_of_a_ttl_of_zero() {
    for margin in [Duration::ZERO, Duration::from_millis(10), Duration::MAX] {
        for server_drift_ppm in [0, 83_334, u32::MAX] {
            let terms = Terms {
                server_drift_ppm,
                margin,
            };
            assert_eq!(terms.usable(Duration::ZERO), Duration::ZERO, "{terms:?}");
        }
    }
}

#[test]
fn of_the_usual_ttl_about_nine_tenths_are_usable() {
    let terms = Terms {
        server_drift_ppm: 83_334,
        margin: Duration::from_millis(10),
    };
    // 10 s * 0.9995 / 1.083334 = 9.226148168... s, less 11 ms.
    assert_eq!(
        terms.usable(Duration::from_secs(10)),
        Duration::from_nanos(9_226_148_168) - Duration::from_millis(11)
    );
}

#[test]
fn the_longest_ttl_saturates_to_an_earlier_end() {
    let terms = Terms {
        server_drift_ppm: 0,
        margin: Duration::ZERO,
    };
    assert_eq!(terms.usable(Duration::MAX), Duration::from_nanos(u64::MAX));
    let stamp = Stamp::from_nanos([u64::MAX - 1; 3]).plus(terms.usable(Duration::MAX));
    assert_eq!(ClockKind::ALL.map(|lane| stamp.on(lane)), [u64::MAX; 3]);
}

#[test]
fn a_manual_clock_moves_only_the_named_lanes() {
    let hand = ManualClock::new();
    let clock = Clock::from(hand.clone());
    let start = clock.stamp();
    hand.advance_only(ClockKind::Boot, Duration::from_secs(3));
    hand.step_back(ClockKind::Raw, Duration::from_secs(1));
    let moved = clock.stamp();
    assert_eq!(moved.on(ClockKind::Fast), start.on(ClockKind::Fast));
    assert_eq!(
        moved.on(ClockKind::Boot),
        start.on(ClockKind::Boot) + 3_000_000_000
    );
    assert_eq!(
        moved.on(ClockKind::Raw),
        start.on(ClockKind::Raw) - 1_000_000_000
    );
    assert_eq!(Audit::between(&start, &moved, 0), Audit::Fault);
}
