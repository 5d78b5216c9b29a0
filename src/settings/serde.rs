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

    use crate::Settings;

    #[test]
    fn durations_are_written_as_people_write_them() {
        let settings: Settings =
            serde_json::from_str(r#"{"ttl": "5s", "retry_delay": "200ms", "max_hold": "1m"}"#)
                .unwrap();
        assert_eq!(settings.ttl, Duration::from_secs(5));
        assert_eq!(settings.retry_delay, Duration::from_millis(200));
        assert_eq!(settings.max_hold, Some(Duration::from_secs(60)));
        let text = serde_json::to_string(&settings).unwrap();
        assert!(text.contains(r#""ttl":"5s""#), "{text}");
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
    }

    #[test]
    fn an_unknown_field_is_an_error_that_names_it() {
        let error = serde_json::from_str::<Settings>(r#"{"tll": "5s"}"#)
            .unwrap_err()
            .to_string();
        assert!(error.contains("tll"), "{error}");
        assert!(serde_json::from_str::<Settings>(r#"{"ttl": "soon"}"#).is_err());
        assert!(serde_json::from_str::<Settings>(r#"{"ttl": null}"#).is_err());
    }
}
