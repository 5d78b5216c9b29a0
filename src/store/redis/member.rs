//! A Redis server as a member of a quorum.

use super::attempt::Want;
use super::reply;
use super::script::{Call, RAISE};
use super::store::{COUNTER_TTL, RedisStore, Shared};
use crate::model::error::Error;
use crate::model::token::FencingToken;
use crate::store::{Claim, MAX_SKEW, Member, Raised, Vote};

impl Member for RedisStore {
    async fn vote(&self, claim: &Claim, floor: Option<FencingToken>) -> Result<Vote, Error> {
        let wary = MAX_SKEW;
        let answer = self.shared.attempt(claim, Want { floor, wary }).await?;
        Ok(Vote {
            acquired: Shared::judge(answer.outcome),
            micros: answer.micros,
        })
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<Raised, Error> {
        let shared = &*self.shared;
        let names = &shared.options().names;
        let call = Call::new([names.lock(&claim.key), names.counter(&claim.key)])
            .arg(claim.owner.expose())
            .number(token.number().into())
            .arg(claim.label.as_str())
            .number(COUNTER_TTL.as_millis())
            .number(MAX_SKEW.as_micros());
        let answer = shared.run(&claim.key, &RAISE, &call).await;
        reply::raised(
            claim,
            &answer.map_err(|failure| failure.into_error("raise"))?,
        )
    }
}
