//! From the hold of a writer to that of a reader, without a gap.

use ::redis::Value;

use super::client::RedisClient;
use super::fault::unexpected_reply;
use super::reply;
use super::script::{Call, DOWNGRADE};
use super::waiting::handover_millis;
use crate::model::error::{Error, ErrorKind, LostReason};
use crate::store::{Grant, GrantProof, LockMode};

pub(super) async fn downgrade(client: &RedisClient, grant: &Grant) -> Result<Grant, Error> {
    let (names, claim) = (&client.options().names, &grant.claim);
    let key = &claim.key;
    if claim.mode == LockMode::Exclusive {
        return Err(Error::invalid(format!(
            "an exclusive hold cannot become a read hold: key={key}; take a write lock"
        )));
    }
    let call = Call::new([names.lock(key), names.readers(key), names.grants(key)])
        .arg(claim.owner.expose())
        .number(grant.token.number().into())
        .arg(claim.label.as_str())
        .arg(names.channel(key))
        .arg(names.beside(key, ""))
        .number(handover_millis(claim.ttl));
    let answer = client.run(key, &DOWNGRADE, &call).await;
    match answer.map_err(|failure| failure.into_error("downgrade"))? {
        Value::Int(0) => Err(Error::new(
            ErrorKind::Lost(LostReason::Gone),
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
