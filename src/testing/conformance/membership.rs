//! What a store must do beyond the others to vote in a quorum: see the contract of [`Member`].

use std::time::Duration;

use super::case::{Bench, Case, CaseError, CaseResult, always, broken, cases, ensure, unexpected};
use super::harness::Harness;
use crate::model::token::FencingToken;
use crate::store::{Acquired, Claim, Grant, MAX_SKEW, Member, Raised, Store};

/// How far ahead of a member's time the cases go: near enough to be allowed, far enough not to be
/// reached by the clock.
const NEAR: Duration = Duration::from_millis(500);
const FAR: Duration = Duration::from_secs(60);

cases! {
    [Member]
    a_votes_token_is_near_the_members_time, always,
        "without a floor the token is not further from the time that is reported than the skew allows";
    a_vote_is_given_again, always,
        "a claim that has the vote and asks again gets the same token";
    a_floor_is_met, always,
        "with a floor a little ahead of the member's time, the token is at least the floor";
    a_far_floor_is_taken_for_none, always,
        "a floor that is further ahead than the skew does not raise the token";
    a_raise_makes_every_later_token_larger, always,
        "after a raise and a release, the next token is larger than the raised one";
    a_raise_never_lowers, always,
        "a raise to a token below the vote's leaves the counter where it was";
    another_claims_raise_changes_nothing, always,
        "a raise with another owner token is answered with gone, and raises nothing";
    a_far_raise_is_refused, always,
        "a raise that is further ahead of the member's time than the skew is an error";
    a_withdrawn_claim_gets_no_vote, always,
        "a vote that is asked for after the claim's withdrawal is refused";
}

/// A vote for us: the grant, and the member's time.
async fn voted<H: Harness>(
    store: &H::Store,
    claim: &Claim,
    floor: Option<FencingToken>,
) -> Result<(Grant, u64), CaseError>
where
    H::Store: Member,
{
    let vote = store.vote(claim, floor).await?;
    match vote.acquired {
        Acquired::Granted(grant) => Ok((grant, vote.micros)),
        other => Err(unexpected("a vote for a free key", &other)),
    }
}

fn after(micros: u64, ahead: Duration) -> Result<FencingToken, CaseError> {
    Ok(FencingToken::new(micros + ahead.as_micros() as u64)?)
}

/// The member's time, by a vote for a key of its own.
async fn time<H: Harness>(bench: &Bench<'_, H>) -> Result<u64, CaseError>
where
    H::Store: Member,
{
    let claim = bench.claim(&bench.key()?)?;
    let (_, micros) = voted::<H>(&bench.a, &claim, None).await?;
    bench.a.withdraw(&claim).await?;
    Ok(micros)
}

async fn a_votes_token_is_near_the_members_time<H: Harness>(bench: &Bench<'_, H>) -> CaseResult
where
    H::Store: Member,
{
    let claim = bench.claim(&bench.key()?)?;
    let (grant, micros) = voted::<H>(&bench.a, &claim, None).await?;
    let apart = Duration::from_micros(grant.token.number().abs_diff(micros));
    ensure(apart <= MAX_SKEW, || {
        format!("token {} is {apart:?} from the time {micros}", grant.token)
    })?;
    Ok(bench.a.withdraw(&claim).await?)
}

async fn a_vote_is_given_again<H: Harness>(bench: &Bench<'_, H>) -> CaseResult
where
    H::Store: Member,
{
    let claim = bench.claim(&bench.key()?)?;
    let (first, micros) = voted::<H>(&bench.a, &claim, None).await?;
    let (second, _) = voted::<H>(&bench.a, &claim, Some(after(micros, NEAR)?)).await?;
    ensure(first.token == second.token, || {
        format!("expected token {} again, got {}", first.token, second.token)
    })?;
    Ok(bench.a.withdraw(&claim).await?)
}

async fn a_floor_is_met<H: Harness>(bench: &Bench<'_, H>) -> CaseResult
where
    H::Store: Member,
{
    let floor = after(time(bench).await?, NEAR)?;
    let claim = bench.claim(&bench.key()?)?;
    let (grant, _) = voted::<H>(&bench.a, &claim, Some(floor)).await?;
    ensure(grant.token >= floor, || {
        format!("expected at least {floor}, got {}", grant.token)
    })?;
    Ok(bench.a.withdraw(&claim).await?)
}

async fn a_far_floor_is_taken_for_none<H: Harness>(bench: &Bench<'_, H>) -> CaseResult
where
    H::Store: Member,
{
    let floor = after(time(bench).await?, FAR)?;
    let claim = bench.claim(&bench.key()?)?;
    let (grant, micros) = voted::<H>(&bench.a, &claim, Some(floor)).await?;
    let most = after(micros, MAX_SKEW)?;
    ensure(grant.token <= most, || {
        format!("expected at most {most}, got {}", grant.token)
    })?;
    Ok(bench.a.withdraw(&claim).await?)
}

async fn a_raise_makes_every_later_token_larger<H: Harness>(bench: &Bench<'_, H>) -> CaseResult
where
    H::Store: Member,
{
    let key = bench.key()?;
    let claim = bench.claim(&key)?;
    let (_, micros) = voted::<H>(&bench.a, &claim, None).await?;
    let raised = after(micros, NEAR)?;
    raise::<H>(&bench.a, &claim, raised).await?;
    next_is_above(bench, &claim, raised).await
}

async fn a_raise_never_lowers<H: Harness>(bench: &Bench<'_, H>) -> CaseResult
where
    H::Store: Member,
{
    let key = bench.key()?;
    let floor = after(time(bench).await?, NEAR)?;
    let claim = bench.claim(&key)?;
    let (grant, _) = voted::<H>(&bench.a, &claim, Some(floor)).await?;
    let lower = FencingToken::new(grant.token.number() - 1_000)?;
    raise::<H>(&bench.a, &claim, lower).await?;
    next_is_above(bench, &claim, grant.token).await
}

async fn raise<H: Harness>(store: &H::Store, claim: &Claim, token: FencingToken) -> CaseResult
where
    H::Store: Member,
{
    match store.raise(claim, token).await? {
        Raised::Raised => Ok(()),
        other => Err(unexpected("Raised", &other)),
    }
}

async fn next_is_above<H: Harness>(
    bench: &Bench<'_, H>,
    claim: &Claim,
    token: FencingToken,
) -> CaseResult
where
    H::Store: Member,
{
    bench.a.withdraw(claim).await?;
    let next = bench.claim(&claim.key)?;
    let (grant, _) = voted::<H>(&bench.b, &next, None).await?;
    ensure(grant.token > token, || {
        format!("expected a token above {token}, got {}", grant.token)
    })?;
    Ok(bench.b.withdraw(&next).await?)
}

async fn another_claims_raise_changes_nothing<H: Harness>(bench: &Bench<'_, H>) -> CaseResult
where
    H::Store: Member,
{
    // The counter may be one for all keys, and ahead by what the other cases raised.
    bench.harness.pass(MAX_SKEW).await;
    let key = bench.key()?;
    let claim = bench.claim(&key)?;
    let (_, micros) = voted::<H>(&bench.a, &claim, None).await?;
    let raised = after(micros, NEAR)?;
    match bench.b.raise(&bench.claim(&key)?, raised).await? {
        Raised::Gone => {}
        other => return Err(unexpected("Gone", &other)),
    }
    bench.a.withdraw(&claim).await?;
    let next = bench.claim(&key)?;
    let (grant, now) = voted::<H>(&bench.b, &next, None).await?;
    bench.b.withdraw(&next).await?;
    if now >= raised.number() {
        return Err(CaseError::TooSlow);
    }
    ensure(grant.token < raised, || {
        format!("expected a token below {raised}, got {}", grant.token)
    })
}

async fn a_far_raise_is_refused<H: Harness>(bench: &Bench<'_, H>) -> CaseResult
where
    H::Store: Member,
{
    let claim = bench.claim(&bench.key()?)?;
    let (_, micros) = voted::<H>(&bench.a, &claim, None).await?;
    match bench.a.raise(&claim, after(micros, FAR)?).await {
        Err(_) => Ok(bench.a.withdraw(&claim).await?),
        Ok(raised) => Err(unexpected("an error", &raised)),
    }
}

async fn a_withdrawn_claim_gets_no_vote<H: Harness>(bench: &Bench<'_, H>) -> CaseResult
where
    H::Store: Member,
{
    let claim = bench.claim(&bench.key()?)?;
    bench.a.withdraw(&claim).await?;
    match bench.a.vote(&claim, None).await {
        Err(_) => Ok(()),
        Ok(vote) if matches!(vote.acquired, Acquired::Busy { .. }) => Ok(()),
        Ok(_) => Err(broken("a withdrawn claim got a vote")),
    }
}
