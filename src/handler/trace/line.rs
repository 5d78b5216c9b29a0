//! [`Line`]: one event of a trace as one line of JSON.

use std::io::Write;
use std::time::Duration;

use crate::model::key::Key;

/// What an event says beside its name.
pub(super) enum Value<'a> {
    Text(&'a str),
    Count(u64),
    Millis(Duration),
    Flag(bool),
}

/// A slice belongs to an id of its category; slices with one id nest.
#[derive(Clone, Copy)]
pub(super) struct Track {
    pub(super) category: &'static str,
    pub(super) id: u64,
}

pub(super) struct Line<'a> {
    /// What Chrome's format calls the phase: `b`, `e` and `n` begin, end and mark a slice, `C` counts, `i` marks the process.
    pub(super) phase: char,
    /// In nanoseconds of the boot clock.
    pub(super) at: u64,
    pub(super) name: &'a str,
    pub(super) track: Option<Track>,
}

impl Line<'_> {
    /// Appends the line. Every line but the last of a trace ends with a comma.
    pub(super) fn write(&self, process: u32, args: &[(&str, Value<'_>)], out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"name\":");
        text(self.name, out);
        let (micros, nanos) = (self.at / 1_000, self.at % 1_000);
        put(
            out,
            format_args!(
                ",\"ph\":\"{}\",\"ts\":{micros}.{nanos:03},\"pid\":{process},\"tid\":{process}",
                self.phase
            ),
        );
        if let Some(Track { category, id }) = self.track {
            put(
                out,
                format_args!(",\"cat\":\"{category}\",\"id2\":{{\"local\":\"{id:#x}\"}}"),
            );
        }
        if self.phase == 'i' {
            out.extend_from_slice(b",\"s\":\"p\"");
        }
        for (number, (name, value)) in args.iter().enumerate() {
            out.extend_from_slice(if number == 0 { b",\"args\":{" } else { b"," });
            text(name, out);
            out.push(b':');
            match value {
                Value::Text(value) => text(value, out),
                Value::Count(value) => put(out, format_args!("{value}")),
                Value::Millis(value) => put(out, format_args!("{:.3}", value.as_secs_f64() * 1e3)),
                Value::Flag(value) => put(out, format_args!("{value}")),
            }
        }
        if !args.is_empty() {
            out.push(b'}');
        }
        out.extend_from_slice(b"},\n");
    }
}

/// The name of the track of a key's runs or calls.
pub(super) fn track_of(key: &Key, what: &str) -> String {
    format!("{key} {what}")
}

/// A string of JSON.
fn text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for character in text.chars() {
        match character {
            '"' | '\\' => put(out, format_args!("\\{character}")),
            '\0'..='\u{1f}' => put(out, format_args!("\\u{:04x}", u32::from(character))),
            _ => put(out, format_args!("{character}")),
        }
    }
    out.push(b'"');
}

fn put(out: &mut Vec<u8>, what: std::fmt::Arguments<'_>) {
    // A vector takes everything.
    let _ = out.write_fmt(what);
}
