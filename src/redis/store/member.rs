//! A Redis server as a member of a quorum.

use std::sync::atomic::Ordering;

use super::redis_store::RedisStore;
use super::reply;
use super::script::{Call, RAISE};
use super::servers::Servers;
use crate::model::error::Error;
use crate::model::token::FencingToken;
use crate::store::{Claim, Member, Raised, Vote};

impl Member for RedisStore {
    async fn ready(&self) -> Result<(), Error> {
        let client = &*self.client;
        match &client.servers {
            Servers::One(pool) => pool.connection(client.attempt_purpose())?.connected().await,
            // The map of a cluster says only with the request which connection it takes.
            Servers::Many(_) => Ok(()),
        }
    }

    async fn vote(&self, claim: &Claim, floor: Option<FencingToken>) -> Result<Vote, Error> {
        self.client.is_member.store(true, Ordering::Relaxed);
        let least = floor.map_or(0, FencingToken::number);
        self.client.attempt(claim, Some(least)).await
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<Raised, Error> {
        let (client, key) = (&*self.client, &claim.key);
        let names = &client.options().names;
        let call = Call::new([names.lock(key), names.token(client.slot_of(key))])
            .parts([claim.owner.digits()])
            .number(token.number().into());
        let answer = client.run(key, &RAISE, &call).await;
        let answer = answer.map_err(|failure| failure.into_error("raise"))?;
        reply::raised(claim, token, &answer)
    }
}
