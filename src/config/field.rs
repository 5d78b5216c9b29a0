//! The fields of a section: their names, their aliases, and how to read their values.

use toml::{Table, Value};

use super::entry::{Entry, Origin, Section, located};
use super::handlers;
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::Label;
use crate::settings::Settings;

/// Aliases that other frameworks use, the field of each, and its unit.
const OTHER_NAMES: &[(&str, &str, Option<&str>)] = &[
    ("address", "store", None),
    ("timeout_millis", "request_timeout", Some("ms")),
    ("own_second", "ttl", Some("s")),
    ("min_spin_millis", "retry_delay", Some("ms")),
    ("random_millis", "retry_jitter", Some("ms")),
];

/// Fields that are not settings.
const BESIDE: [&str; 2] = ["store", "label"];

/// Every field of [`Settings`]; a test holds the two together.
const SETTINGS: &[&str] = &[
    "ttl",
    "max_ttl",
    "margin",
    "server_drift_ppm",
    "renewals_per_ttl",
    "wait",
    "retry_delay",
    "retry_jitter",
    "max_poll_interval",
    "request_timeout",
    "max_hold",
    "commit_budget",
    "min_usable",
    "max_waiters",
    "handoff_count",
    "handoff_time",
    "lock_delay",
];

/// Adds a value to a section under its written name.
pub(super) fn add(section: &mut Section, name: &str, entry: Entry) -> Result<(), Error> {
    let (field, entry) = read(name, entry)?;
    section.insert(field, entry)
}

/// The field of a name, and the entry with its value in the field's own form.
fn read(name: &str, entry: Entry) -> Result<(&'static str, Entry), Error> {
    // Spring writes its properties with dashes.
    let plain = name.replace('-', "_");
    for (other, field, unit) in OTHER_NAMES {
        if *other == plain {
            return as_readable(field, in_unit(entry, *unit)?);
        }
    }
    let known = |fields: &[&'static str]| fields.iter().copied().find(|known| *known == name);
    match known(SETTINGS)
        .or_else(|| known(&BESIDE))
        .or_else(|| known(handlers::FIELDS))
    {
        Some(field) => as_readable(field, entry),
        None => {
            let message = format!(
                "unknown name; use {}, {}, {}",
                BESIDE.join(", "),
                SETTINGS.join(", "),
                handlers::FIELDS.join(", ")
            );
            Err(refused(&entry, message))
        }
    }
}

/// The entry of a field. A setting is read at once, to report it at its position; anything else is read later.
fn as_readable(field: &'static str, entry: Entry) -> Result<(&'static str, Entry), Error> {
    let entry = if SETTINGS.contains(&field) {
        checked(field, entry)?
    } else {
        entry
    };
    Ok((field, entry))
}

/// `10` of the unit seconds is `10s`.
fn in_unit(mut entry: Entry, unit: Option<&str>) -> Result<Entry, Error> {
    let Some(unit) = unit else {
        return Ok(entry);
    };
    let number = match &entry.value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    let Some(number) = number else {
        return Err(refused(&entry, "a whole number is needed here, such as 10"));
    };
    entry.value = Value::String(format!("{number}{unit}"));
    Ok(entry)
}

/// The entry, if the settings can read its value. In the environment every value is text, which may be a number.
fn checked(field: &str, mut entry: Entry) -> Result<Entry, Error> {
    let Err(why) = alone(field, &entry.value) else {
        return Ok(entry);
    };
    if let Some(number) = entry.value.as_str().and_then(|text| text.parse().ok()) {
        let number = Value::Integer(number);
        if alone(field, &number).is_ok() {
            entry.value = number;
            return Ok(entry);
        }
    }
    let mut why = why.message().replace('\n', " ");
    // The value may be a URL in the wrong place; its password must not appear in a log.
    if let Some(text) = entry.value.as_str().filter(|text| !text.is_empty()) {
        // As a message quotes it, and as it is.
        why = why
            .replace(&format!("{text:?}"), "\"...\"")
            .replace(text, "...");
    }
    let message = format!(
        "it cannot be read: {}; {}",
        why.trim(),
        needed(field, &entry)
    );
    Err(refused(&entry, message))
}

fn needed(field: &str, entry: &Entry) -> &'static str {
    let is_count = alone(field, &Value::Integer(1)).is_ok();
    match &entry.origin {
        _ if is_count => "use a whole number, such as 10",
        Origin::File(..) => "use a duration with its unit, in quotes: \"10s\" or \"200ms\"",
        Origin::Variable(_) => "use a duration with its unit: 10s or 200ms",
    }
}

fn alone(field: &str, value: &Value) -> Result<Settings, toml::de::Error> {
    let mut table = Table::new();
    table.insert(field.to_owned(), value.clone());
    table.try_into()
}

/// The settings of a section, validated as a whole.
pub(super) fn settings(section: &Section) -> Result<Settings, Error> {
    let settings = unchecked(section)?;
    validate(section, &settings)?;
    Ok(settings)
}

/// The settings of a section, which a URL may change.
pub(super) fn unchecked(section: &Section) -> Result<Settings, Error> {
    let mut table = Table::new();
    for (field, entry) in section.entries() {
        if SETTINGS.contains(&field) {
            table.insert(field.to_owned(), entry.value.clone());
        }
    }
    table
        .try_into()
        .map_err(|why: toml::de::Error| Error::invalid(why.message().to_owned()))
}

/// Reports the first setting that is out of range at its position.
pub(super) fn validate(section: &Section, settings: &Settings) -> Result<(), Error> {
    let Some(fault) = settings.fault() else {
        return Ok(());
    };
    // A field that nobody set is out of range if another field leaves it no room.
    let entry = section.get(fault.field).or_else(|| section.get("ttl"));
    // Or the store's URL set it.
    let entry = entry.or_else(|| section.get("store"));
    Err(match entry {
        Some(entry) => located(
            &entry.origin,
            &entry.written,
            ErrorKind::Invalid,
            &fault.message,
        ),
        None => Error::invalid(fault.message),
    })
}

pub(super) fn store(section: &Section) -> Result<String, Error> {
    match section.get("store") {
        Some(entry) => text(entry).map(str::to_owned),
        None => Err(Error::invalid(
            "store: no store is set; set store = \"redis://host:6379\", here or at the top",
        )),
    }
}

pub(super) fn label(section: &Section) -> Result<Option<Label>, Error> {
    let Some(entry) = section.get("label") else {
        return Ok(None);
    };
    Label::parse(text(entry)?)
        .map(Some)
        .map_err(|why| located(&entry.origin, &entry.written, ErrorKind::Invalid, why))
}

fn text(entry: &Entry) -> Result<&str, Error> {
    entry
        .value
        .as_str()
        .ok_or_else(|| refused(entry, "a text in quotes is needed here"))
}

fn refused(entry: &Entry, message: impl std::fmt::Display) -> Error {
    located(&entry.origin, &entry.written, ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_the_settings() {
        let table = Table::try_from(Settings::default()).unwrap();
        let mut known: Vec<&str> = SETTINGS.to_vec();
        known.retain(|field| *field != "max_hold"); // None is not written.
        known.sort_unstable();
        let mut fields: Vec<&str> = table.keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(known, fields);
        assert!(alone("max_hold", &Value::String("1m".to_owned())).is_ok());
    }
}
