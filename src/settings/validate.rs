//! The ranges of the settings, and how each depends on the others.

use std::fmt;
use std::time::Duration;

use super::Settings;
use crate::model::error::Error;

/// Below this the delays of the scheduler are as long as the pauses between heartbeats.
const MIN_TTL: Duration = Duration::from_millis(100);
/// The least part of a TTL that a lease has to use: below it the first renewal comes after the end.
const MIN_RENEWABLE: Duration = Duration::from_millis(10);
const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A field that is out of range, and what is allowed.
#[derive(Debug)]
pub(crate) struct Fault {
    #[cfg_attr(
        not(feature = "config"),
        allow(dead_code, reason = "only files have lines to name")
    )]
    pub(crate) field: &'static str,
    pub(crate) message: String,
}

impl Settings {
    /// Checks every field against its range and against the others.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), naming the first field that is out of
    /// range, its value and what is allowed.
    pub fn validate(&self) -> Result<(), Error> {
        self.check().map_err(|fault| Error::invalid(fault.message))
    }

    /// The first field that is out of range.
    #[cfg(feature = "config")]
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.check().err()
    }

    fn check(&self) -> Result<(), Fault> {
        within("max_ttl", self.max_ttl, MIN_TTL, DAY)?;
        up_to("ttl", self.ttl, MIN_TTL, ("max_ttl", self.max_ttl))?;
        up_to(
            "lock_delay",
            self.lock_delay,
            Duration::ZERO,
            ("max_ttl - ttl", self.max_ttl.saturating_sub(self.ttl)),
        )?;
        within("server_drift_ppm", self.server_drift_ppm, 0, 500_000)?;
        within("renewals_per_ttl", self.renewals_per_ttl, 2, 20)?;

        let without_margin = super::Terms {
            margin: Duration::ZERO,
            ..self.terms()
        }
        .usable(self.ttl);
        let usable = self.terms().usable(self.ttl);
        let most = without_margin.saturating_sub(MIN_RENEWABLE);
        below("margin", self.margin, most)?;
        below("commit_budget", self.commit_budget, usable)?;
        within("min_usable", self.min_usable, self.commit_budget, usable)?;
        below("min_usable", self.min_usable, usable)?;

        within("wait", self.wait, Duration::ZERO, DAY)?;
        within(
            "max_poll_interval",
            self.max_poll_interval,
            MILLISECOND,
            MINUTE,
        )?;
        up_to(
            "retry_delay",
            self.retry_delay,
            MILLISECOND,
            ("max_poll_interval", self.max_poll_interval),
        )?;
        up_to(
            "retry_jitter",
            self.retry_jitter,
            Duration::ZERO,
            ("max_poll_interval", self.max_poll_interval),
        )?;
        up_to(
            "request_timeout",
            self.request_timeout,
            MILLISECOND,
            ("max_ttl", self.max_ttl),
        )?;
        if let Some(max_hold) = self.max_hold {
            at_least("max_hold", max_hold, "ttl", self.ttl)?;
        }
        within("max_waiters", self.max_waiters, 1, 10_000_000)?;
        within("handoff_time", self.handoff_time, Duration::ZERO, MINUTE)
    }
}

fn within<T: PartialOrd + fmt::Debug>(
    field: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), Fault> {
    let is_within = value >= least && value <= most;
    require(
        is_within,
        field,
        value,
        format_args!("from {least:?} to {most:?}"),
    )
}

/// As `within`, where the upper end is another setting.
fn up_to(
    field: &'static str,
    value: Duration,
    least: Duration,
    (other, most): (&'static str, Duration),
) -> Result<(), Fault> {
    let is_within = value >= least && value <= most;
    let allowed = format_args!("from {least:?} to {other}={most:?}");
    require(is_within, field, value, allowed)
}

fn at_least(
    field: &'static str,
    value: Duration,
    other: &'static str,
    least: Duration,
) -> Result<(), Fault> {
    let allowed = format_args!("to {other}={least:?} or more");
    require(value >= least, field, value, allowed)
}

fn require(
    is_allowed: bool,
    field: &'static str,
    value: impl fmt::Debug,
    allowed: fmt::Arguments<'_>,
) -> Result<(), Fault> {
    if is_allowed {
        return Ok(());
    }
    Err(Fault {
        field,
        message: format!("setting {field}={value:?} is out of range; set it {allowed}"),
    })
}

fn below(field: &'static str, value: Duration, limit: Duration) -> Result<(), Fault> {
    if value < limit {
        return Ok(());
    }
    Err(Fault {
        field,
        message: format!(
            "setting {field}={value:?} leaves too little of the ttl to use; set it below {limit:?}, or set a longer ttl"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.validate().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_valid() {
        Settings::default().validate().unwrap();
    }

    #[test]
    fn a_refusal_names_field_value_and_range() {
        assert_eq!(
            refusal(|s| s.ttl = Duration::ZERO),
            "invalid: setting ttl=0ns is out of range; set it from 100ms to max_ttl=30s"
        );
        assert!(refusal(|s| s.ttl = Duration::from_millis(99)).contains("ttl=99ms"));
        assert!(refusal(|s| s.ttl = Duration::from_secs(31)).contains("to max_ttl=30s"));
        assert_eq!(
            refusal(|s| s.max_hold = Some(Duration::from_secs(1))),
            "invalid: setting max_hold=1s is out of range; set it to ttl=10s or more"
        );
        assert!(
            refusal(|s| s.lock_delay = Duration::from_secs(21)).contains("to max_ttl - ttl=20s")
        );
        assert!(refusal(|s| s.max_waiters = 0).contains("max_waiters=0"));
        assert!(refusal(|s| s.renewals_per_ttl = 1).contains("renewals_per_ttl=1"));
    }

    #[test]
    fn a_margin_above_the_ttl_is_refused() {
        let message = refusal(|s| s.margin = Duration::from_secs(11));
        assert!(
            message.contains("margin=11s leaves too little of the ttl"),
            "{message}"
        );
        assert!(refusal(|s| s.margin = Duration::MAX).contains("margin="));
    }

    #[test]
    fn a_ttl_that_no_renewal_fits_into_is_refused() {
        let usable_of = |margin| Settings {
            ttl: Duration::from_millis(100),
            margin: Duration::from_millis(margin),
            commit_budget: Duration::ZERO,
            min_usable: Duration::ZERO,
            ..Settings::default()
        };
        assert!(usable_of(81).validate().is_ok());
        for margin in [83, 90, 92] {
            let settings = usable_of(margin);
            assert!(!settings.usable_ttl(settings.ttl).is_zero() || margin > 91);
            let refused = settings.validate().unwrap_err().to_string();
            assert!(
                refused.contains("leaves too little of the ttl"),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_must_be_left_fits_into_what_is_usable() {
        assert!(
            refusal(|s| s.commit_budget = Duration::from_secs(10)).contains("commit_budget=10s")
        );
        assert!(refusal(|s| s.min_usable = Duration::from_millis(1)).contains("min_usable=1ms"));
        assert!(refusal(|s| s.min_usable = Duration::from_secs(10)).contains("min_usable=10s"));
    }
}
