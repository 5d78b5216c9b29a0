//! Renewing in a cluster: one script for each slot, one request for each node, all nodes at once.
//!
//! A node that is silent must not hold up what the others have renewed: the caller counts by the answers that it has. So once
//! a node has proven something, the others have a part of the TTL left. What they were asked is unknown then, and is asked
//! again by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{ErrorKind as Redis, RedisError, ServerErrorKind, Value};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::super::fault;
use super::super::link::Failure;
use super::super::links::Purpose;
use super::super::renew::{Confirmation, RENEW_BATCH, all_unknown};
use super::super::script::Call;
use super::super::store::Shared;
use super::nodes::{Cluster, Node};
use super::route::Passage;
use super::slot::Slot;
use crate::model::error::Error;
use crate::store::{Grant, Renewed};

/// How much later than the first node with a proof another may answer: a tenth of the shortest TTL, from the first of these to
/// the second. Together with what the first took, that must be less than the manager's
/// [`request_timeout`](crate::Settings::request_timeout), by default half a second: else what has come is lost.
const LATE_RANGE: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(200)];

fn most_late(grants: &[Grant]) -> Duration {
    let [least, most] = LATE_RANGE;
    let shortest = grants.iter().map(|grant| grant.claim.ttl).min();
    (shortest.unwrap_or_default() / 10).clamp(least, most)
}

/// The grants of one slot that go in one script, and where each stands among all.
struct Batch<'a> {
    slot: Slot,
    grants: Vec<(usize, &'a Grant)>,
}

/// What one node renews. `None`: of these slots no node is known.
struct Share<'a> {
    node: Option<Arc<Node>>,
    batches: Vec<Batch<'a>>,
}

/// What came of a batch.
type Answers = Vec<(usize, Renewed)>;

/// What came of a request.
#[derive(Default)]
struct Told<'a> {
    answers: Answers,
    /// What the node that was asked could not settle: to be asked wherever it is.
    unsettled: Vec<&'a Batch<'a>>,
}

impl Told<'_> {
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

impl Shared {
    /// Renews grants at the nodes that have them.
    pub(in super::super) async fn renew_in(
        &self,
        cluster: &Cluster,
        grants: &[Grant],
    ) -> Vec<Renewed> {
        let shares = match self.shares(cluster, grants) {
            Ok(shares) => shares,
            Err(error) => return all_unknown(grants, &error),
        };
        let mut asked: FuturesUnordered<BoxFuture<'_, Told<'_>>> = (shares.iter())
            .map(|share| self.renew_share(share).boxed())
            .collect();
        let mut renewed: Vec<Option<Renewed>> = grants.iter().map(|_| None).collect();
        // Whether a node has proven something: what fails at once says nothing of how long the others may take.
        let mut note = |answers: Answers| {
            let mut is_proof = false;
            for (index, answer) in answers {
                is_proof |= !matches!(answer, Renewed::Unknown(_));
                renewed[index] = Some(answer);
            }
            is_proof
        };
        // What is asked elsewhere holds up nothing of what this node has told.
        let go_on = |unsettled: Vec<_>| {
            unsettled.into_iter().map(|batch| {
                let routed = self.renew_slot(cluster, batch);
                async { Told::of(routed.await) }.boxed()
            })
        };
        while let Some(told) = asked.next().await {
            asked.extend(go_on(told.unsettled));
            if note(told.answers) {
                break;
            }
        }
        let others = async {
            while let Some(told) = asked.next().await {
                asked.extend(go_on(told.unsettled));
                note(told.answers);
            }
        };
        let most_late = most_late(grants);
        // What has not come by then is seen by its place, which is empty.
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
    fn shares<'a>(&self, cluster: &Cluster, grants: &'a [Grant]) -> Result<Vec<Share<'a>>, Error> {
        let names = &self.options().names;
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

    /// What one node has, in one request.
    async fn renew_share<'a>(&self, share: &'a Share<'a>) -> Told<'a> {
        let Share { node, batches } = share;
        let link = match node
            .as_ref()
            .map(|node| node.links.link(Purpose::Heartbeat))
        {
            Some(Ok(link)) => Some(link).filter(|link| !link.is_broken()),
            Some(Err(error)) => {
                return Told::of(batches.iter().flat_map(|one| one.unknown(&error)).collect());
            }
            None => None,
        };
        let Told {
            mut answers,
            mut unsettled,
        } = Told::default();
        match link {
            None => unsettled.extend(batches),
            Some(link) => match self.renew_over(&link, &self.calls(batches), false).await {
                Ok((told, confirmation)) => {
                    for (batch, answer) in batches.iter().zip(told) {
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
            },
        }
        Told { answers, unsettled }
    }

    fn calls(&self, batches: &[Batch<'_>]) -> Vec<Call> {
        batches
            .iter()
            .map(|batch| self.renew_batch(batch))
            .collect()
    }

    fn renew_batch(&self, batch: &Batch<'_>) -> Call {
        self.renew_call(batch.grants.iter().map(|(_, grant)| *grant))
    }

    /// One slot, wherever it is. While it moves, what it has is in two places: then each lock is asked for by itself.
    async fn renew_slot(&self, cluster: &Cluster, batch: &Batch<'_>) -> Answers {
        match self.renew_routed(cluster, batch).await {
            Ok(answers) => answers,
            Err(Failure::Refused(refusal)) if batch.grants.len() > 1 && is_split(&refusal) => {
                let mut answers = Answers::new();
                for one in batch.split() {
                    answers.extend(match self.renew_routed(cluster, &one).await {
                        Ok(answers) => answers,
                        Err(failure) => one.unknown(&failure.into_error("renew")),
                    });
                }
                answers
            }
            Err(failure) => batch.unknown(&failure.into_error("renew")),
        }
    }

    async fn renew_routed(&self, cluster: &Cluster, batch: &Batch<'_>) -> Result<Answers, Failure> {
        let call = [self.renew_batch(batch)];
        let mut route = cluster.route(batch.slot, Purpose::Heartbeat, Passage::Follows);
        loop {
            let told = match route.link().await {
                Ok(link) => self.renew_over(&link, &call, route.is_asking()).await,
                Err(failure) => Err(failure),
            };
            let failure = match told {
                Ok((mut answers, confirmation)) => match answers.pop() {
                    Some(Ok(answer)) => return Ok(batch.read(&answer, &confirmation)),
                    Some(Err(refusal)) => Failure::of(refusal),
                    None => Failure::Answered(fault::strange("renew")),
                },
                Err(failure) => failure,
            };
            route.follow(failure).await?;
        }
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
