//! Revoking a lock from any holder.

use super::client::RedisClient;
use super::reply;
use super::script::{Call, REVOKE};
use super::waiting::handover_millis;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::store::{HANDOVER_TIME, Revoke, Revoked};

pub(super) async fn revoke(client: &RedisClient, key: &Key, how: Revoke) -> Result<Revoked, Error> {
    let names = &client.options().names;
    let how = match how {
        Revoke::AfterTtl => "after",
        Revoke::Now => "now",
    };
    let call = Call::new([names.lock(key), names.readers(key), names.grants(key)])
        .arg(how)
        .arg(names.channel(key))
        .arg(names.beside(key, ""))
        .number(handover_millis(HANDOVER_TIME));
    let answer = client.run(key, &REVOKE, &call).await;
    reply::revoked(
        key,
        &answer.map_err(|failure| failure.into_error("revoke"))?,
    )
}
