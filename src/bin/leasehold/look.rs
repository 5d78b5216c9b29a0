//! `leasehold inspect` and `leasehold list`: the locks of a store.

use leasehold::store::LockInfo;
use serde_json::{Value, json};

use crate::args::{InspectArgs, ListArgs};
use crate::exit::{Failure, code};
use crate::output::{Output, millis, span};

pub(crate) async fn inspect(args: &InspectArgs, output: Output) -> Result<u8, Failure> {
    let locks = args.store.looker().await?;
    let record = locks.inspect(&args.key).await?;
    locks.shutdown().await;
    match record {
        Some(record) => {
            let [holder, token, remaining] = columns(&record);
            let mut people = format!(
                "key        {}\nholder     {holder}\ntoken      {token}\nremaining  {remaining}",
                record.key
            );
            if let Some(held_for) = record.held_for {
                people += &format!("\nheld for   {}", span(held_for));
            }
            if let Some(mode) = record.mode {
                people += &format!("\nmode       {mode}, held by {}", record.holders);
            }
            if let Some(queue) = record.queue {
                people += &format!("\nqueue      {queue}");
            }
            output.answer(people, &scripts(&record));
            Ok(code::DONE)
        }
        None => {
            let scripts = json!({ "key": args.key.as_str(), "is_held": false });
            output.answer(format!("{} is free", args.key), &scripts);
            Ok(code::NO)
        }
    }
}

pub(crate) async fn list(args: &ListArgs, output: Output) -> Result<u8, Failure> {
    let locks = args.store.looker().await?;
    let records = locks.list(&args.prefix).await?;
    locks.shutdown().await;
    let scripts = Value::Array(records.iter().map(scripts).collect());
    output.answer(table(&records), &scripts);
    Ok(code::DONE)
}

fn table(records: &[LockInfo]) -> String {
    let heading = ["KEY", "HOLDER", "TOKEN", "REMAINING"].map(str::to_owned);
    let rows: Vec<[String; 4]> = std::iter::once(heading)
        .chain(records.iter().map(|record| {
            let [holder, token, remaining] = columns(record);
            [record.key.to_string(), holder, token, remaining]
        }))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..3).map(|column| width(column).unwrap_or(0)).collect();
    let lines = rows.iter().map(|[key, holder, token, remaining]| {
        let [k, h, t] = [widths[0], widths[1], widths[2]];
        format!("{key:<k$}  {holder:<h$}  {token:<t$}  {remaining}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A dash for what the store does not report.
fn columns(record: &LockInfo) -> [String; 3] {
    let text = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        text(match record.is_resting {
            true => Some("(resting)".to_owned()),
            false => record.label.as_ref().map(ToString::to_string),
        }),
        text(record.token.map(|token| token.to_string())),
        text(record.remaining.map(span)),
    ]
}

fn scripts(record: &LockInfo) -> Value {
    json!({
        "key": record.key.as_str(),
        "is_held": record.holders > 0,
        "is_resting": record.is_resting,
        "holder": record.label.as_ref().map(|label| label.as_str()),
        "token": record.token.map(|token| token.number()),
        "remaining_ms": record.remaining.map(millis),
        "held_for_ms": record.held_for.map(millis),
        "mode": record.mode.map(|mode| mode.to_string()),
        "holders": record.holders,
        "queue": record.queue,
    })
}
