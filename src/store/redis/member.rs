//! A Redis server as a member of a quorum.

use super::acquire::{AttemptTerms, COUNTER_TTL, attempt, judge};
use super::reply;
use super::script::{Call, RAISE};
use super::store::RedisStore;
use crate::model::error::Error;
use crate::model::token::FencingToken;
use crate::store::{Claim, MAX_SKEW, Member, Raised, Vote};

impl Member for RedisStore {
    async fn vote(&self, claim: &Claim, floor: Option<FencingToken>) -> Result<Vote, Error> {
        let terms = AttemptTerms {
            floor,
            extra_quarantine: MAX_SKEW,
        };
        let answer = attempt(&self.client, claim, terms).await?;
        Ok(Vote {
            acquired: judge(answer.outcome),
            micros: answer.micros,
        })
    }

    async fn raise(&self, claim: &Claim, token: FencingToken) -> Result<Raised, Error> {
        let client = &*self.client;
        let names = &client.options().names;
        let call = Call::new([names.lock(&claim.key), names.counter(&claim.key)])
            .arg(claim.owner.expose())
            .number(token.number().into())
            .arg(claim.label.as_str())
            .number(COUNTER_TTL.as_millis())
            .number(MAX_SKEW.as_micros());
        let answer = client.run(&claim.key, &RAISE, &call).await;
        reply::raised(
            claim,
            &answer.map_err(|failure| failure.into_error("raise"))?,
        )
    }
}
