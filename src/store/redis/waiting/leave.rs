//! Leaving: the end of a claim that holds, reads or waits.

use ::redis::Value;

use super::super::client::RedisClient;
use super::super::fault::unexpected_reply;
use super::super::script::{Call, LEAVE, WITHDRAW};
use crate::model::error::Error;
use crate::store::Claim;

/// Whether a claim that left leaves a tombstone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Tombstone {
    /// It was granted, and that is known.
    Omitted,
    /// Its acquire may be executed later.
    Written,
}

/// The call by which a claim ends its hold and its place.
pub(in super::super) fn leave_call(
    client: &RedisClient,
    claim: &Claim,
    tombstone: Tombstone,
) -> Call {
    let (options, key) = (client.options(), &claim.key);
    let names = &options.names;
    let tombstone_ttl = match tombstone {
        Tombstone::Omitted => 0,
        Tombstone::Written => options.max_ttl.as_millis(),
    };
    Call::new([
        names.lock(key),
        names.queue(key),
        names.alone(key),
        names.places(key),
        names.readers(key),
        names.grants(key),
        names.tombstone(key, &claim.owner),
    ])
    .arg(claim.owner.expose())
    .arg(names.channel(key))
    .number(tombstone_ttl)
}

/// Takes back an attempt of unknown fate, and gives up its place.
pub(in super::super) async fn withdraw(client: &RedisClient, claim: &Claim) -> Result<(), Error> {
    if claim.queues() {
        return withdraw_queued(client, claim).await;
    }
    let names = &client.options().names;
    let call = Call::new([
        names.lock(&claim.key),
        names.tombstone(&claim.key, &claim.owner),
    ])
    .arg(claim.owner.expose())
    .number(client.options().max_ttl.as_millis())
    .arg(names.channel(&claim.key));
    match client.run(&claim.key, &WITHDRAW, &call).await {
        Ok(Value::Int(1)) => Ok(()),
        Ok(_) => Err(unexpected_reply("withdraw")),
        Err(failure) => Err(failure.into_error("withdraw")),
    }
}

async fn withdraw_queued(client: &RedisClient, claim: &Claim) -> Result<(), Error> {
    let call = leave_call(client, claim, Tombstone::Written);
    match client.run(&claim.key, &LEAVE, &call).await {
        Ok(Value::Int(0 | 1)) => Ok(()),
        Ok(_) => Err(unexpected_reply("withdraw")),
        Err(failure) => Err(failure.into_error("withdraw")),
    }
}
