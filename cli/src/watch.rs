//! `leasehold list --watch`: the locks of a store and whoever waits for them, again and again.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::store::LockInfo;
use leasehold::{Error, LockManager};
use serde_json::{Value, json};

use crate::args::ListArgs;
use crate::exit::{Failure, code, with_causes};
use crate::look::{name, scripts, table, waiter};
use crate::output::Output;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// Of how many locks the waiters are named: each costs a request.
const MOST_NAMED: usize = 20;
/// Clears the screen, and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Looks until a signal ends it, or nobody reads any more. A terminal shows the newest look;
/// elsewhere a look is written when it differs from the one before in more than its times.
pub(crate) async fn watch(
    locks: &LockManager,
    args: &ListArgs,
    output: Output,
) -> Result<u8, Failure> {
    let clock = Clock::system()?;
    let is_screen = io::stdout().is_terminal() && !output.json;
    let mut before = None;
    loop {
        let records = match look(locks, &args.prefix).await {
            Ok(records) => records,
            Err(error) if error.is_retryable() => {
                let why = with_causes(&error);
                output.event(&why, &json!({ "event": "look_failed", "why": why }));
                clock.sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let now = records.iter().map(lasting).collect::<Vec<_>>();
        if is_screen || before.as_ref() != Some(&now) {
            let text = if output.json {
                format!("{}\n", records.iter().map(record).collect::<Value>())
            } else {
                format!(
                    "{}{}\n\n",
                    if is_screen { CLEAR } else { "" },
                    people(&records)
                )
            };
            if !write(&text)? {
                return Ok(code::DONE);
            }
            before = Some(now);
        }
        clock.sleep(PAUSE).await;
    }
}

async fn look(locks: &LockManager, prefix: &str) -> Result<Vec<LockInfo>, Error> {
    let mut records = locks.list(prefix).await?;
    // The longest queues first.
    records.sort_by_key(|record| std::cmp::Reverse(record.queue));
    let waited_for = records.iter_mut().filter(|record| record.queue > Some(0));
    for record in waited_for.take(MOST_NAMED) {
        if let Some(now) = locks.inspect(record.key.clone()).await? {
            *record = now;
        }
    }
    Ok(records)
}

fn people(records: &[LockInfo]) -> String {
    let table = table(records);
    let mut rows = table.lines();
    let mut text = rows.next().unwrap_or_default().to_owned();
    for (row, record) in rows.zip(records) {
        text += &format!("\n{row}");
        for waiter in &record.waiters {
            text += &format!("\n  waits: {}", name(waiter.label.as_ref()));
        }
        let named = record.waiters.len();
        match record.queue {
            Some(all) if all > named => text += &format!("\n  {} more wait", all - named),
            _ => {}
        }
    }
    text
}

fn record(record: &LockInfo) -> Value {
    let mut shown = scripts(record);
    shown["waiters"] = record.waiters.iter().map(waiter).collect();
    shown
}

/// What does not change by itself.
fn lasting(record: &LockInfo) -> Value {
    let mut shown = self::record(record);
    for time in ["remaining_ms", "held_for_ms", "asked_ago_ms"] {
        shown[time] = Value::Null;
    }
    shown
}

/// False if nobody reads any more.
fn write(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(Failure::system("the answer could not be written", &why)),
    }
}
