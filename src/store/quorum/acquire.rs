//! One attempt to win a majority.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::election::{Ballot, Election, Offset, Standing};
use super::release::take_back;
use super::round::{Round, home};
use super::{Shared, as_attempt};
use crate::clock::{ClockKind, Stamp};
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::model::token::FencingToken;
use crate::store::{Acquired, Claim, Grant, GrantProof, Member, Raised, Renewed, Vote};

enum Answer {
    Voted(Result<Vote, Error>, Stamp),
    Raised(Result<Raised, Error>),
}

pub(super) async fn acquire<M: Member>(
    shared: &Arc<Shared<M>>,
    claim: &Claim,
) -> Result<Acquired, Error> {
    match prove_again(shared, claim).await? {
        Some(grant) => Ok(Acquired::Granted(grant)),
        None => campaign(shared, claim).await,
    }
}

/// A claim that holds, and whose answer was lost: the same grant again.
async fn prove_again<M: Member>(
    shared: &Arc<Shared<M>>,
    claim: &Claim,
) -> Result<Option<Grant>, Error> {
    let now = shared.clock.stamp();
    let Some((_, token)) = shared.book.lock().holding(claim, &now) else {
        return Ok(None);
    };
    let grant = Grant::new(claim.clone(), token, GrantProof::of(claim.ttl));
    let answers = super::renew::renew(shared, std::slice::from_ref(&grant)).await;
    match answers.into_iter().next() {
        Some(Renewed::Extended(proof)) => Ok(Some(Grant { proof, ..grant })),
        Some(Renewed::Unknown(why)) => Err(why),
        Some(Renewed::Gone) | None => Ok(None),
    }
}

async fn campaign<M: Member>(shared: &Arc<Shared<M>>, claim: &Claim) -> Result<Acquired, Error> {
    let home = home()?;
    let owner = OwnerToken::generate()?;
    let sent_at = shared.clock.stamp();
    let replaced = shared.book.lock().begin(claim, owner, &sent_at)?;
    if let Some(replaced) = replaced {
        drop(Stake::new(shared, &home, claim, replaced));
    }
    let mut stake = Stake::new(shared, &home, claim, owner);
    let attempt = as_attempt(claim, owner);

    let floor = shared.estimate.lock().floor(&sent_at);
    let mut round = Round::new(home.clone(), shared.clock.clone(), claim.ttl);
    for member in 0..shared.members.len() {
        let vote = vote(
            Arc::clone(shared),
            member,
            claim.clone(),
            attempt.clone(),
            floor,
        );
        round.ask(member, vote);
    }

    let mut election = Election::new(shared.members.len());
    let (token, ttl) = loop {
        match election.standing() {
            Standing::Won { token, ttl } => break (token, ttl),
            Standing::Lost => {
                stake.lost = true;
                return election.loss();
            }
            Standing::Open => {}
        }
        let Some((seat, answer)) = round.next(election.is_quorate()).await else {
            election.close();
            continue;
        };
        match answer {
            Answer::Voted(Ok(vote), answered_at) => match vote.acquired {
                Acquired::Busy { remaining } => {
                    stake.holds_nothing_at(seat);
                    election.busy(seat, remaining);
                }
                Acquired::Granted(grant) => {
                    let ballot = Ballot {
                        token: grant.token,
                        ttl: grant.proof.ttl,
                        offset: offset(vote.micros, &sent_at, &answered_at),
                    };
                    for (seat, token) in election.voted(seat, ballot) {
                        let (member, attempt) =
                            (Arc::clone(&shared.members[seat]), attempt.clone());
                        round.ask(seat, async move {
                            Answer::Raised(member.raise(&attempt, token).await)
                        });
                    }
                }
            },
            Answer::Raised(Ok(Raised::Raised)) => election.raised(seat),
            Answer::Raised(Ok(Raised::Gone)) => election.failed(
                seat,
                Error::unavailable(
                    "a member's vote ran out before its token was raised; try later",
                ),
            ),
            Answer::Voted(Err(why), _) | Answer::Raised(Err(why)) => election.failed(seat, why),
        }
    };

    let ends = sent_at.plus(ttl);
    if !shared.book.lock().win(claim, owner, token, ends) {
        return Err(Error::unavailable(format!(
            "the claim was withdrawn or asked again meanwhile: key={}; try later",
            claim.key
        )));
    }
    if let Some(latest) = election.latest_offset() {
        let micros = micros(&sent_at).saturating_add_signed(latest);
        shared.estimate.lock().saw(sent_at, micros);
    }
    stake.keep();
    Ok(Acquired::Granted(Grant::new(
        claim.clone(),
        token,
        GrantProof::of(ttl),
    )))
}

/// One member's vote. One that comes after the claim was won joins the hold and takes its token.
async fn vote<M: Member>(
    shared: Arc<Shared<M>>,
    member: usize,
    claim: Claim,
    attempt: Claim,
    floor: Option<FencingToken>,
) -> Answer {
    let vote = shared.members[member].vote(&attempt, floor).await;
    let answered_at = shared.clock.stamp();
    if let Ok(Vote {
        acquired: Acquired::Granted(grant),
        ..
    }) = &vote
    {
        let held = shared.book.lock().holding(&claim, &answered_at);
        if let Some((owner, token)) = held
            && owner == attempt.owner
            && token != grant.token
        {
            // Only for those who look: the token is safe with the majority that confirmed it.
            drop(shared.members[member].raise(&attempt, token).await);
        }
    }
    Answer::Voted(vote, answered_at)
}

/// Plants a member that lost the vote again, as long as the hold is proven. False if it refuses for now.
pub(super) async fn plant<M: Member>(
    shared: &Arc<Shared<M>>,
    member: usize,
    claim: &Claim,
    owner: OwnerToken,
) -> bool {
    if !holds(shared, claim, owner) {
        return true;
    }
    let attempt = as_attempt(claim, owner);
    let vote = vote(
        Arc::clone(shared),
        member,
        claim.clone(),
        attempt.clone(),
        None,
    );
    let answer = shared.clock.timeout(claim.ttl, vote).await;
    if !holds(shared, claim, owner) {
        // A release may have been here before the vote, and does not come again.
        take_back(Arc::clone(shared), member, attempt).await;
    }
    matches!(answer, Some(Answer::Voted(Ok(_), _)))
}

fn holds<M>(shared: &Shared<M>, claim: &Claim, owner: OwnerToken) -> bool {
    let now = shared.clock.stamp();
    let held = shared.book.lock().holding(claim, &now);
    held.is_some_and(|(holding, _)| holding == owner)
}

/// Where a member's clock stands against ours, if it answered at some time between the two stamps.
fn offset(micros_there: u64, sent_at: &Stamp, answered_at: &Stamp) -> Offset {
    let there = i64::try_from(micros_there).unwrap_or(i64::MAX);
    let against = |stamp| there.saturating_sub(i64::try_from(micros(stamp)).unwrap_or(i64::MAX));
    Offset {
        least: against(answered_at),
        most: against(sent_at),
    }
}

fn micros(stamp: &Stamp) -> u64 {
    stamp.on(ClockKind::Boot) / 1_000
}

/// What an attempt may have left with the members. Unless it is kept, all of it is taken back: when the attempt is lost, and
/// when its caller drops it at any await.
struct Stake<'a, M: Member> {
    shared: &'a Arc<Shared<M>>,
    home: &'a Handle,
    claim: &'a Claim,
    owner: OwnerToken,
    empty: u64,
    lost: bool,
    kept: bool,
}

impl<'a, M: Member> Stake<'a, M> {
    fn new(
        shared: &'a Arc<Shared<M>>,
        home: &'a Handle,
        claim: &'a Claim,
        owner: OwnerToken,
    ) -> Self {
        Self {
            shared,
            home,
            claim,
            owner,
            empty: 0,
            lost: false,
            kept: false,
        }
    }

    /// The member answered that somebody else holds, and is not asked again.
    fn holds_nothing_at(&mut self, member: usize) {
        self.empty |= 1 << member;
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl<M: Member> Drop for Stake<'_, M> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // What was dropped undecided stays in the book, so that a withdrawal of its claim waits for the members.
        if self.lost {
            self.shared.book.lock().strike(self.claim, self.owner);
        }
        for member in 0..self.shared.members.len() {
            if self.empty & (1 << member) == 0 {
                let attempt = as_attempt(self.claim, self.owner);
                self.home
                    .spawn(take_back(Arc::clone(self.shared), member, attempt));
            }
        }
    }
}
