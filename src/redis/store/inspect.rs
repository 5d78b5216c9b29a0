//! Reading who holds: one lock, some of one slot, or all that a server has.

use ::redis::Value;
use futures_util::future::join_all;

use super::client::RedisClient;
use super::connection::Connection;
use super::fault::unexpected_reply;
use super::reply;
use super::script::{Call, INSPECT};
use crate::model::error::{Error, ErrorKind};
use crate::model::key::Key;
use crate::store::LockInfo;

/// How many names one step of a listing reads.
const LIST_BATCH: usize = 500;

/// `keys`: all of one slot where there are slots. `names_all`: every holder and waiter is named, up
/// to the bounds.
pub(super) async fn inspect(
    client: &RedisClient,
    keys: &[Key],
    names_all: bool,
) -> Result<Vec<Result<Option<LockInfo>, Error>>, Error> {
    let Some(first) = keys.first() else {
        return Ok(Vec::new());
    };
    let names = &client.options().names;
    let all = keys.iter().map(|key| names.lock(key));
    let [labels, waiters] = match names_all {
        true => [LockInfo::MAX_LABELS, LockInfo::MAX_WAITERS].map(|most| most as u128),
        false => [0, 0],
    };
    let call = Call::new(all).number(labels).number(waiters);
    let answer = client.run(first, &INSPECT, &call).await;
    match answer.map_err(|failure| unanswered(failure.into_error("inspect")))? {
        Value::Array(answers) if answers.len() == keys.len() => Ok(keys
            .iter()
            .zip(&answers)
            .map(|(key, answer)| reply::inspected(key, answer))
            .collect()),
        _ => Err(unexpected_reply("inspect")),
    }
}

/// The records of what is held, and how many keys this user may not read. A server refuses a script
/// for one such key among many.
async fn inspect_allowed(
    client: &RedisClient,
    keys: &[Key],
) -> Result<(Vec<LockInfo>, usize), Error> {
    match inspect(client, keys, false).await {
        Ok(found) => return Ok((found.into_iter().flatten().flatten().collect(), 0)),
        Err(error) if error.kind() == ErrorKind::Denied => {}
        Err(error) => return Err(error),
    }
    let (mut records, mut hidden) = (Vec::new(), 0);
    for key in keys {
        match inspect(client, std::slice::from_ref(key), false).await {
            Ok(found) => records.extend(found.into_iter().flatten().flatten()),
            Err(error) if error.kind() == ErrorKind::Denied => hidden += 1,
            Err(error) => return Err(error),
        }
    }
    Ok((records, hidden))
}

/// The records of the locks that are in one server.
pub(super) async fn list_at(
    client: &RedisClient,
    connection: &Connection,
    prefix: &str,
) -> Result<Vec<LockInfo>, Error> {
    let names = &client.options().names;
    let mut records = Vec::new();
    let mut hidden = 0;
    let mut cursor = String::from("0");
    loop {
        let mut scan = ::redis::cmd("SCAN");
        scan.arg(&cursor)
            .arg("MATCH")
            .arg(format!("{}*", names.prefix()))
            .arg("COUNT")
            .arg(LIST_BATCH);
        let page = connection
            .ask(&scan)
            .await
            .map_err(|failure| unanswered(failure.into_error("list")))?;
        let (next, found): (String, Vec<Vec<u8>>) =
            ::redis::from_redis_value(page).map_err(|_| unexpected_reply("list"))?;
        // A name that is not UTF-8 is not ours.
        let found = found
            .iter()
            .filter_map(|name| std::str::from_utf8(name).ok());
        let keys = found.filter_map(|name| names.key_of(name));
        let keys = keys.filter(|key| key.as_str().starts_with(prefix));
        let is_ours = |record: &LockInfo| {
            record.token.is_some() || record.holders == 0 || !names.prefix().is_empty()
        };
        let parts = client.servers.by_slot(names, keys);
        let looks = parts.iter().map(|keys| inspect_allowed(client, keys));
        for found in join_all(looks).await {
            let (found, left_out) = found?;
            hidden += left_out;
            records.extend(found.into_iter().filter(is_ours));
        }
        if next == "0" {
            if hidden > 0 {
                tracing::warn!(target: "leasehold::redis", "a list leaves out {hidden} keys that this user may not read");
            }
            return Ok(records);
        }
        cursor = next;
    }
}

/// A question changes nothing, so without an answer nothing is in doubt.
fn unanswered(error: Error) -> Error {
    match error.kind() {
        ErrorKind::InDoubt => {
            Error::unavailable("redis did not answer a question; try later").because(error)
        }
        _ => error,
    }
}
