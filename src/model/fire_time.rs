//! [`FireTime`]: when a schedule fires, to the second, as a part of a key.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::model::error::Error;

/// The first second of the year 10000, counted from 1970.
const END: u64 = 253_402_300_800;

/// A second of the years 1970 to 9999. Shown as in RFC 3339, in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FireTime(SystemTime);

impl FireTime {
    /// The second of an instant.
    ///
    /// # Errors
    ///
    /// `Invalid` outside of these years.
    pub(crate) fn of(instant: SystemTime) -> Result<Self, Error> {
        let since = instant.duration_since(UNIX_EPOCH).map(|d| d.as_secs());
        let second = since.ok().filter(|second| *second < END).ok_or_else(|| {
            Error::invalid(
                "a fire time is before 1970 or after 9999; pass the time for which the schedule planned the job",
            )
        })?;
        Ok(Self(UNIX_EPOCH + Duration::from_secs(second)))
    }
}

impl fmt::Display for FireTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_seconds(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::ErrorKind;

    fn shown(seconds: u64, nanos: u32) -> String {
        let instant = UNIX_EPOCH + Duration::new(seconds, nanos);
        FireTime::of(instant).unwrap().to_string()
    }

    #[test]
    fn an_instant_is_shown_as_its_second_in_utc() {
        assert_eq!(shown(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(shown(951_827_696, 999_999_999), "2000-02-29T12:34:56Z");
        assert_eq!(shown(1_795_662_000, 1), "2026-11-26T03:00:00Z");
        assert_eq!(shown(4_107_542_400, 0), "2100-03-01T00:00:00Z");
        assert_eq!(shown(END - 1, 999_999_999), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn what_has_no_year_of_four_digits_is_refused() {
        let first = UNIX_EPOCH - Duration::from_nanos(1);
        let last = UNIX_EPOCH + Duration::from_secs(END);
        for instant in [first, last] {
            let error = FireTime::of(instant).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }
}
