//! A grant that counts only when replicas have it.

use ::redis::{Cmd, RedisError, Value};

use super::client::RedisClient;
use super::connection::{Failure, Session};
use super::reply::{self, Attempted};
use super::waiting::withdraw;
use crate::model::error::{Error, ErrorKind};
use crate::store::Claim;

/// Runs a script that acquires, and waits until the replicas have it.
pub(super) async fn acquire_replicated(
    client: &RedisClient,
    claim: &Claim,
    command: &Cmd,
    session: &Session<'_>,
) -> Result<Value, Failure> {
    let options = client.options();
    let mut both = ::redis::pipe();
    both.add_command(command.clone());
    both.add_command(options.wait_for_replicas());
    let mut answers = session.ask_all(&both).await?.into_iter();
    let granted = answers
        .next()
        .unwrap_or(Ok(Value::Nil))
        .map_err(Failure::of)?;
    let waited = answers.next();
    let is_grant = matches!(reply::attempted(&granted), Ok(Attempted::Granted { .. }));
    let confirmed = confirmed(waited);
    if is_grant {
        session.served();
    }
    if is_grant && confirmed < options.replicas {
        let error = unconfirmed(client, claim, confirmed).await;
        return Err(Failure::Answered(error));
    }
    Ok(granted)
}

/// What becomes of a grant that too few replicas confirmed.
///
/// A claim that may have a place is asked again, so that it keeps its place, and may be confirmed then: its grant stays as it is, in
/// doubt, and the caller withdraws it when it gives up. If it was released here, a late release would end the grant of the
/// next attempt.
async fn unconfirmed(client: &RedisClient, claim: &Claim, confirmed: u32) -> Error {
    let options = client.options();
    let (kind, so) = if !claim.place_ttl.is_zero() {
        (
            ErrorKind::InDoubt,
            "ask again with the same claim, or withdraw it",
        )
    } else {
        match withdraw(client, claim).await {
            Ok(()) => (ErrorKind::Unavailable, "it was taken back"),
            Err(_) => (ErrorKind::InDoubt, "it could not be taken back"),
        }
    };
    Error::new(
        kind,
        format!(
            "too few replicas confirmed the grant: key={} replicas={} confirmed={confirmed} waited={:?}; {so}, and repair the replicas",
            claim.key, options.replicas, options.replica_wait
        ),
    )
}

/// How many replicas confirmed, by the answer to [`wait_for_replicas`](super::RedisOptions::wait_for_replicas).
pub(super) fn confirmed(answer: Option<Result<Value, RedisError>>) -> u32 {
    match answer {
        Some(Ok(Value::Int(count))) => u32::try_from(count).unwrap_or(0),
        _ => 0,
    }
}
