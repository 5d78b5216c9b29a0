//! The fields of a section in one table, and how they are read.

use std::time::Duration;

use super::entry::{Entry, Origin, Section, located};
use super::handlers::{AccessLogTo, Handlers, at_once, built, rate, switch};
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::Label;
use crate::model::options::{Accepts, Field, Options};
use crate::settings::Settings;

/// What a section sets.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) store: Option<String>,
    pub(super) label: Option<Label>,
    pub(super) settings: Settings,
    pub(super) handlers: Handlers,
}

/// The aliases are those of the Redis starters of other frameworks.
#[rustfmt::skip]
const FIELDS: Options<Draft> = Options { of: "a manager", fields: &[
    text("store", |draft, url| { draft.store = Some(url.to_owned()); Ok(()) }).or(&[("address", "")]),
    text("label", |draft, label| { draft.label = Some(Label::parse(label)?); Ok(()) }),
    span("ttl", |draft, span| draft.settings.ttl = span).or(&[("own_second", "s")]),
    span("max_ttl", |draft, span| draft.settings.max_ttl = span),
    span("margin", |draft, span| draft.settings.margin = span),
    number("server_drift_ppm", |draft, ppm| draft.settings.server_drift_ppm = ppm),
    number("renewals_per_ttl", |draft, count| draft.settings.renewals_per_ttl = count),
    span("wait", |draft, span| draft.settings.wait = span),
    span("retry_delay", |draft, span| draft.settings.retry_delay = span).or(&[("min_spin_millis", "ms")]),
    span("retry_jitter", |draft, span| draft.settings.retry_jitter = span).or(&[("random_millis", "ms")]),
    span("max_poll_interval", |draft, span| draft.settings.max_poll_interval = span),
    span("request_timeout", |draft, span| draft.settings.request_timeout = span).or(&[("timeout_millis", "ms")]),
    span("max_hold", |draft, span| draft.settings.max_hold = Some(span)),
    span("commit_budget", |draft, span| draft.settings.commit_budget = span),
    span("min_usable", |draft, span| draft.settings.min_usable = span),
    number("max_waiters", |draft, count| draft.settings.max_waiters = count as usize),
    number("handoff_count", |draft, count| draft.settings.handoff_count = count),
    span("handoff_time", |draft, span| draft.settings.handoff_time = span),
    span("lock_delay", |draft, span| draft.settings.lock_delay = span),
    text("handlers.access_log", |draft, to| { draft.handlers.access_log = AccessLogTo::parse(to)?; Ok(()) }),
    text("handlers.metrics", |draft, text| { draft.handlers.metrics = switch(text)?; built(!draft.handlers.metrics || cfg!(feature = "metrics"), "metrics") }),
    text("handlers.rate_per_key", |draft, text| { draft.handlers.flow.built()?.per_key = Some(rate(text)?); Ok(()) }),
    text("handlers.rate_in_total", |draft, text| { draft.handlers.flow.built()?.in_total = Some(rate(text)?); Ok(()) }),
    text("handlers.at_once", |draft, text| { draft.handlers.flow.built()?.at_once = Some(at_once(text)?); Ok(()) }),
    text("handlers.waits", |draft, text| { draft.handlers.flow.built()?.waits = switch(text)?; Ok(()) }),
] };

/// [`validate`] has the range.
const fn span(name: &'static str, set: fn(&mut Draft, Duration)) -> Field<Draft> {
    let kind = Accepts::Span([Duration::ZERO, Duration::MAX], set);
    Field::new(name, "", kind, "")
}

const fn number(name: &'static str, set: fn(&mut Draft, u32)) -> Field<Draft> {
    Field::new(name, "", Accepts::Number(set), "")
}

const fn text(name: &'static str, set: fn(&mut Draft, &str) -> Result<(), Error>) -> Field<Draft> {
    Field::new(name, "", Accepts::Text("a text", set), "")
}

/// Adds a value to a section under its written name. It is read at once, to report it at its
/// position.
pub(super) fn add(section: &mut Section, name: &str, mut entry: Entry) -> Result<(), Error> {
    let (field, unit) = FIELDS.find(name).map_err(|why| refused(&entry, why))?;
    if !unit.is_empty() {
        // `10` of the unit seconds is `10s`.
        let number: Result<u64, _> = entry.value.trim().parse();
        let needed = "a whole number is needed here, such as 10";
        let number = number.map_err(|_| refused(&entry, needed))?;
        entry.value = format!("{number}{unit}");
    }
    set(field, &mut Draft::default(), &entry)?;
    section.insert(field.name, entry)
}

/// No message shows the value: it may be a URL in the wrong place.
fn set(field: &Field<Draft>, draft: &mut Draft, entry: &Entry) -> Result<(), Error> {
    field.set(draft, &entry.value).map_err(|error| {
        let mut why = error.to_string();
        if matches!(entry.origin, Origin::File(..)) {
            why = why.replace(": 10s or 200ms", ", in quotes: \"10s\" or \"200ms\"");
        }
        located(&entry.origin, &entry.written, error.kind(), why)
    })
}

/// What a section sets. Its settings are not validated, since a URL may change them.
pub(super) fn draft(section: &Section) -> Result<Draft, Error> {
    let mut draft = Draft::default();
    for (name, entry) in section.entries() {
        let (field, _) = FIELDS.find(name).map_err(|why| refused(entry, why))?;
        set(field, &mut draft, entry)?;
    }
    Ok(draft)
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
        Some(entry) => refused(entry, fault.message),
        None => Error::invalid(fault.message),
    })
}

fn refused(entry: &Entry, message: impl std::fmt::Display) -> Error {
    located(&entry.origin, &entry.written, ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_the_settings() {
        let table = toml::Table::try_from(Settings::default()).unwrap();
        let known = FIELDS.fields.iter().map(|field| field.name);
        let beside = ["store", "label", "max_hold"]; // `max_hold` of None is not written.
        let mut known: Vec<&str> = known
            .filter(|name| !beside.contains(name) && !name.starts_with("handlers."))
            .collect();
        known.sort_unstable();
        let mut fields: Vec<&str> = table.keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(known, fields);
    }

    #[test]
    fn the_docs_have_the_aliases_of_the_code() {
        let docs = include_str!("mod.rs");
        for field in FIELDS.fields {
            for (alias, unit) in field.aliases {
                let row = match *unit {
                    "" => format!("//! | `{alias}` | `{}` |", field.name),
                    unit => format!("//! | `{alias} = 10` | `{} = \"10{unit}\"` |", field.name),
                };
                assert!(docs.contains(&row), "{row}");
            }
        }
    }
}
