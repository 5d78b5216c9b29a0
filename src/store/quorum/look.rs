//! What a majority tells: who holds, and when asking again may pay.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use super::Shared;
use super::election::lasting;
use super::round::{Round, home};
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
    shared: &Arc<Shared<M>>,
    claim: &Claim,
) -> Result<Hint, Error> {
    let need = shared.need();
    let mut signs = FuturesUnordered::<BoxFuture<'static, Sign>>::new();
    for member in &shared.members {
        let (member, claim) = (Arc::clone(member), claim.clone());
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
            None => return Err(failures.undecided(need, shared.members.len())),
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
    shared: &Arc<Shared<M>>,
    key: &Key,
) -> Result<Option<LockInfo>, Error> {
    let records = look(shared, |member| {
        let key = key.clone();
        async move { Ok(member.inspect(&key).await?.into_iter().collect()) }
    });
    Ok(records.await?.pop())
}

pub(super) async fn list<M: Member>(
    shared: &Arc<Shared<M>>,
    prefix: &str,
) -> Result<Vec<LockInfo>, Error> {
    look(shared, |member| {
        let prefix = prefix.to_owned();
        async move { member.list(&prefix).await }
    })
    .await
}

/// Asks all members for records, until a majority has told all there is to tell.
async fn look<M, F>(
    shared: &Arc<Shared<M>>,
    ask: impl Fn(Arc<M>) -> F,
) -> Result<Vec<LockInfo>, Error>
where
    M: Member,
    F: Future<Output = Result<Vec<LockInfo>, Error>> + Send + 'static,
{
    let mut round = Round::new(home()?, shared.clock.clone(), LOOK);
    for (number, member) in shared.members.iter().enumerate() {
        round.ask(number, ask(Arc::clone(member)));
    }
    let (need, mut told, mut answered) = (shared.need(), BTreeMap::new(), 0);
    let mut failures = Failures::default();
    loop {
        let open = answered < need || is_open(&told, need, round.pending());
        if !open {
            break;
        }
        match round.next(answered >= need).await {
            Some((_, Ok(records))) => {
                answered += 1;
                for record in records {
                    told.entry(record.key.clone())
                        .or_insert_with(Vec::new)
                        .push(record);
                }
            }
            Some((_, Err(why))) => failures.note(why),
            None => break,
        }
    }
    let silent = shared.members.len() - answered;
    if answered < need
        || told
            .values()
            .any(|records| is_doubtful(records, need, silent))
    {
        return Err(failures.undecided(need, shared.members.len()));
    }
    Ok(told
        .into_values()
        .filter_map(|records| held(records, need))
        .collect())
}

/// Whether the members that are still asked could change what is told.
fn is_open(told: &BTreeMap<Key, Vec<LockInfo>>, need: usize, pending: usize) -> bool {
    let could_change = |records: &Vec<LockInfo>| match held(records.clone(), need) {
        Some(record) => record.token.is_none() && records.iter().any(|r| r.token.is_some()),
        None => is_doubtful(records, need, pending),
    };
    pending > 0 && told.values().any(could_change)
}

/// Whether `silent` members could make a majority of these.
fn is_doubtful(records: &[LockInfo], need: usize, silent: usize) -> bool {
    let most = most_told(records);
    most < need && most + silent >= need
}

fn most_told(records: &[LockInfo]) -> usize {
    let like = |one: &LockInfo| {
        records
            .iter()
            .filter(|other| other.label == one.label)
            .count()
    };
    records.iter().map(like).max().unwrap_or(0)
}

/// The record of a hold that a majority tells of. Its token, if a majority tells the same: else it is being won just now.
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
    Some(LockInfo {
        token,
        remaining: lasting(&mut remaining, need),
        ..first
    })
}

/// Why members did not say.
#[derive(Default)]
struct Failures {
    denied: usize,
    told: Option<Error>,
}

impl Failures {
    fn note(&mut self, why: Error) {
        if why.kind() == ErrorKind::Denied {
            self.denied += 1;
            self.told = Some(why);
        } else {
            self.told.get_or_insert(why);
        }
    }

    fn undecided(self, need: usize, members: usize) -> Error {
        // Without those that refuse us there is no majority at any time.
        let error = if self.denied + need > members {
            Error::denied(
                "so many members refuse this caller that there is no majority; mend user, password or access list",
            )
        } else {
            Error::unavailable("no majority of the members could say; try later")
        };
        match self.told {
            Some(why) => error.because(why),
            None => error,
        }
    }
}
