//! Durations as people write them: `10s`, `200ms`.

macro_rules! as_text {
    ($(#[$doc:meta])* $name:ident: $type:ty, $write:expr, $read:expr) => {
        $(#[$doc])*
        pub(super) mod $name {
            use std::time::Duration;

            use ::serde::{Deserialize, Deserializer, Serialize, Serializer};

            pub(crate) fn serialize<S: Serializer>(span: &$type, to: S) -> Result<S::Ok, S::Error> {
                let write: fn(&$type) -> Option<String> = $write;
                write(span).serialize(to)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                let read: fn(Option<Duration>) -> Result<$type, &'static str> = $read;
                let text = Option::<String>::deserialize(from)?;
                let span = text
                    .map(|text| humantime::parse_duration(&text))
                    .transpose()
                    .map_err(::serde::de::Error::custom)?;
                read(span).map_err(::serde::de::Error::custom)
            }
        }
    };
}

as_text!(
    duration: Duration,
    |span| Some(humantime::format_duration(*span).to_string()),
    |span| span.ok_or("a duration such as 10s is needed here")
);

as_text!(
    optional_duration: Option<Duration>,
    |span| span.map(|span| humantime::format_duration(span).to_string()),
    Ok
);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::serde::Deserialize;
    use ::serde::de::value::{Error, MapDeserializer};

    use crate::Settings;

    #[test]
    fn durations_are_written_as_people_write_them() {
        let settings: Settings =
            toml::from_str("ttl = '5s'\nretry_delay = '200ms'\nmax_hold = '1m'").unwrap();
        assert_eq!(settings.ttl, Duration::from_secs(5));
        assert_eq!(settings.retry_delay, Duration::from_millis(200));
        assert_eq!(settings.max_hold, Some(Duration::from_secs(60)));
        let written = toml::Table::try_from(&settings).unwrap();
        assert_eq!(written["ttl"].as_str(), Some("5s"), "{written:?}");
        assert_eq!(written.try_into::<Settings>().unwrap(), settings);
    }

    #[test]
    fn an_unknown_field_is_an_error_that_names_it() {
        let error = toml::from_str::<Settings>("tll = '5s'")
            .unwrap_err()
            .to_string();
        assert!(error.contains("tll"), "{error}");
        assert!(toml::from_str::<Settings>("ttl = 'soon'").is_err());
        let none = MapDeserializer::<_, Error>::new([("ttl", ())].into_iter());
        assert!(Settings::deserialize(none).is_err());
    }
}
