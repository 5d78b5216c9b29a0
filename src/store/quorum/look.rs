//! What a majority reports: who holds, and when asking again may pay.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use super::electorate::Electorate;
use super::failures::Failures;
use super::round::{Round, home, patience_of};
use super::vote_count::lasting;
use crate::model::error::{Error, ErrorKind};
use crate::model::key::Key;
use crate::store::{Claim, Hint, LockInfo, Member};

/// How long a look waits for the slower members is a part of this: no TTL is at hand.
const LOOK: Duration = Duration::from_secs(10);

enum Sign {
    Subscribed(Result<Hint, Error>),
    Woken,
}

/// Resolves when those of a majority have: then the next attempt may find one.
pub(super) async fn subscribe<M: Member>(
    electorate: &Arc<Electorate<M>>,
    claim: &Claim,
) -> Result<Hint, Error> {
    let need = electorate.need();
    let mut signs = FuturesUnordered::<BoxFuture<'static, Sign>>::new();
    for member in &electorate.members {
        let (member, mut claim) = (Arc::clone(member), claim.clone());
        // Its votes are asked for under other owners, and take no place.
        claim.place_ttl = Duration::ZERO;
        signs.push(Box::pin(async move {
            Sign::Subscribed(member.subscribe(&claim).await)
        }));
    }
    let (mut subscribed, mut woken, mut failures) = (0, 0, Failures::default());
    while subscribed < need {
        match signs.next().await {
            Some(Sign::Subscribed(Ok(hint))) => {
                subscribed += 1;
                signs.push(woken_by(hint));
            }
            Some(Sign::Subscribed(Err(why))) => failures.note(why),
            Some(Sign::Woken) => woken += 1,
            None => return Err(undecided(&failures, need, electorate.members.len())),
        }
    }
    Ok(Hint::new(async move {
        while woken < need {
            match signs.next().await {
                Some(Sign::Subscribed(Ok(hint))) => signs.push(woken_by(hint)),
                Some(Sign::Subscribed(Err(_))) => {}
                Some(Sign::Woken) => woken += 1,
                None => std::future::pending().await,
            }
        }
    }))
}

fn woken_by(hint: Hint) -> BoxFuture<'static, Sign> {
    Box::pin(async move {
        hint.await;
        Sign::Woken
    })
}

pub(super) async fn inspect<M: Member>(
    electorate: &Arc<Electorate<M>>,
    key: &Key,
) -> Result<Option<LockInfo>, Error> {
    let records = look(electorate, |member| {
        let key = key.clone();
        async move { Ok(member.inspect(&key).await?.into_iter().collect()) }
    });
    Ok(records.await?.pop())
}

pub(super) async fn list<M: Member>(
    electorate: &Arc<Electorate<M>>,
    prefix: &str,
) -> Result<Vec<LockInfo>, Error> {
    look(electorate, |member| {
        let prefix = prefix.to_owned();
        async move { member.list(&prefix).await }
    })
    .await
}

/// Asks all members for records, until a majority has reported all that there is.
async fn look<M, F>(
    electorate: &Arc<Electorate<M>>,
    ask: impl Fn(Arc<M>) -> F,
) -> Result<Vec<LockInfo>, Error>
where
    M: Member,
    F: Future<Output = Result<Vec<LockInfo>, Error>> + Send + 'static,
{
    let mut round = Round::new(home()?, electorate.clock.clone(), patience_of(LOOK));
    let now = electorate.clock.stamp();
    electorate.compare(&now);
    for (number, member) in electorate.members.iter().enumerate() {
        if !electorate.is_silent(number, &now) {
            round.ask(number, ask(Arc::clone(member)));
        }
    }
    let (need, mut records_of, mut answered) = (electorate.need(), BTreeMap::new(), 0);
    let mut failures = Failures::default();
    loop {
        let open = answered < need || is_open(&records_of, need, round.pending());
        if !open {
            break;
        }
        match round.next(answered >= need).await {
            Some((_, Ok(records))) => {
                answered += 1;
                for record in records {
                    records_of
                        .entry(record.key.clone())
                        .or_insert_with(Vec::new)
                        .push(record);
                }
            }
            Some((_, Err(why))) => failures.note(why),
            None => break,
        }
    }
    let silent = electorate.members.len() - answered;
    if answered < need
        || records_of
            .values()
            .any(|records| is_doubtful(records, need, silent))
    {
        return Err(undecided(&failures, need, electorate.members.len()));
    }
    Ok(records_of
        .into_values()
        .filter_map(|records| held(records, need))
        .collect())
}

/// Whether the members that are still asked could change what is reported.
fn is_open(records_of: &BTreeMap<Key, Vec<LockInfo>>, need: usize, pending: usize) -> bool {
    let could_change = |records: &Vec<LockInfo>| match held(records.clone(), need) {
        Some(record) => record.token.is_none() && records.iter().any(|r| r.token.is_some()),
        None => is_doubtful(records, need, pending),
    };
    pending > 0 && records_of.values().any(could_change)
}

/// Whether `silent` members could make a majority of these.
fn is_doubtful(records: &[LockInfo], need: usize, silent: usize) -> bool {
    let most = most_alike(records);
    most < need && most + silent >= need
}

fn most_alike(records: &[LockInfo]) -> usize {
    let like = |one: &LockInfo| {
        records
            .iter()
            .filter(|other| other.label == one.label)
            .count()
    };
    records.iter().map(like).max().unwrap_or(0)
}

/// The record of a hold that a majority reports, and for how long a majority has granted it. It has
/// a token if a majority reports the same one; otherwise it is being won at this time.
fn held(records: Vec<LockInfo>, need: usize) -> Option<LockInfo> {
    let like = |one: &LockInfo, other: &LockInfo| one.label == other.label;
    let first = records
        .iter()
        .find(|one| records.iter().filter(|other| like(one, other)).count() >= need)?
        .clone();
    let same: Vec<_> = records.iter().filter(|other| like(&first, other)).collect();
    let tokens = same.iter().filter_map(|record| record.token);
    let token = tokens
        .clone()
        .find(|&token| tokens.clone().filter(|&other| other == token).count() >= need);
    let mut remaining: Vec<_> = same.iter().filter_map(|record| record.remaining).collect();
    let mut held_for: Vec<_> = same.iter().filter_map(|record| record.held_for).collect();
    Some(LockInfo {
        token,
        remaining: lasting(&mut remaining, need),
        held_for: lasting(&mut held_for, need),
        ..first
    })
}

fn undecided(failures: &Failures, need: usize, members: usize) -> Error {
    let kind = failures.kind(need, members);
    failures.explain(Error::new(
        kind,
        match kind {
            ErrorKind::Unavailable => "no majority of the members answered; try later",
            _ => "so many members refuse that there is no majority without them; see why the first one does",
        },
    ))
}
