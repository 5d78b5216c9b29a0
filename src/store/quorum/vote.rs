//! One member's vote: asked for, restored, taken back.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::backlog::Withdrawal;
use super::electorate::{Electorate, as_attempt};
use super::round::LEFTOVER_BOUND;
use super::votes::VoteSet;
use crate::clock::Stamp;
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::OwnerToken;
use crate::model::token::FencingToken;
use crate::store::{Acquired, Claim, Member, Vote};

/// Into how many parts of a TTL the pauses between two tries of a withdrawal divide it.
const TRIES: u32 = 6;
/// The longest pause: a member's other attempts, which may have shorter TTLs, wait meanwhile.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One attempt's request to one member.
pub(super) struct Ballot {
    pub(super) member: usize,
    pub(super) claim: Claim,
    pub(super) attempt: Claim,
    pub(super) votes: VoteSet,
    pub(super) floor: Option<FencingToken>,
    /// A hold asks again for a vote that the member lost. Otherwise the vote counts until its
    /// attempt is decided.
    pub(super) restores: bool,
}

/// Asks for the vote if it is still wanted when it can be sent. The vote is on its connection
/// before anything else of its attempt is, since nothing is awaited between the check and the
/// request.
async fn cast<M: Member>(electorate: &Electorate<M>, ballot: &Ballot) -> Result<Vote, Error> {
    let (claim, member) = (&ballot.claim, ballot.member);
    electorate.members[member].ready().await?;
    let is_wanted = if ballot.restores {
        electorate.holds(claim, ballot.attempt.owner)
    } else {
        ballot.votes.enter(member)
    };
    if !is_wanted {
        return Err(Error::unavailable(format!(
            "the attempt was decided before this vote was sent: key={}; nothing was asked",
            claim.key
        )));
    }
    let asked = &electorate.members[member];
    asked.vote(&ballot.attempt, ballot.floor).await
}

/// One member's vote, and when it came. A vote that comes after the claim was won joins the hold
/// and takes its token.
pub(super) async fn vote<M: Member>(
    electorate: Arc<Electorate<M>>,
    ballot: Ballot,
) -> (Result<Vote, Error>, Stamp) {
    let member = ballot.member;
    let vote = cast(&electorate, &ballot).await;
    let answered_at = electorate.clock.stamp();
    electorate.heard(member, vote.is_ok());
    match &vote {
        Ok(Vote {
            acquired: Acquired::Granted(grant),
            ..
        }) => {
            let held = electorate.book.lock().holding(&ballot.claim, &answered_at);
            if let Some((owner, token)) = held
                && owner == ballot.attempt.owner
                && token != grant.token
            {
                // Only for those who look: the token is safe with the majority that confirmed it.
                drop(
                    electorate.members[member]
                        .raise(&ballot.attempt, token)
                        .await,
                );
            }
        }
        Ok(_) => ballot.votes.refused(member),
        Err(why) if nothing_was_done(why.kind()) => ballot.votes.refused(member),
        Err(_) => {}
    }
    (vote, answered_at)
}

fn nothing_was_done(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable | ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::Invalid
    )
}

/// Asks a member that lost the vote for it again, as long as the hold is proven. False if it
/// refuses for now.
pub(super) async fn restore_vote<M: Member>(
    electorate: &Arc<Electorate<M>>,
    member: usize,
    claim: &Claim,
    owner: OwnerToken,
) -> bool {
    let Some(votes) = electorate.book.lock().votes(claim, owner) else {
        return true;
    };
    // Before the look: a release that comes between the two finds the vote in the set.
    votes.enter_again(member);
    if !electorate.holds(claim, owner) {
        return true;
    }
    let ballot = Ballot {
        member,
        claim: claim.clone(),
        attempt: as_attempt(claim, owner),
        votes: votes.clone(),
        floor: None,
        restores: true,
    };
    let attempt = ballot.attempt.clone();
    let vote = vote(Arc::clone(electorate), ballot);
    let answer = electorate.clock.timeout(claim.ttl, vote).await;
    if !electorate.holds(claim, owner) {
        // A release may have been here before the vote, and does not come again.
        if let Ok(home) = Handle::try_current() {
            take_back(Arc::clone(electorate), home, member, attempt, votes).await;
        }
    }
    match answer {
        Some((Ok(vote), _)) => !matches!(vote.acquired, Acquired::NotReady { .. }),
        _ => false,
    }
}

/// Asks one member to withdraw an attempt. What it does not answer is asked again until the
/// attempt's time is over, one attempt after the other.
pub(super) async fn take_back<M: Member>(
    electorate: Arc<Electorate<M>>,
    home: Handle,
    member: usize,
    attempt: Claim,
    votes: VoteSet,
) {
    let over_at = electorate.clock.stamp().plus(attempt.ttl);
    if withdraw_once(&electorate, member, &attempt, &votes).await {
        return;
    }
    let withdrawal = Withdrawal {
        attempt,
        votes,
        over_at,
    };
    let must_start = electorate.backlogs[member].lock().push(withdrawal);
    if must_start {
        home.spawn(work_off(electorate, member));
    }
}

async fn withdraw_once<M: Member>(
    electorate: &Electorate<M>,
    member: usize,
    attempt: &Claim,
    votes: &VoteSet,
) -> bool {
    let withdraw = electorate.members[member].withdraw(attempt);
    let limit = attempt.ttl.min(LEFTOVER_BOUND);
    let withdrawn = electorate.clock.timeout(limit, withdraw).await;
    let is_done = matches!(withdrawn, Some(Ok(())));
    electorate.heard(member, is_done);
    if is_done {
        votes.remove(member);
    }
    is_done
}

/// Works on a member's backlog until nothing is left of it.
async fn work_off<M: Member>(electorate: Arc<Electorate<M>>, member: usize) {
    loop {
        let now = electorate.clock.stamp();
        let next = electorate.backlogs[member].lock().next(&now);
        let Some(withdrawal) = next else { return };
        let (attempt, votes) = (&withdrawal.attempt, &withdrawal.votes);
        if !withdraw_once(&electorate, member, attempt, votes).await {
            let pause = (attempt.ttl / TRIES).min(LONGEST_PAUSE);
            // The task is this one.
            let _ = electorate.backlogs[member].lock().push(withdrawal);
            electorate.clock.sleep(pause).await;
        }
    }
}
