//! Every road out of a hold, over all members.

use std::sync::Arc;

use super::round::{Round, home};
use super::{Shared, as_attempt};
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::store::{Claim, Grant, Member, Released};

/// How often a member is asked to withdraw what may still bar others there; then its TTL does it.
const TRIES: u32 = 6;

pub(super) async fn release<M: Member>(shared: &Arc<Shared<M>>, grant: &Grant) -> Released {
    let home = match home() {
        Ok(home) => home,
        Err(why) => return Released::Unknown(why),
    };
    // What is not in the book is long over, or was never ours.
    let Some(owner) = shared.book.lock().end(&grant.claim) else {
        return Released::AlreadyGone;
    };
    let mut round = Round::new(home.clone(), shared.clock.clone(), grant.claim.ttl);
    for member in 0..shared.members.len() {
        let attempt = as_attempt(&grant.claim, owner);
        let beneath = Grant::new(attempt.clone(), grant.token, grant.proof);
        let (shared, home) = (Arc::clone(shared), home.clone());
        round.ask(member, async move {
            let released = shared.members[member].release(&beneath).await;
            if !matches!(released, Released::Released) {
                // A vote of ours may still be on its way there.
                home.spawn(take_back(shared, member, attempt));
            }
            released
        });
    }

    let (need, members) = (shared.need(), shared.members.len());
    let (mut freed, mut gone, mut failure) = (0, 0, None);
    while freed < need && gone <= members - need {
        let Some((_, released)) = round.next(freed + gone >= need).await else {
            break;
        };
        match released {
            Released::Released => freed += 1,
            Released::AlreadyGone => gone += 1,
            Released::Unknown(why) => failure = Some(why),
            Released::Withheld => {}
        }
    }
    if gone > members - need {
        shared.book.lock().strike(&grant.claim, owner);
        return Released::AlreadyGone;
    }
    if freed + gone >= need {
        shared.book.lock().strike(&grant.claim, owner);
        return Released::Released;
    }
    Released::Unknown(unconfirmed("released", failure))
}

pub(super) async fn withdraw<M: Member>(
    shared: &Arc<Shared<M>>,
    claim: &Claim,
) -> Result<(), Error> {
    let home = home()?;
    let unused = OwnerToken::generate()?;
    let now = shared.clock.stamp();
    // From here on the claim is never granted: an attempt under way finds its entry changed.
    let Some(owner) = shared.book.lock().withdraw(claim, unused, &now) else {
        return Ok(());
    };
    let mut round = Round::new(home.clone(), shared.clock.clone(), claim.ttl);
    for member in 0..shared.members.len() {
        let attempt = as_attempt(claim, owner);
        let (shared, home) = (Arc::clone(shared), home.clone());
        round.ask(member, async move {
            let withdrawn = shared.members[member].withdraw(&attempt).await;
            if withdrawn.is_err() {
                home.spawn(take_back(shared, member, attempt));
            }
            withdrawn
        });
    }
    let (mut done, mut failure) = (0, None);
    while done < shared.need() {
        match round.next(false).await {
            Some((_, Ok(()))) => done += 1,
            Some((_, Err(why))) => failure = Some(why),
            None => return Err(unconfirmed("withdrawn", failure)),
        }
    }
    Ok(())
}

/// Asks one member to withdraw an attempt, until it did or the attempt's time is over.
pub(super) async fn take_back<M: Member>(shared: Arc<Shared<M>>, member: usize, attempt: Claim) {
    for _ in 0..TRIES {
        let pause = attempt.ttl / TRIES;
        let withdraw = shared.members[member].withdraw(&attempt);
        if let Some(Ok(())) = shared.clock.timeout(attempt.ttl, withdraw).await {
            return;
        }
        shared.clock.sleep(pause).await;
    }
    tracing::debug!(key = %attempt.key, member, "a vote was not confirmed as withdrawn; its ttl ends it");
}

fn unconfirmed(what: &str, failure: Option<Error>) -> Error {
    let error = Error::in_doubt(format!(
        "no majority of the members confirmed that the lock was {what}; the rest ends with the ttl"
    ));
    match failure {
        Some(why) => error.because(why),
        None => error,
    }
}
