//! A record as the text of an object, and the text of an object as a record. Pure.

use std::time::Duration;

use crate::model::holder::{Label, OwnerToken};
use crate::store::{Record, State};

const FIRST_LINE: &str = "leasehold record 1";

/// The text of a record. A TTL is rounded up to whole milliseconds.
pub(super) fn written(record: &Record) -> String {
    let state = match record.state {
        State::Free => "free",
        State::Held => "held",
        State::Barred => "barred",
    };
    let ttl = record.ttl.as_nanos().div_ceil(1_000_000);
    let (token, beat) = (record.token, &record.beat);
    let mut text =
        format!("{FIRST_LINE}\nstate {state}\ntoken {token}\nttl_ms {ttl}\nbeat {beat}\n");
    if let Some(owner) = &record.owner {
        text += &format!("owner {}\n", owner.expose());
    }
    if let Some(label) = &record.label {
        text += &format!("label {}\n", label.record());
    }
    text
}

/// The record that a text is; `None` if it is none.
pub(super) fn read(text: &str) -> Option<Record> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    if lines.next()? != FIRST_LINE {
        return None;
    }
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let state = match field("state")? {
        "free" => State::Free,
        "held" => State::Held,
        "barred" => State::Barred,
        _ => return None,
    };
    let token = field("token")?.parse().ok()?;
    let ttl = Duration::from_millis(field("ttl_ms")?.parse().ok()?);
    let beat = field("beat")?.to_owned();
    let mut record = Record {
        state,
        owner: None,
        token,
        ttl,
        beat,
        label: None,
    };
    for line in lines {
        match line.split_once(' ')? {
            ("owner", digits) => record.owner = Some(OwnerToken::from_digits(digits)?),
            ("label", label) => record.label = Some(Label::from_record(label).ok()?),
            _ => return None,
        }
    }
    // A hold of ours has an owner, and nothing else has.
    ((record.state == State::Held) == record.owner.is_some()).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Record {
        let label = Label::parse("host a").unwrap();
        Record {
            state: State::Held,
            owner: Some(OwnerToken::from_bytes([1; 16])),
            token: 17,
            ttl: Duration::from_micros(1_500),
            beat: "b".repeat(32),
            label: Some(label.with_purpose("nightly backup").unwrap()),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_its_ttl_rounded_up() {
        let record = held();
        let rounded = Record {
            ttl: Duration::from_millis(2),
            ..record.clone()
        };
        assert_eq!(read(&written(&record)), Some(rounded));
        for state in [State::Free, State::Barred] {
            let record = Record {
                state,
                owner: None,
                label: None,
                ttl: Duration::from_secs(u64::from(state == State::Barred)),
                ..held()
            };
            assert_eq!(read(&written(&record)), Some(record));
        }
    }

    #[test]
    fn what_is_no_record_is_not_read_as_one() {
        let text = written(&held());
        for other in [
            String::new(),
            text.replace("record 1", "record 2"),
            text.replace("state held", "state lost"),
            text.replace("state held", "state free"),
            text.replace("token 17", "token -1"),
            text.replace("ttl_ms", "ttl"),
            text.replace("owner 01", "owner 0"),
            text.replace("owner", "owned"),
            text.replace("label host", "name host"),
            text.trim_end().to_owned(),
            format!("{text}more\n"),
        ] {
            assert_eq!(read(&other), None, "{other}");
        }
    }
}
