//! When a command whose lease runs out gets SIGTERM, and when SIGKILL. Pure: the time is an
//! argument.
//!
//! ```text
//!  lease renewed            no renewal any more
//!  ────┬───────────────────────┬────────── grace ─────────┬─ reserve ─┐
//!      remaining is plenty     SIGTERM                    SIGKILL     deadline
//! ```
//!
//! Between two renewals a healthy lease shrinks as well. So grace and reserve must fit into what is
//! then left.

use std::time::Duration;

use leasehold::LockManager;

use crate::exit::Failure;
use crate::output::span;

/// How long before the deadline SIGKILL is sent, so that the command has ended by then.
const RESERVE: Duration = Duration::from_millis(100);
const GRACE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Countdown {
    grace: Duration,
    reserve: Duration,
    /// What a healthy lease has left at any time.
    room: Duration,
}

/// The next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NextStep {
    /// Nothing, for this long.
    Wait(Duration),
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

impl Countdown {
    /// For the locks of a manager, whose settings have the ttl that the store allows.
    pub(super) fn of(locks: &LockManager, grace: Option<Duration>) -> Result<Self, Failure> {
        let settings = locks.settings();
        let usable = settings.usable_ttl(settings.ttl);
        Self::plan(usable, locks.capability().heartbeat, grace)
    }

    /// Fits the grace into a lease of which `usable` is left after a renewal. `heartbeat`: the
    /// store's own rhythm.
    pub(super) fn plan(
        usable: Duration,
        heartbeat: Option<Duration>,
        grace: Option<Duration>,
    ) -> Result<Self, Failure> {
        // A renewal every third of the ttl leaves more than half of the lease at any time. Where a
        // proof is older than its request (a session store), it may be little more than a quarter.
        let room = if heartbeat.is_some() {
            usable / 4
        } else {
            usable / 2
        };
        let reserve = RESERVE.min(usable / 10);
        let most = room - reserve;
        match grace {
            Some(grace) if grace > most => Err(Failure::usage(format!(
                "--kill-grace {} does not fit into the lease: its usable part is {}; use {} at most, or a longer --ttl",
                span(grace),
                span(usable),
                span(most)
            ))),
            grace => Ok(Self {
                grace: grace.unwrap_or(GRACE.min(most)),
                reserve,
                room,
            }),
        }
    }

    pub(super) fn grace(self) -> Duration {
        self.grace
    }

    /// Whether a command may be started when so much is left of the lease. With less than a healthy
    /// lease has left at any time, it could get its SIGTERM at once.
    pub(super) fn may_start(self, remaining: Duration) -> bool {
        remaining >= self.room
    }

    /// The next step for what is left of the lease and the time since SIGTERM.
    ///
    /// A command that got SIGTERM gets SIGKILL when its grace is over, even if the lease was
    /// renewed meanwhile.
    pub(super) fn step(self, remaining: Duration, warned_for: Option<Duration>) -> NextStep {
        let until_end = remaining.saturating_sub(self.reserve);
        let left = match warned_for {
            None => until_end.saturating_sub(self.grace),
            Some(warned_for) => until_end.min(self.grace.saturating_sub(warned_for)),
        };
        match warned_for {
            _ if until_end.is_zero() => NextStep::Kill,
            None if left.is_zero() => NextStep::Terminate,
            Some(_) if left.is_zero() => NextStep::Kill,
            _ => NextStep::Wait(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn countdown() -> Countdown {
        Countdown::plan(ms(9_000), None, Some(ms(2_000))).unwrap()
    }

    #[test]
    fn a_command_gets_sigterm_so_early_that_its_grace_ends_before_the_deadline() {
        let countdown = countdown();
        assert_eq!(countdown.step(ms(9_000), None), NextStep::Wait(ms(6_900)));
        assert_eq!(countdown.step(ms(2_101), None), NextStep::Wait(ms(1)));
        assert_eq!(countdown.step(ms(2_100), None), NextStep::Terminate);
        assert_eq!(
            countdown.step(ms(2_100), Some(ms(0))),
            NextStep::Wait(ms(2_000))
        );
        assert_eq!(
            countdown.step(ms(101), Some(ms(1_999))),
            NextStep::Wait(ms(1))
        );
        assert_eq!(countdown.step(ms(100), Some(ms(2_000))), NextStep::Kill);
    }

    #[test]
    fn a_command_is_not_started_under_a_lease_that_would_end_it_at_once() {
        let countdown = countdown();
        assert!(!countdown.may_start(ms(2_100)));
        assert!(!countdown.may_start(ms(4_499)));
        assert!(countdown.may_start(ms(4_500)));
    }

    #[test]
    fn a_lease_that_is_gone_at_once_leaves_no_grace() {
        assert_eq!(countdown().step(ms(0), None), NextStep::Kill);
        assert_eq!(countdown().step(ms(0), Some(ms(1))), NextStep::Kill);
        assert_eq!(countdown().step(ms(99), None), NextStep::Kill);
    }

    #[test]
    fn a_command_that_came_late_to_its_signal_has_what_is_left() {
        assert_eq!(
            countdown().step(ms(1_100), Some(ms(0))),
            NextStep::Wait(ms(1_000))
        );
    }

    #[test]
    fn a_command_that_got_sigterm_is_ended_though_the_lease_was_renewed_after_all() {
        assert_eq!(
            countdown().step(ms(9_000), Some(ms(500))),
            NextStep::Wait(ms(1_500))
        );
        assert_eq!(countdown().step(ms(9_000), Some(ms(2_000))), NextStep::Kill);
    }

    #[test]
    fn a_healthy_lease_never_ends_a_command() {
        for ttl in [1_000, 3_000, 10_000, 30_000] {
            let usable = ms(ttl * 91 / 100);
            let countdown = Countdown::plan(usable, None, None).unwrap();
            // A renewal that leaves after a third of the ttl and takes as long as it may.
            let left = usable - ms(ttl) / 3;
            assert!(
                matches!(countdown.step(left, None), NextStep::Wait(_)),
                "ttl={ttl}"
            );
        }
    }

    #[test]
    fn a_grace_that_does_not_fit_is_refused_with_what_does() {
        let refused = Countdown::plan(ms(2_000), None, Some(ms(2_000))).unwrap_err();
        assert_eq!(refused.code, crate::exit::code::USAGE);
        assert!(
            refused.message.contains("use 900ms at most"),
            "{}",
            refused.message
        );
        assert!(Countdown::plan(ms(8_000), Some(ms(1_000)), Some(ms(2_000))).is_err());
    }
}
