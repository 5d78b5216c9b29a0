//! What two stamps show about the clocks between them.

use std::time::Duration;

use super::{ClockKind, Stamp};

/// Between two heartbeats the boot clock and the raw clock may differ by the drift bound and this
/// much.
const SLACK: Duration = Duration::from_millis(50);
/// A fast clock that is slower than this against both others is not used any more.
const FAST_PPM: u64 = 200;
/// Over a shorter span the reading error of the fast clock hides a slowness of [`FAST_PPM`].
const FAST_SPAN: Duration = Duration::from_millis(100);

/// The verdict on the clocks between two heartbeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a clock fault ends every lease"]
pub(crate) enum Audit {
    /// The clocks agree.
    Sound,
    /// The fast clock is slow, has stopped, or runs too fast: read the boot clock instead.
    DistrustFast,
    /// A clock went backwards, or the strict clocks disagree: no deadline can be trusted (I9).
    Fault,
}

impl Audit {
    /// Compares how far each clock moved from `earlier` to `later`, with clocks that may drift by
    /// `drift_ppm`.
    ///
    /// After a sleep of the machine the boot clock has moved and the raw clock has not, so they
    /// disagree. This counts as a fault on purpose: a lease whose holder slept for longer than the
    /// slack is ended.
    pub(crate) fn between(earlier: &Stamp, later: &Stamp, drift_ppm: u32) -> Self {
        if [ClockKind::Boot, ClockKind::Raw]
            .iter()
            .any(|&lane| later.on(lane) < earlier.on(lane))
        {
            return Self::Fault;
        }
        let passed = |lane| later.on(lane).saturating_sub(earlier.on(lane));
        let (fast, boot, raw) = (
            passed(ClockKind::Fast),
            passed(ClockKind::Boot),
            passed(ClockKind::Raw),
        );
        let (least, most) = (boot.min(raw), boot.max(raw));
        if most - least > allowance(most, drift_ppm) {
            return Self::Fault;
        }
        let backwards = later.on(ClockKind::Fast) < earlier.on(ClockKind::Fast);
        let slow =
            Duration::from_nanos(least) >= FAST_SPAN && fast < least - parts(least, FAST_PPM);
        let ran_away = fast > most.saturating_add(allowance(most, drift_ppm));
        if backwards || slow || ran_away {
            Self::DistrustFast
        } else {
            Self::Sound
        }
    }
}

fn allowance(span: u64, drift_ppm: u32) -> u64 {
    parts(span, u64::from(drift_ppm)).saturating_add(SLACK.as_nanos() as u64)
}

fn parts(span: u64, ppm: u64) -> u64 {
    (u128::from(span) * u128::from(ppm) / 1_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIFT: u32 = 83_334;
    const SECOND: u64 = 1_000_000_000;

    fn audit(passed: [i64; 3]) -> Audit {
        let zero = Stamp::from_nanos([1_000 * SECOND; 3]);
        let later = passed.map(|by| (1_000 * SECOND).checked_add_signed(by).unwrap());
        Audit::between(&zero, &Stamp::from_nanos(later), DRIFT)
    }

    #[test]
    fn clocks_that_agree_are_sound() {
        let s = SECOND as i64;
        assert_eq!(audit([s, s, s]), Audit::Sound);
        assert_eq!(audit([0, 0, 0]), Audit::Sound);
        assert_eq!(
            audit([s, s, s + s / 13]),
            Audit::Sound,
            "slewed within the drift bound"
        );
    }

    #[test]
    fn a_slow_or_standing_fast_lane_is_dropped() {
        let s = SECOND as i64;
        assert_eq!(audit([s - s / 4_900, s, s]), Audit::DistrustFast);
        assert_eq!(audit([s - s / 6_000, s, s]), Audit::Sound);
        assert_eq!(audit([0, s, s]), Audit::DistrustFast);
        assert_eq!(audit([-1, 0, 0]), Audit::DistrustFast);
        assert_eq!(audit([2 * s, s, s]), Audit::DistrustFast);
    }

    #[test]
    fn a_strict_lane_that_goes_backwards_is_a_fault() {
        assert_eq!(audit([0, -1, 0]), Audit::Fault);
        assert_eq!(audit([0, 0, -1]), Audit::Fault);
    }

    #[test]
    fn strict_lanes_that_disagree_are_a_fault() {
        let s = SECOND as i64;
        assert_eq!(audit([s, 2 * s, s]), Audit::Fault, "the machine slept");
        assert_eq!(audit([0, 60_000_000, 0]), Audit::Fault);
        assert_eq!(audit([0, 0, 49_000_000]), Audit::Sound);
    }
}
