//! What ends or changes a hold: release, rest, withdrawal, downgrade, revocation.

use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;

use super::claims::Ended;
use super::client::{RedisClient, claim_parts};
use super::connection::Failure;
use super::fault::unexpected_reply;
use super::reply;
use super::script::{Call, DOWNGRADE, RELEASE, REVOKE, WATCH};
use crate::model::error::{Error, ErrorKind};
use crate::model::key::Key;
use crate::store::{Claim, Grant, GrantProof, LockMode, Released, Revoke, Revoked};

/// For how many times the longest wait for an answer a server refuses the late requests of a claim
/// that ended.
const GONE_TIMEOUTS: u32 = 2;

/// For how long a claim is notified that a lock is free.
const WATCHES: Duration = Duration::from_secs(600);

/// A claim that takes no place has no message of its own: so are those of a quorum, whose votes
/// have other owners. It is notified when the lock is free. That is a hint, so a refusal is none of
/// its concern.
pub(super) async fn watch(client: &RedisClient, claim: &Claim) {
    if claim.place_ttl.is_zero() {
        let watchers = client.options().names.beside(&claim.key, "watchers");
        let call = Call::new([watchers])
            .parts([claim.owner.digits()])
            .number(WATCHES.as_millis());
        let _ = client.run(&claim.key, &WATCH, &call).await;
    }
}

/// Ends a hold or a place. Late requests of the claim are refused from then on, if there may be
/// any. `rest`: the key rests for so long.
async fn end(client: &Arc<RedisClient>, claim: &Claim, rest: Duration) -> Result<Value, Failure> {
    let (options, slot) = (client.options(), client.slot_of(&claim.key));
    let names = &options.names;
    let (digits, mode, label) = claim_parts(claim);
    let gone = if client.claims.has_unanswered(&claim.owner) {
        options.timeout * GONE_TIMEOUTS
    } else {
        Duration::ZERO
    };
    // Rounded up: never shorter than was asked for.
    let rest = rest.saturating_add(Duration::from_micros(999)).as_millis();
    let call = |mark: &str| {
        Call::sized()
            .parts(names.lock_parts(&claim.key))
            .end_keys()
            .parts([&digits[..], mode.as_bytes(), label.as_bytes()])
            .arg(mark)
            .number(rest)
            .number(gone.as_millis())
            .arg(names.marker(slot))
            .arg(names.token(slot))
    };
    let has_ended = |answer: &Value| *answer == Value::Int(1);
    let ended = (client.run_marked(&claim.key, &RELEASE, call, has_ended)).await?;
    if !gone.is_zero() {
        client.claims.settled(&claim.owner);
    }
    Ok(ended)
}

/// Ends a hold.
pub(super) async fn release(client: &Arc<RedisClient>, grant: &Grant, rest: Duration) -> Released {
    let released = match end(client, &grant.claim, rest).await {
        Ok(Value::Int(1)) => Released::Released,
        Ok(Value::Int(0)) => Released::AlreadyGone,
        Ok(_) => Released::Unknown(unexpected_reply("release")),
        Err(failure) => match failure.into_error("release") {
            // A key that is no longer a lock is no longer ours.
            error if error.kind() == ErrorKind::Corrupt => Released::AlreadyGone,
            error => Released::Unknown(error),
        },
    };
    if matches!(released, Released::AlreadyGone) {
        client.claims.end(&grant.claim, Ended::Gone);
    }
    released
}

/// Takes back an attempt of unknown fate, and gives up its place.
pub(super) async fn withdraw(client: &Arc<RedisClient>, claim: &Claim) -> Result<(), Error> {
    client.claims.end(claim, Ended::Withdrawn);
    match end(client, claim, Duration::ZERO).await {
        Ok(Value::Int(0 | 1)) => Ok(()),
        Ok(_) => Err(unexpected_reply("withdraw")),
        Err(failure) => match failure.into_error("withdraw") {
            // A key that is not ours grants us nothing.
            error if error.kind() == ErrorKind::Corrupt => Ok(()),
            error => Err(error),
        },
    }
}

/// From the hold of a writer to that of a reader, without a gap.
pub(super) async fn downgrade(client: &Arc<RedisClient>, grant: &Grant) -> Result<Grant, Error> {
    let (names, claim) = (&client.options().names, &grant.claim);
    let (key, slot) = (&claim.key, client.slot_of(&claim.key));
    if claim.mode == LockMode::Exclusive {
        return Err(Error::invalid(format!(
            "an exclusive hold cannot become a read hold: key={key}; take a write lock"
        )));
    }
    let (digits, mode, label) = claim_parts(claim);
    let call = |mark: &str| {
        Call::new([names.lock(key), names.marker(slot), names.token(slot)])
            .parts([&digits[..], mode.as_bytes(), label.as_bytes()])
            .arg(mark)
    };
    // One that was done before is answered as the first.
    let answer = client.run_marked(key, &DOWNGRADE, call, |_| false).await;
    match answer.map_err(|failure| failure.into_error("downgrade"))? {
        Value::Int(0) => Err(Error::new(
            ErrorKind::Lost(crate::Ended::Gone),
            format!("the claim does not hold the lock: key={key}; acquire it again"),
        )),
        Value::Int(left) => {
            let left = reply::millis(left).ok_or_else(|| unexpected_reply("downgrade"))?;
            let mut claim = claim.clone();
            claim.mode = LockMode::Read;
            Ok(Grant::new(claim, grant.token, GrantProof::of(left)))
        }
        _ => Err(unexpected_reply("downgrade")),
    }
}

/// Takes a lock away from any holder.
pub(super) async fn revoke(
    client: &Arc<RedisClient>,
    key: &Key,
    how: Revoke,
) -> Result<Revoked, Error> {
    let (names, slot) = (&client.options().names, client.slot_of(key));
    let how = match how {
        Revoke::AfterTtl => "after",
        Revoke::Now => "now",
    };
    let call = |mark: &str| {
        Call::new([names.lock(key), names.marker(slot), names.token(slot)])
            .arg(how)
            .arg(mark)
    };
    let answer = client.run_marked(key, &REVOKE, call, |_| false).await;
    reply::revoked(
        key,
        &answer.map_err(|failure| failure.into_error("revoke"))?,
    )
}
