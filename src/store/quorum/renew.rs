//! Renewal by a majority of *all* members.

use std::sync::Arc;
use std::time::Duration;

use super::electorate::{Electorate, as_attempt};
use super::failures::Failures;
use super::round::{Round, home, patience_of};
use super::vote::restore_vote;
use super::vote_count::{lasting, majority};
use crate::clock::Stamp;
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::store::{Claim, Grant, GrantProof, Member, Renewed};

/// A batch as the members know it, and the claims that its callers know.
struct Batch {
    claims: Vec<(Claim, OwnerToken)>,
    grants: Vec<Grant>,
}

/// The members' answers for one grant.
#[derive(Debug)]
struct Tally {
    members: usize,
    asked: usize,
    extended: Vec<Duration>,
    gone: usize,
    failures: Failures,
}

pub(super) async fn renew<M: Member>(
    electorate: &Arc<Electorate<M>>,
    grants: &[Grant],
) -> Vec<Renewed> {
    let home = match home() {
        Ok(home) => home,
        Err(why) => {
            return grants
                .iter()
                .map(|_| Renewed::Unknown(why.clone()))
                .collect();
        }
    };
    let sent_at = electorate.clock.stamp();
    let (batch, places) = batch(electorate, grants);
    let Some(ttl) = batch.grants.iter().map(|grant| grant.claim.ttl).min() else {
        return grants.iter().map(|_| Renewed::Gone).collect();
    };
    let batch = Arc::new(batch);
    let mut round = Round::new(home.clone(), electorate.clock.clone(), patience_of(ttl));
    for member in 0..electorate.members.len() {
        let (electorate, batch, home) = (Arc::clone(electorate), Arc::clone(&batch), home.clone());
        round.ask(member, async move {
            let answers = electorate.members[member].renew(&batch.grants).await;
            electorate.heard(member, answers.iter().any(is_answer));
            if answers.iter().any(|answer| matches!(answer, Renewed::Gone)) {
                home.spawn(restore_gone(
                    electorate,
                    member,
                    Arc::clone(&batch),
                    gone(&answers),
                ));
            }
            answers
        });
    }

    let (members, mut answered) = (electorate.members.len(), 0);
    let mut tallies: Vec<_> = batch.grants.iter().map(|_| Tally::new(members)).collect();
    while tallies.iter().any(Tally::is_open) {
        // A member that fails at once says nothing of how long the others take.
        let Some((_, answers)) = round.next(answered >= electorate.need()).await else {
            break;
        };
        answered += usize::from(answers.iter().any(is_answer));
        let mut answers = answers.into_iter();
        for tally in &mut tallies {
            tally.add(answers.next(), &sent_at);
        }
    }

    let mut decided: Vec<_> = tallies.into_iter().map(Tally::decide).map(Some).collect();
    let now = electorate.clock.stamp();
    for ((claim, owner), answer) in batch.claims.iter().zip(&mut decided) {
        match answer {
            Some(Renewed::Extended(proof)) => {
                let until = sent_at.plus(proof.ttl);
                if !(electorate.book.lock()).extend(claim, *owner, until, &now) {
                    *answer = Some(Renewed::Gone);
                }
            }
            Some(Renewed::Gone) => electorate.book.lock().lose(claim, *owner),
            _ => {}
        }
    }
    let answer = |place: Option<usize>| place.and_then(|place| decided[place].take());
    places
        .into_iter()
        .map(answer)
        .map(|a| a.unwrap_or(Renewed::Gone))
        .collect()
}

/// The grants that are held by our book, and for each of all grants its place among them.
fn batch<M>(electorate: &Electorate<M>, grants: &[Grant]) -> (Batch, Vec<Option<usize>>) {
    let now = electorate.clock.stamp();
    let book = electorate.book.lock();
    let mut batch = Batch {
        claims: Vec::with_capacity(grants.len()),
        grants: Vec::with_capacity(grants.len()),
    };
    let mut place = |grant: &Grant| {
        let (owner, _) = book.holding(&grant.claim, &now)?;
        let attempt = as_attempt(&grant.claim, owner);
        batch.claims.push((grant.claim.clone(), owner));
        batch
            .grants
            .push(Grant::new(attempt, grant.token, grant.proof));
        Some(batch.grants.len() - 1)
    };
    let places = grants.iter().map(&mut place).collect();
    (batch, places)
}

fn is_answer(renewed: &Renewed) -> bool {
    !matches!(renewed, Renewed::Unknown(_))
}

fn gone(answers: &[Renewed]) -> Vec<usize> {
    let gone =
        |(place, answer): (usize, &Renewed)| matches!(answer, Renewed::Gone).then_some(place);
    answers.iter().enumerate().filter_map(gone).collect()
}

/// Asks a member that lost votes of ours for them again, one after the other, until it refuses.
async fn restore_gone<M: Member>(
    electorate: Arc<Electorate<M>>,
    member: usize,
    batch: Arc<Batch>,
    places: Vec<usize>,
) {
    for place in places {
        let Some((claim, owner)) = batch.claims.get(place) else {
            return;
        };
        if !restore_vote(&electorate, member, claim, *owner).await {
            return;
        }
    }
}

impl Tally {
    fn new(members: usize) -> Self {
        Self {
            members,
            asked: members,
            extended: Vec::with_capacity(members),
            gone: 0,
            failures: Failures::default(),
        }
    }

    /// A member's answer; `None` if it gave fewer answers than it was asked for.
    fn add(&mut self, answer: Option<Renewed>, sent_at: &Stamp) {
        self.asked -= 1;
        match answer {
            Some(Renewed::Extended(proof)) => self.extended.push(proof.left_at(sent_at)),
            Some(Renewed::Gone) => self.gone += 1,
            Some(Renewed::Unknown(why)) => self.failures.note(why),
            None => {}
        }
    }

    fn is_open(&self) -> bool {
        let need = majority(self.members);
        self.extended.len() < need && self.extended.len() + self.asked >= need
    }

    fn decide(mut self) -> Renewed {
        let need = majority(self.members);
        if let Some(ttl) = lasting(&mut self.extended, need) {
            return Renewed::Extended(GrantProof::of(ttl));
        }
        if self.gone > self.members - need {
            return Renewed::Gone;
        }
        let error = Error::in_doubt(format!(
            "no majority of the members renewed: members={} need={need} renewed={} gone={}; ask again",
            self.members,
            self.extended.len(),
            self.gone
        ));
        Renewed::Unknown(self.failures.explain(error))
    }
}
