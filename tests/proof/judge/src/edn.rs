//! [`edn`]: a history as Jepsen writes it: one map a line. Knossos and Elle read such files.

use std::fmt::Write;

use serde_json::Value;

use crate::history::History;

/// Keys of maps and what an operation does are keywords; the rest stays what it is.
pub fn edn(history: &History) -> String {
    let mut text = String::new();
    for (index, line) in history.lines.iter().enumerate() {
        let _ = writeln!(
            text,
            "{{:index {index}, :time {}, :process {}, :type :{}, :f :{}, :key {}, :value {}}}",
            line.time,
            line.process,
            line.kind.name(),
            line.f,
            quoted(&line.key),
            value(&line.value),
        );
    }
    text
}

fn value(json: &Value) -> String {
    match json {
        Value::Null => "nil".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(value).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<_> = (fields.iter())
                .map(|(name, item)| format!(":{name} {}", value(item)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

/// EDN has the escapes of JSON that occur in names of keys.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
