//! What `--edn` writes is EDN, as a reader that is not ours reads it, with the fields of Jepsen.

use std::collections::BTreeMap;

use edn_format::{Keyword, Value, parse_str};
use leasehold_judge::edn::edn;
use leasehold_judge::history::read;

const HISTORY: &str = r#"{"history":"one"}
{"time":5,"process":0,"type":"invoke","f":"acquire","key":"a \"key\"","value":null}
{"time":7,"process":0,"type":"ok","f":"acquire","key":"a \"key\"","value":{"hold":1,"token":2000001411,"owner":"0.1","handoff":false}}
{"time":8,"process":1,"type":"invoke","f":"read","key":"a \"key\"","value":null}
{"time":9,"process":1,"type":"ok","f":"read","key":"a \"key\"","value":["r1","s100.1"]}
{"time":10,"process":2,"type":"invoke","f":"release","key":"a \"key\"","value":{"hold":1,"how":"drop"}}
{"time":10,"process":2,"type":"info","f":"release","key":"a \"key\"","value":{"hold":1,"how":"drop"}}
"#;

fn keyword(name: &str) -> Value {
    Value::Keyword(Keyword::from_name(name))
}

fn fields(line: &str) -> BTreeMap<Value, Value> {
    match parse_str(line).expect("a reader of EDN reads it") {
        Value::Map(fields) => fields,
        other => panic!("{other:?} is no map"),
    }
}

#[test]
fn an_operation_is_a_map_with_the_fields_of_jepsen() {
    let histories = read(HISTORY).unwrap();
    let text = edn(&histories[0]);
    assert_eq!(text.lines().count(), histories[0].lines.len());
    for (index, line) in text.lines().enumerate() {
        let fields = fields(line);
        let wrote = &histories[0].lines[index];
        let number = |name: &str| fields[&keyword(name)].clone();
        assert_eq!(number("index"), Value::Integer(index as i64));
        assert_eq!(number("time"), Value::Integer(wrote.time as i64));
        assert_eq!(number("process"), Value::Integer(wrote.process as i64));
        assert_eq!(number("type"), keyword(wrote.kind.name()));
        assert_eq!(number("f"), keyword(&wrote.f));
        assert_eq!(number("key"), Value::String(wrote.key.clone()));
    }
}

#[test]
fn values_keep_their_kinds() {
    let histories = read(HISTORY).unwrap();
    let text = edn(&histories[0]);
    let lines: Vec<_> = text.lines().map(fields).collect();
    let value = |number: usize| lines[number][&keyword("value")].clone();
    assert_eq!(value(0), Value::Nil);
    let Value::Map(held) = value(1) else {
        panic!("an acquire returns a map")
    };
    assert_eq!(held[&keyword("token")], Value::Integer(2_000_001_411));
    assert_eq!(held[&keyword("handoff")], Value::Boolean(false));
    let ids = ["r1", "s100.1"].map(|id| Value::String(id.to_owned()));
    assert_eq!(value(3), Value::Vector(ids.to_vec()));
}
