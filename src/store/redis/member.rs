//! A Redis server as a member of a quorum.

use super::acquire::{AttemptTerms, attempt, judge};
use super::arm::counter_of;
use super::reply;
use super::script::{Call, RAISE};
use super::servers::Servers;
use super::store::RedisStore;
use crate::model::error::Error;
use crate::model::token::FencingToken;
use crate::store::{Claim, MAX_SKEW, Member, Raised, Vote};

/// How often a raise is sent while the counter of tokens changes.
const RAISES: u32 = 4;

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
        let terms = AttemptTerms {
            is_vote: true,
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
        let slot = client.slot_of(&claim.key);
        let keys = [names.lock(&claim.key), names.tokens(slot)];
        for _ in 0..RAISES {
            let counter = counter_of(client, &claim.key, MAX_SKEW).await?;
            let call = Call::new(keys.clone())
                .parts([claim.owner.digits()])
                .number(token.number().into())
                .arg(counter.as_ref().map_or("", |counter| &counter.name))
                .number(MAX_SKEW.as_micros());
            let answer = client.run(&claim.key, &RAISE, &call).await;
            let answer = answer.map_err(|failure| failure.into_error("raise"))?;
            if !reply::is_slow(&answer) {
                return reply::raised(claim, &answer);
            }
            if let Some(counter) = counter {
                client.counters.forget(slot, &counter);
            }
        }
        Err(Error::unavailable(format!(
            "the counter of tokens of this member changed again and again, or it is in quarantine: key={}; try later",
            claim.key
        )))
    }
}
