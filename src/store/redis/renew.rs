//! Renewing many grants at one server: scripts of so many locks each, all in one request.

use ::redis::{RedisError, Value};

use super::link::{Failure, Link, is_unknown_script};
use super::reply;
use super::script::{Call, RENEW};
use super::store::Shared;
use crate::error::Error;
use crate::store::{Grant, Renewed};

/// How many grants one script renews: the server answers nobody else meanwhile.
pub(super) const RENEW_BATCH: usize = 500;

impl Shared {
    /// Renews grants that one server has.
    pub(super) async fn renew_at(&self, link: &Link, grants: &[Grant]) -> Vec<Renewed> {
        let batches = grants.chunks(RENEW_BATCH);
        let calls = batches.clone().map(|batch| self.renew_call(batch.iter()));
        match self.renew_over(link, calls.collect()).await {
            Ok(answers) => (batches.zip(answers))
                .flat_map(|(batch, answer)| match answer {
                    Ok(answer) => reply::renewed(batch.iter(), &answer),
                    Err(refusal) => all_unknown(batch, &Failure::of(refusal).into_error("renew")),
                })
                .collect(),
            Err(failure) => all_unknown(grants, &failure.into_error("renew")),
        }
    }

    /// The call that renews grants, all of one slot where there are slots.
    pub(super) fn renew_call<'a>(&self, grants: impl Iterator<Item = &'a Grant> + Clone) -> Call {
        let names = &self.options().names;
        let owners = grants.clone().map(|grant| grant.claim.owner.digits());
        let mut rows: Vec<(usize, u128)> = Vec::new();
        for ttl in grants.clone().map(|grant| grant.claim.ttl.as_millis()) {
            match rows.last_mut() {
                Some((count, of_row)) if *of_row == ttl => *count += 1,
                _ => rows.push((1, ttl)),
            }
        }
        let ttls = rows.iter().map(|(count, ttl)| format!("{count} {ttl} "));
        Call::joined(grants.map(|grant| names.lock_parts(&grant.claim.key)))
            .parts(owners)
            .parts(ttls)
            .arg(names.prefix())
            .number(self.options().is_cluster().into())
    }

    /// Makes calls of [`RENEW`] in one request; one answer for each.
    pub(super) async fn renew_over(
        &self,
        link: &Link,
        calls: Vec<Call>,
    ) -> Result<Vec<Result<Value, RedisError>>, Failure> {
        // A request of nothing has no answer, and would count as unanswered.
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let mut by_hash = ::redis::pipe();
        for call in &calls {
            by_hash.add_command(call.by_hash(&RENEW));
        }
        let answers = link.ask_all(&by_hash).await?;
        let is_unknown =
            |answer: &Result<_, RedisError>| answer.as_ref().is_err_and(is_unknown_script);
        if !answers.iter().any(is_unknown) {
            return Ok(answers);
        }
        // The first brings the text along, and loads it for the others. To renew twice is to renew once.
        let mut by_text = ::redis::pipe();
        for (index, call) in calls.iter().enumerate() {
            by_text.add_command(if index == 0 {
                call.by_text(&RENEW)
            } else {
                call.by_hash(&RENEW)
            });
        }
        link.ask_all(&by_text).await
    }
}

pub(super) fn all_unknown(grants: &[Grant], error: &Error) -> Vec<Renewed> {
    grants
        .iter()
        .map(|_| Renewed::Unknown(error.clone()))
        .collect()
}
