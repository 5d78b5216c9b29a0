//! Leaving: the end of a claim that holds, reads or waits.

use ::redis::Value;

use super::super::client::RedisClient;
use super::super::counters::Ended;
use super::super::fault::unexpected_reply;
use super::super::script::{Call, LEAVE};
use crate::model::error::Error;
use crate::store::Claim;

/// The call by which a claim ends its hold.
pub(in super::super) fn leave_call(client: &RedisClient, claim: &Claim) -> Call {
    leave(client, claim, None)
}

/// `unanswered`: it is withdrawn, so it ends its place too, and the counter of this name (empty for none) is removed.
fn leave(client: &RedisClient, claim: &Claim, unanswered: Option<&str>) -> Call {
    let (names, key) = (&client.options().names, &claim.key);
    let keys = [
        names.lock(key),
        names.queue(key),
        names.alone(key),
        names.places(key),
        names.readers(key),
        names.grants(key),
        names.gap(key),
        names.offers(key),
    ];
    let call = match unanswered {
        None => Call::new(keys),
        Some(_) => Call::new(keys.into_iter().chain([names.tokens(client.slot_of(key))])),
    };
    let call = (call.parts([claim.owner.digits()]).arg(names.channel(key)))
        .number(super::handover_millis(claim.ttl));
    match unanswered {
        None => call,
        Some(counter) => call.arg(counter),
    }
}

/// Takes back an attempt of unknown fate, and gives up its place.
pub(in super::super) async fn withdraw(client: &RedisClient, claim: &Claim) -> Result<(), Error> {
    client.counters.end(claim, Ended::Withdrawn);
    client.asked.forget(&claim.owner);
    let unanswered = client.counters.unanswered(&claim.owner);
    let call = leave(
        client,
        claim,
        Some(unanswered.as_deref().unwrap_or_default()),
    );
    match client.run(&claim.key, &LEAVE, &call).await {
        Ok(Value::Int(0 | 1)) => {
            client.counters.settled(&claim.owner);
            Ok(())
        }
        Ok(_) => Err(unexpected_reply("withdraw")),
        Err(failure) => Err(failure.into_error("withdraw")),
    }
}
