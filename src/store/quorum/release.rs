//! Release and withdrawal, at every member that may hold a vote of the claim.

use std::sync::Arc;

use super::electorate::{Electorate, as_attempt};
use super::failures::Failures;
use super::round::{Round, home, patience};
use super::vote::take_back;
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::store::{Claim, Grant, Member, Released};

pub(super) async fn release<M: Member>(electorate: &Arc<Electorate<M>>, grant: &Grant) -> Released {
    let home = match home() {
        Ok(home) => home,
        Err(why) => return Released::Unknown(why),
    };
    // What is not in the book is long over, or was never ours.
    let Some((owner, votes)) = electorate.book.lock().end(&grant.claim) else {
        return Released::AlreadyGone;
    };
    let (need, members) = (electorate.need(), electorate.members.len());
    let clock = electorate.clock.clone();
    let mut round = Round::new(home.clone(), clock, patience(grant.claim.ttl));
    // Where no vote of ours is, another may have one already.
    let (mut freed, mut free, mut gone) = (0, 0, 0);
    let mut failures = Failures::default();
    for member in 0..members {
        if !votes.contains(member) {
            free += 1;
            continue;
        }
        let attempt = as_attempt(&grant.claim, owner);
        let beneath = Grant::new(attempt.clone(), grant.token, grant.proof);
        let (electorate, home, votes) = (Arc::clone(electorate), home.clone(), votes.clone());
        round.ask(member, async move {
            let released = electorate.members[member].release(&beneath).await;
            electorate.heard(member, !matches!(released, Released::Unknown(_)));
            if !matches!(released, Released::Released) || votes.was_asked_again(member) {
                // A vote of ours may still be on its way there.
                let task_home = home.clone();
                home.spawn(take_back(electorate, task_home, member, attempt, votes));
            }
            released
        });
    }

    let is_gone = |gone: usize| gone > members - need;
    // A majority of our votes, or all if there are fewer: the next attempt meets none of them.
    let votes_to_free = need.min(members - free);
    while freed + gone < votes_to_free && !is_gone(free + gone) {
        let is_quorate = freed + free + gone >= need;
        if is_quorate && electorate.are_silent(round.waited_for()) {
            break;
        }
        let Some((_, released)) = round.next(is_quorate).await else {
            break;
        };
        match released {
            Released::Released => freed += 1,
            Released::AlreadyGone => gone += 1,
            Released::Unknown(why) => failures.note(why),
            Released::Withheld { .. } => {}
        }
    }
    let is_quorate = freed + free + gone >= need;
    if !is_quorate {
        return Released::Unknown(unconfirmed("released", &failures));
    }
    electorate.note_unanswered(&round);
    electorate.book.lock().strike(&grant.claim, owner);
    if is_gone(free + gone) {
        Released::AlreadyGone
    } else {
        Released::Released
    }
}

pub(super) async fn withdraw<M: Member>(
    electorate: &Arc<Electorate<M>>,
    claim: &Claim,
) -> Result<(), Error> {
    let home = home()?;
    let unused = OwnerToken::generate()?;
    let now = electorate.clock.stamp();
    // From here on the claim is never granted: an attempt under way finds its entry changed, and
    // sends no further vote.
    let Some((owner, votes)) = electorate.book.lock().withdraw(claim, unused, &now) else {
        return Ok(());
    };
    votes.close();
    let clock = electorate.clock.clone();
    let mut round = Round::new(home.clone(), clock, patience(claim.ttl));
    let (mut done, mut failures) = (0, Failures::default());
    for member in 0..electorate.members.len() {
        if !votes.contains(member) {
            done += 1;
            continue;
        }
        let attempt = as_attempt(claim, owner);
        let (electorate, home, votes) = (Arc::clone(electorate), home.clone(), votes.clone());
        round.ask(member, async move {
            let withdrawn = electorate.members[member].withdraw(&attempt).await;
            electorate.heard(member, withdrawn.is_ok());
            if withdrawn.is_err() {
                let task_home = home.clone();
                home.spawn(take_back(electorate, task_home, member, attempt, votes));
            }
            withdrawn
        });
    }
    while done < electorate.need() {
        match round.next(false).await {
            Some((_, Ok(()))) => done += 1,
            Some((_, Err(why))) => failures.note(why),
            None => return Err(unconfirmed("withdrawn", &failures)),
        }
    }
    Ok(())
}

fn unconfirmed(what: &str, failures: &Failures) -> Error {
    failures.explain(Error::in_doubt(format!(
        "no majority of the members confirmed that the lock was {what}; the rest ends with the ttl"
    )))
}
