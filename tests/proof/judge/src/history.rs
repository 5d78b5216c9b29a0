//! [`History`]: the plain format. A line is a JSON object; one file may have several histories.
//!
//! ```text
//! {"history":"a name"}
//! {"time":12,"process":3,"type":"invoke","f":"acquire","key":"k","value":null}
//! {"time":15,"process":3,"type":"ok","f":"acquire","key":"k","value":{"hold":1,"token":7}}
//! ```
//!
//! `time` is in nanoseconds of one clock for all. `type` is `invoke`, then `ok`, `fail` or `info`,
//! as with Jepsen: `fail` did not happen, and `info` may have happened or may happen later. A
//! `process` does one thing at a time: it is a number for a caller, not for an operating system.
//! [`Action`](crate::spec::Action) lists what `f` and `value` may be.

use serde_json::Value;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    Invoke,
    Ok,
    Fail,
    Info,
}

impl Type {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Invoke, "invoke"),
        (Self::Ok, "ok"),
        (Self::Fail, "fail"),
        (Self::Info, "info"),
    ];

    pub fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(kind, _)| *kind == self);
        named.expect("all are listed").1
    }

    fn named(name: &str) -> Option<Self> {
        let named = Self::ALL.iter().find(|(_, known)| *known == name);
        named.map(|(kind, _)| *kind)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    pub time: u64,
    pub process: u64,
    pub kind: Type,
    pub f: String,
    pub key: String,
    pub value: Value,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct History {
    pub name: String,
    pub lines: Vec<Line>,
}

/// Reads all histories of a file.
///
/// # Errors
///
/// A line that is not of the format, with its number.
pub fn read(text: &str) -> Result<Vec<History>, String> {
    let mut all: Vec<History> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |what: &str| format!("line {}: {what}: {line}", number + 1);
        let value: Value = serde_json::from_str(line).map_err(|why| wrong(&why.to_string()))?;
        if let Some(name) = value["history"].as_str() {
            all.push(History {
                name: name.to_owned(),
                lines: Vec::new(),
            });
            continue;
        }
        if all.is_empty() {
            all.push(History::default());
        }
        let number = |name: &str| {
            let found = value[name].as_u64();
            found.ok_or_else(|| wrong(&format!("{name} is no number")))
        };
        let text = |name: &str| {
            let found = value[name].as_str().map(str::to_owned);
            found.ok_or_else(|| wrong(&format!("{name} is no text")))
        };
        let line = Line {
            time: number("time")?,
            process: number("process")?,
            kind: Type::named(&text("type")?).ok_or_else(|| wrong("no such type"))?,
            f: text("f")?,
            key: text("key")?,
            value: value["value"].clone(),
        };
        all.last_mut().expect("there is one").lines.push(line);
    }
    Ok(all)
}
