//! [`Fire`]: which fire time of which job, as `NAME@TIME`.

use std::time::SystemTime;

use leasehold::Key;

/// A job and one of its fire times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fire {
    pub(crate) name: Key,
    pub(crate) time: SystemTime,
}

impl Fire {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, time) =
            (text.rsplit_once('@')).ok_or("write NAME@TIME, as in nightly@2026-11-26T03:00Z")?;
        Ok(Self {
            name: Key::parse(name).map_err(|error| error.to_string())?,
            time: utc(time)?,
        })
    }
}

/// A time of RFC 3339 in UTC, to the hour, the minute or the second.
fn utc(text: &str) -> Result<SystemTime, String> {
    const FORM: &str = "write the time in UTC, to the hour, the minute or the second: 2026-11-26T03Z, 2026-11-26T03:00Z or 2026-11-26T03:00:00Z (date -u +%FT%H:%MZ)";
    let whole = match (text.strip_suffix('Z'), text.len()) {
        (Some(hour), 14) => format!("{hour}:00:00Z"),
        (Some(minute), 17) => format!("{minute}:00Z"),
        (Some(_), 20) => text.to_owned(),
        _ => return Err(FORM.to_owned()),
    };
    humantime::parse_rfc3339(&whole).map_err(|error| format!("{error}; {FORM}"))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_time_is_given_to_the_hour_the_minute_or_the_second() {
        let three = UNIX_EPOCH + Duration::from_secs(1_795_662_000);
        for time in [
            "2026-11-26T03Z",
            "2026-11-26T03:00Z",
            "2026-11-26T03:00:00Z",
        ] {
            let fire = Fire::parse(&format!("a/b@{time}")).unwrap();
            assert_eq!((fire.name.as_str(), fire.time), ("a/b", three));
        }
        let later = Fire::parse("n@2026-11-26T03:00:01Z").unwrap();
        assert_eq!(later.time, three + Duration::from_secs(1));
    }

    #[test]
    fn a_time_that_hosts_could_read_differently_is_refused() {
        for text in [
            "nightly",
            "nightly@",
            "@2026-11-26T03:00Z",
            "no key@2026-11-26T03:00Z",
            "n@2026-11-26",
            "n@2026-11-26T03:00",
            "n@2026-11-26T03:00+01:00",
            "n@2026-11-26T03:00:00.5Z",
            "n@2026-13-26T03:00Z",
            "n@2026-11-26T24:00Z",
            "n@1969-12-31T23:59Z",
            "n@2026-11-26T03:é0Z",
        ] {
            assert!(Fire::parse(text).is_err(), "{text}");
        }
    }
}
