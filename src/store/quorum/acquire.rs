//! A claim: attempt after attempt to win a majority, while nobody else can have one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;

use super::attempt::{AttemptGuard, take_back_all};
use super::book::Begun;
use super::electorate::{Electorate, as_attempt};
use super::round::{Round, home, patience};
use super::silence::Ask;
use super::vote::{Ballot, vote};
use super::vote_count::{Counted, Offset, Standing, VoteCount};
use super::votes::VoteSet;
use crate::clock::{ClockKind, Stamp};
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::model::random::Jitter;
use crate::model::token::FencingToken;
use crate::store::{Acquired, Claim, Grant, GrantProof, LockMode, Member, Raised, Renewed, Vote};

/// How many attempts follow one in which the votes were split.
const MOST_RETRIES: u32 = 6;
/// The pause before the next of them is random, up to this for each contender, and twice that after
/// each retry.
const BACK_OFF: Duration = Duration::from_micros(500);
const MOST_DOUBLINGS: u32 = 3;

enum MemberAnswer {
    Voted(Result<Vote, Error>, Stamp),
    Raised(Result<Raised, Error>),
}

/// How an attempt ended.
enum CampaignEnd {
    Decided(Result<Acquired, Error>),
    /// Nobody can have a majority, because this many others have votes.
    Split(u32, Result<Acquired, Error>),
    /// The claim held already, and its hold is over.
    Over,
}

pub(super) async fn acquire<M: Member>(
    electorate: &Arc<Electorate<M>>,
    claim: &Claim,
) -> Result<Acquired, Error> {
    if claim.mode != LockMode::Exclusive {
        return Err(Error::unsupported(format!(
            "a quorum has no readers and writers: key={}; use an exclusive lock, or another store",
            claim.key
        )));
    }
    let mut retries = 0;
    loop {
        match campaign(electorate, claim).await? {
            CampaignEnd::Split(contenders, _) if retries < MOST_RETRIES => {
                let pause = back_off(contenders, retries);
                electorate.clock.sleep(pause).await;
                retries += 1;
            }
            CampaignEnd::Decided(answer) | CampaignEnd::Split(_, answer) => return answer,
            CampaignEnd::Over => {}
        }
    }
}

/// Random, so that of two that took votes from each other one is first the next time.
fn back_off(contenders: u32, retries: u32) -> Duration {
    let most = BACK_OFF * (contenders + 1) * (1 << retries.min(MOST_DOUBLINGS));
    Jitter::seeded().up_to(most)
}

/// A claim that holds, and whose answer was lost: the same grant again.
async fn prove_again<M: Member>(
    electorate: &Arc<Electorate<M>>,
    claim: &Claim,
    token: FencingToken,
) -> Result<CampaignEnd, Error> {
    let grant = Grant::new(claim.clone(), token, GrantProof::of(claim.ttl));
    let answers = super::renew::renew(electorate, std::slice::from_ref(&grant)).await;
    match answers.into_iter().next() {
        Some(Renewed::Extended(proof)) => Ok(CampaignEnd::Decided(Ok(Acquired::Granted(Grant {
            proof,
            ..grant
        })))),
        Some(Renewed::Unknown(why)) => Err(why),
        Some(Renewed::Gone) | None => Ok(CampaignEnd::Over),
    }
}

/// One attempt: asks the members for their votes, and counts them.
async fn campaign<M: Member>(
    electorate: &Arc<Electorate<M>>,
    claim: &Claim,
) -> Result<CampaignEnd, Error> {
    let home = home()?;
    let owner = OwnerToken::generate()?;
    let votes = VoteSet::default();
    let sent_at = electorate.clock.stamp();
    let begun = (electorate.book.lock()).begin(claim, owner, votes.clone(), &sent_at)?;
    let replaced = match begun {
        Begun::Asks(replaced) => replaced,
        Begun::Holds(token) => return prove_again(electorate, claim, token).await,
        Begun::Lost(left) => {
            let remaining = Some(left);
            return Ok(CampaignEnd::Decided(Ok(Acquired::Busy { remaining })));
        }
    };
    if let Some((replaced, its_votes)) = replaced {
        take_back_all(electorate, &home, claim, replaced, &its_votes);
    }
    let guard = AttemptGuard::new(electorate, &home, claim, owner, votes.clone());
    let attempt = as_attempt(claim, owner);
    let mut count = VoteCount::new(electorate.members.len());
    let mut round = ask_all(
        electorate, &home, claim, &attempt, &votes, &sent_at, &mut count,
    );

    let standing = count_votes(electorate, &attempt, &sent_at, &mut round, &mut count).await;
    if count.majority_answered() {
        electorate.note_unanswered(&round);
    }
    let Some((token, ttl)) = standing else {
        let granted = count.granted().map(|(member, counted)| {
            let proof = GrantProof::of(counted.ttl);
            (member, Grant::new(attempt.clone(), counted.token, proof))
        });
        guard.give_back(granted.collect()).await;
        return Ok(match count.contenders() {
            Some(contenders) => CampaignEnd::Split(contenders, count.loss()),
            None => CampaignEnd::Decided(count.loss()),
        });
    };

    let ends = sent_at.plus(ttl);
    if !electorate.book.lock().win(claim, owner, token, ends) {
        return Err(Error::unavailable(format!(
            "the claim was withdrawn or asked again meanwhile: key={}; try later",
            claim.key
        )));
    }
    if let Some(latest) = count.latest_offset() {
        let micros = micros(&sent_at).saturating_add_signed(latest);
        electorate.estimate.lock().saw(sent_at, micros);
    }
    guard.keep();
    let grant = Grant::new(claim.clone(), token, GrantProof::of(ttl));
    Ok(CampaignEnd::Decided(Ok(Acquired::Granted(grant))))
}

/// Sends the ballots. A member that gives no answers gets one at a time, and is not counted on.
fn ask_all<M: Member>(
    electorate: &Arc<Electorate<M>>,
    home: &Handle,
    claim: &Claim,
    attempt: &Claim,
    votes: &VoteSet,
    sent_at: &Stamp,
    count: &mut VoteCount,
) -> Round<MemberAnswer> {
    let floor = electorate.estimate.lock().floor(sent_at);
    let clock = electorate.clock.clone();
    let mut round = Round::new(home.clone(), clock, patience(claim.ttl));
    electorate.compare(sent_at);
    for member in 0..electorate.members.len() {
        let how = electorate.how_to_ask(member, sent_at, claim.ttl);
        if how != Ask::AndWait {
            count.is_silent(member);
        }
        if how == Ask::Not {
            continue;
        }
        let ballot = Ballot {
            member,
            claim: claim.clone(),
            attempt: attempt.clone(),
            votes: votes.clone(),
            floor,
            restores: false,
        };
        let vote = vote(Arc::clone(electorate), ballot);
        round.ask(
            member,
            vote.map(|(vote, answered_at)| MemberAnswer::Voted(vote, answered_at)),
        );
    }
    round
}

/// Counts the votes until the attempt is won or lost.
async fn count_votes<M: Member>(
    electorate: &Arc<Electorate<M>>,
    attempt: &Claim,
    sent_at: &Stamp,
    round: &mut Round<MemberAnswer>,
    count: &mut VoteCount,
) -> Option<(FencingToken, Duration)> {
    loop {
        match count.standing() {
            Standing::Won { token, ttl } => return Some((token, ttl)),
            Standing::Lost => return None,
            Standing::Open => {}
        }
        let Some((seat, answer)) = round.next(count.is_quorate()).await else {
            count.close();
            continue;
        };
        match answer {
            MemberAnswer::Voted(Ok(vote), answered_at) => match vote.acquired {
                Acquired::Busy { remaining } => count.busy(seat, remaining),
                Acquired::NotReady { retry_after } => count.not_ready(seat, retry_after),
                Acquired::Granted(grant) => {
                    let counted = Counted {
                        token: grant.token,
                        ttl: grant.proof.left_at(sent_at),
                        offset: offset(vote.micros, sent_at, &answered_at),
                    };
                    for (seat, token) in count.voted(seat, counted) {
                        let member = Arc::clone(&electorate.members[seat]);
                        let attempt = attempt.clone();
                        round.ask(seat, async move {
                            MemberAnswer::Raised(member.raise(&attempt, token).await)
                        });
                    }
                }
            },
            MemberAnswer::Raised(Ok(Raised::Raised)) => count.raised(seat),
            MemberAnswer::Raised(Ok(Raised::Gone)) => count.failed(
                seat,
                Error::unavailable(
                    "a member's vote ran out before its token was raised; try later",
                ),
            ),
            MemberAnswer::Voted(Err(why), _) | MemberAnswer::Raised(Err(why)) => {
                count.failed(seat, why)
            }
        }
    }
}

/// The difference between a member's clock and ours, if it answered at some time between the two
/// stamps.
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
