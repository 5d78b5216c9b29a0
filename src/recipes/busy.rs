//! The error of a wait in vain: who holds the lock, for how long, and who waits.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::error::Error;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::store::{LockInfo, Share};

/// Of how many slots of a semaphore an error names the holder.
pub(super) const MOST_NAMED: usize = 4;

/// The lock of a key was not free. It does not give the length of the wait, because a handler may
/// have shortened it.
pub(super) fn busy(key: &Key, info: Option<&LockInfo>) -> Error {
    let error = Error::contended(format!(
        "the lock was not free within the wait: key={key}; {}",
        info.map_or_else(
            || "somebody else holds it; try later, or wait longer".to_owned(),
            holds
        )
    ));
    let rest = info
        .filter(|info| info.is_resting)
        .and_then(|info| info.remaining);
    let error = match rest {
        Some(rest) => error.retry_in(rest),
        None => error,
    };
    error.of_key(key)
}

/// None of a semaphore's slots was free. `held` is what the store reports of some of them.
pub(super) fn no_slot<'a>(slots: usize, held: impl Iterator<Item = &'a LockInfo>) -> Error {
    let labels: BTreeSet<String> = held
        .filter_map(|info| info.label.as_ref())
        .map(Label::to_string)
        .collect();
    let held = if labels.is_empty() {
        "others hold them".to_owned()
    } else {
        let labels = Vec::from_iter(labels).join(", ");
        let others = if slots > MOST_NAMED {
            " and perhaps others"
        } else {
            ""
        };
        format!("held by {labels}{others}")
    };
    Error::contended(format!(
        "no slot was free within the wait: slots={slots}; {held}; try later, or wait longer"
    ))
}

/// So many permits were not free.
pub(super) fn too_few(key: &Key, share: Share, info: Option<&LockInfo>) -> Error {
    let held = info.map_or_else(
        || "others hold them, or wait for them before".to_owned(),
        |info| {
            let (holders, waiting) = (info.holders, info.queue.unwrap_or_default());
            format!("holders={holders} waiting={waiting}")
        },
    );
    let Share { permits, of } = share;
    Error::contended(format!(
        "so many permits were not free within the wait: key={key} permits={permits} of={of}; {held}; try later, ask for fewer, or wait longer"
    ))
    .of_key(key)
}

fn holds(info: &LockInfo) -> String {
    if let (true, Some(rest)) = (info.is_resting, info.remaining) {
        let rest = seconds(rest);
        return format!("it rests for another {rest} after its release; try then");
    }
    let mut text = match (&info.label, info.holders) {
        (_, 0) => "it was revoked, and the old lease has not ended".to_owned(),
        (Some(label), _) => format!("held by {label}"),
        (None, _) => "somebody else holds it".to_owned(),
    };
    if let Some(held_for) = info.held_for {
        text += &match info.held_for_is_estimate {
            true => format!(" for about {:.0} s", held_for.as_secs_f64()),
            false => format!(" for {}", seconds(held_for)),
        };
    } else if let Some(asked_ago) = info.asked_ago {
        text += &format!(", which asked for it {} ago", seconds(asked_ago));
    }
    if let Some(remaining) = info.remaining {
        text += &format!(", {} left unless it is renewed", seconds(remaining));
    }
    match info.queue {
        None | Some(0) => {}
        Some(1) => text += ", 1 waits in the store's queue",
        Some(waiting) => text += &format!(", {waiting} wait in the store's queue"),
    }
    text + "; try later, or wait longer"
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}
