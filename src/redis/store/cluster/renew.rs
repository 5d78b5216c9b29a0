//! Renewing in a cluster: one script for each slot, one request for each node, all nodes at once.
//!
//! A silent node must not delay what the others have renewed, because the caller uses the answers
//! that it has. So once one node has proven something, the others get a part of the TTL. After that
//! their renewals are unknown, and the manager repeats them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{ErrorKind as Redis, RedisError, ServerErrorKind, Value};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::super::client::RedisClient;
use super::super::connection::{Failure, Purpose};
use super::super::fault;
use super::super::renew::{Confirmation, RENEW_BATCH, all_unknown, renew_call, renew_over};
use super::super::script::Call;
use super::nodes::{Cluster, Node};
use super::route::Passage;
use super::slot::Slot;
use crate::model::error::Error;
use crate::store::{Grant, Renewed};

/// How much later than the first node with a proof another may answer: a tenth of the shortest TTL,
/// within this range. Together with what the first took, that must be less than the manager's
/// [`request_timeout`](crate::Settings::request_timeout), by default half a second; otherwise the
/// answers so far are lost.
const LATE_RANGE: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(200)];

fn most_late(grants: &[Grant]) -> Duration {
    let [least, most] = LATE_RANGE;
    let shortest = grants.iter().map(|grant| grant.claim.ttl).min();
    (shortest.unwrap_or_default() / 10).clamp(least, most)
}

/// The grants of one slot that go in one script, and the index of each among all.
struct Batch<'a> {
    slot: Slot,
    grants: Vec<(usize, &'a Grant)>,
}

/// What one node renews. `None`: no node of these slots is known.
struct Share<'a> {
    node: Option<Arc<Node>>,
    batches: Vec<Batch<'a>>,
}

/// The answers to a batch.
type Answers = Vec<(usize, Renewed)>;

/// The answers to a request.
#[derive(Default)]
struct Answered<'a> {
    answers: Answers,
    /// What the node that was asked does not have: to be asked at the node that has it.
    unsettled: Vec<&'a Batch<'a>>,
}

impl Answered<'_> {
    fn of(answers: Answers) -> Self {
        Self {
            answers,
            ..Self::default()
        }
    }
}

impl Batch<'_> {
    fn unknown(&self, error: &Error) -> Answers {
        let unknown = |(index, _): &(usize, &Grant)| (*index, Renewed::Unknown(error.clone()));
        self.grants.iter().map(unknown).collect()
    }

    fn read(&self, answer: &Value, confirmation: &Confirmation) -> Answers {
        let grants = self.grants.iter().map(|(_, grant)| *grant);
        let renewed = confirmation.read(grants, answer);
        let indices = self.grants.iter().map(|(index, _)| *index);
        indices.zip(renewed).collect()
    }

    /// Each grant by itself.
    fn split(&self) -> Vec<Batch<'_>> {
        (self.grants.iter())
            .map(|grant| Batch {
                slot: self.slot,
                grants: vec![*grant],
            })
            .collect()
    }
}

/// Renews grants at the nodes that have them.
pub(in super::super) async fn renew(
    client: &RedisClient,
    cluster: &Cluster,
    grants: &[Grant],
) -> Vec<Renewed> {
    let shares = match shares(client, cluster, grants) {
        Ok(shares) => shares,
        Err(error) => return all_unknown(grants, &error),
    };
    let mut asked: FuturesUnordered<BoxFuture<'_, Answered<'_>>> = (shares.iter())
        .map(|share| renew_share(client, share).boxed())
        .collect();
    let mut renewed: Vec<Option<Renewed>> = grants.iter().map(|_| None).collect();
    // Whether a node has proven something: a failure at once does not limit the time of the others.
    let mut note = |answers: Answers| {
        let mut is_proof = false;
        for (index, answer) in answers {
            is_proof |= !matches!(answer, Renewed::Unknown(_));
            renewed[index] = Some(answer);
        }
        is_proof
    };
    // A request to another node does not delay the answers of this one.
    let go_on = |unsettled: Vec<_>| {
        unsettled.into_iter().map(|batch| {
            let routed = renew_slot(client, cluster, batch);
            async { Answered::of(routed.await) }.boxed()
        })
    };
    while let Some(answered) = asked.next().await {
        asked.extend(go_on(answered.unsettled));
        if note(answered.answers) {
            break;
        }
    }
    let others = async {
        while let Some(answered) = asked.next().await {
            asked.extend(go_on(answered.unsettled));
            note(answered.answers);
        }
    };
    let most_late = most_late(grants);
    // A missing answer is seen by its empty entry.
    let _ = cluster.clock.timeout(most_late, others).await;
    let late = || {
        Renewed::Unknown(Error::in_doubt(format!(
            "a node of the cluster did not answer within {most_late:?} of another: asked=renew; it may have been done"
        )))
    };
    renewed
        .into_iter()
        .map(|answer| answer.unwrap_or_else(late))
        .collect()
}

/// The grants by slot, and those by node.
fn shares<'a>(
    client: &RedisClient,
    cluster: &Cluster,
    grants: &'a [Grant],
) -> Result<Vec<Share<'a>>, Error> {
    let names = &client.options().names;
    let mut slots: HashMap<Slot, Vec<(usize, &Grant)>> = HashMap::new();
    for (index, grant) in grants.iter().enumerate() {
        let slot = Slot::of(names.lock(&grant.claim.key));
        slots.entry(slot).or_default().push((index, grant));
    }
    let mut shares: Vec<Share<'a>> = Vec::new();
    for (slot, grants) in slots {
        let node = cluster.owner(slot)?;
        let address = node.as_ref().map(Arc::as_ptr);
        let is_its = |share: &Share<'_>| share.node.as_ref().map(Arc::as_ptr) == address;
        let index = shares.iter().position(is_its).unwrap_or(shares.len());
        if index == shares.len() {
            let batches = Vec::new();
            shares.push(Share { node, batches });
        }
        let batches = grants.chunks(RENEW_BATCH).map(|grants| Batch {
            slot,
            grants: grants.to_vec(),
        });
        shares[index].batches.extend(batches);
    }
    Ok(shares)
}

/// The grants of one node, in one request.
async fn renew_share<'a>(client: &RedisClient, share: &'a Share<'a>) -> Answered<'a> {
    let Share { node, batches } = share;
    let connection = match node
        .as_ref()
        .map(|node| node.pool.connection(Purpose::Heartbeat))
    {
        Some(Ok(connection)) => Some(connection).filter(|connection| !connection.is_broken()),
        Some(Err(error)) => {
            return Answered::of(batches.iter().flat_map(|one| one.unknown(&error)).collect());
        }
        None => None,
    };
    let Answered {
        mut answers,
        mut unsettled,
    } = Answered::default();
    match connection {
        None => unsettled.extend(batches),
        Some(connection) => {
            match renew_over(client, &connection, &calls(client, batches), false).await {
                Ok((answered, confirmation)) => {
                    for (batch, answer) in batches.iter().zip(answered) {
                        match answer {
                            Ok(answer) => answers.extend(batch.read(&answer, &confirmation)),
                            Err(refusal) if is_elsewhere(&refusal) => unsettled.push(batch),
                            Err(refusal) => {
                                let error = Failure::of(refusal).into_error("renew");
                                answers.extend(batch.unknown(&error));
                            }
                        }
                    }
                }
                Err(Failure::NotSent(_)) => unsettled.extend(batches),
                Err(failure) => {
                    let error = failure.into_error("renew");
                    answers.extend(batches.iter().flat_map(|batch| batch.unknown(&error)));
                }
            }
        }
    }
    Answered { answers, unsettled }
}

fn calls(client: &RedisClient, batches: &[Batch<'_>]) -> Vec<Call> {
    batches
        .iter()
        .map(|batch| renew_batch(client, batch))
        .collect()
}

fn renew_batch(client: &RedisClient, batch: &Batch<'_>) -> Call {
    renew_call(client, batch.grants.iter().map(|(_, grant)| *grant))
}

/// One slot, at whatever node has it. While it moves, its locks are at two nodes: then each lock is
/// renewed by itself.
async fn renew_slot(client: &RedisClient, cluster: &Cluster, batch: &Batch<'_>) -> Answers {
    match renew_routed(client, cluster, batch).await {
        Ok(answers) => answers,
        Err(Failure::Refused(refusal)) if batch.grants.len() > 1 && is_split(&refusal) => {
            let mut answers = Answers::new();
            for one in batch.split() {
                answers.extend(match renew_routed(client, cluster, &one).await {
                    Ok(answers) => answers,
                    Err(failure) => one.unknown(&failure.into_error("renew")),
                });
            }
            answers
        }
        Err(failure) => batch.unknown(&failure.into_error("renew")),
    }
}

async fn renew_routed(
    client: &RedisClient,
    cluster: &Cluster,
    batch: &Batch<'_>,
) -> Result<Answers, Failure> {
    let call = [renew_batch(client, batch)];
    let mut route = cluster.route(batch.slot, Purpose::Heartbeat, Passage::Follows);
    loop {
        let answered = match route.connection().await {
            Ok(connection) => renew_over(client, &connection, &call, route.is_asking()).await,
            Err(failure) => Err(failure),
        };
        let failure = match answered {
            Ok((mut answers, confirmation)) => match answers.pop() {
                Some(Ok(answer)) => return Ok(batch.read(&answer, &confirmation)),
                Some(Err(refusal)) => Failure::of(refusal),
                None => Failure::Answered(fault::unexpected_reply("renew")),
            },
            Err(failure) => failure,
        };
        route.follow(failure).await?;
    }
}

/// Nothing was done, and another node may do it.
fn is_elsewhere(refusal: &RedisError) -> bool {
    use ServerErrorKind::{Ask, ClusterDown, Moved, NoScript, TryAgain};
    [Ask, ClusterDown, Moved, NoScript, TryAgain]
        .into_iter()
        .any(|kind| refusal.kind() == Redis::Server(kind))
}

/// Some keys are here and some are there.
fn is_split(refusal: &RedisError) -> bool {
    refusal.kind() == Redis::Server(ServerErrorKind::TryAgain)
}
