//! `leasehold inspect` and `leasehold list`: the locks of a store.

use std::time::Duration;

use leasehold::store::{Label, LockInfo, Waiter};
use serde_json::{Value, json};

use crate::args::{InspectArgs, ListArgs};
use crate::exit::{Failure, code};
use crate::output::{Output, millis, span};
use crate::watch::watch;

pub(crate) async fn inspect(args: &InspectArgs, output: Output) -> Result<u8, Failure> {
    let locks = args.store.looker().await?;
    let record = locks.inspect(&args.key).await?;
    locks.shutdown().await;
    match record {
        Some(record) => {
            let [holder, token, remaining, _] = columns(&record);
            let mut people = format!(
                "key        {}\nholder     {holder}\ntoken      {token}\nremaining  {remaining}",
                record.key
            );
            if let Some(held_for) = held_for(&record) {
                people += &format!("\nheld for   {held_for}");
            }
            if let Some(mode) = record.mode {
                people += &format!("\nmode       {mode}, held by {}", record.holders);
            }
            if let Some(queue) = record.queue {
                people += &format!("\nqueue      {queue}");
            }
            for waiter in &record.waiters {
                people += &format!("\nwaits      {}", name(waiter.label.as_ref()));
            }
            let mut scripts = scripts(&record);
            scripts["holder_names"] = record.labels.iter().map(Label::as_str).collect();
            scripts["waiters"] = record.waiters.iter().map(waiter).collect();
            output.answer(people, &scripts)?;
            Ok(code::DONE)
        }
        None => {
            let scripts = json!({ "key": args.key.as_str(), "is_held": false });
            output.answer(format!("{} is free", args.key), &scripts)?;
            Ok(code::NO)
        }
    }
}

pub(crate) async fn list(args: &ListArgs, output: Output) -> Result<u8, Failure> {
    let locks = args.store.looker().await?;
    if args.watch {
        return watch(&locks, args, output).await;
    }
    let records = locks.list(&args.prefix).await?;
    locks.shutdown().await;
    let scripts = Value::Array(records.iter().map(scripts).collect());
    output.answer(table(&records), &scripts)?;
    Ok(code::DONE)
}

pub(crate) fn table(records: &[LockInfo]) -> String {
    let heading = ["KEY", "HOLDER", "TOKEN", "REMAINING", "HELD FOR"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(heading)
        .chain(records.iter().map(|record| {
            let [holder, token, remaining, held_for] = columns(record);
            [record.key.to_string(), holder, token, remaining, held_for]
        }))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..4).map(|column| width(column).unwrap_or(0)).collect();
    let lines = rows
        .iter()
        .map(|[key, holder, token, remaining, held_for]| {
            let [k, h, t, r] = [widths[0], widths[1], widths[2], widths[3]];
            format!("{key:<k$}  {holder:<h$}  {token:<t$}  {remaining:<r$}  {held_for}")
        });
    lines.collect::<Vec<_>>().join("\n")
}

/// A dash for what the store does not report.
fn columns(record: &LockInfo) -> [String; 4] {
    let text = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        text(match record.is_resting {
            true => Some("(resting)".to_owned()),
            false => record.label.as_ref().map(ToString::to_string),
        }),
        text(record.token.map(|token| token.to_string())),
        text(record.remaining.map(span)),
        text(held_for(record)),
    ]
}

/// As exact as the store reports it.
fn held_for(record: &LockInfo) -> Option<String> {
    match (record.held_for, record.asked_ago) {
        (Some(time), _) if record.held_for_is_estimate => {
            let whole = Duration::from_secs_f64(time.as_secs_f64().round());
            Some(format!("about {}", span(whole)))
        }
        (Some(time), _) => Some(span(time)),
        (None, Some(ago)) => Some(format!("at most {} (since it asked)", span(ago))),
        (None, None) => None,
    }
}

pub(crate) fn name(label: Option<&Label>) -> String {
    label.map_or_else(|| "-".to_owned(), Label::to_string)
}

pub(crate) fn waiter(waiter: &Waiter) -> Value {
    json!({
        "holder": waiter.label.as_ref().map(Label::as_str),
        "purpose": waiter.label.as_ref().and_then(Label::purpose),
        "mode": waiter.mode.map(|mode| mode.to_string()),
    })
}

pub(crate) fn scripts(record: &LockInfo) -> Value {
    json!({
        "key": record.key.as_str(),
        "is_held": record.holders > 0,
        "is_resting": record.is_resting,
        "holder": record.label.as_ref().map(Label::as_str),
        "purpose": record.label.as_ref().and_then(Label::purpose),
        "token": record.token.map(|token| token.number()),
        "remaining_ms": record.remaining.map(millis),
        "held_for_ms": record.held_for.map(millis),
        "held_for_is_estimate": record.held_for_is_estimate,
        "asked_ago_ms": record.asked_ago.map(millis),
        "mode": record.mode.map(|mode| mode.to_string()),
        "holders": record.holders,
        "queue": record.queue,
    })
}
