//! A lock is taken away from its holders: "Revocation" in the [protocol](crate::zookeeper). A share
//! that did not fit beside those that were taken away was not granted, and keeps its place.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::barrier_session::BarrierSession;
use super::client::ZooKeeperClient;
use super::drivers::{Change, Fault, Refused};
use super::lock_info::{self, Holders};
use super::queue::names::{self, Contender, Kind};
use super::queue::node_data::NodeData;
use super::queue::order;
use super::session::Session;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::store::{Revoke, Revoked};

const WHAT: &str = "take a lock away";
/// The barrier's text for people.
const BARRIER: &str = "taken away";
/// How often the holders are read again, because some came or went at the same time.
const ROUNDS: usize = 16;

pub(super) async fn revoke(
    client: &Arc<ZooKeeperClient>,
    key: &Key,
    how: Revoke,
) -> Result<Revoked, Error> {
    let revoking = Revoking {
        parent: names::key_path(&client.options.chroot, key)?,
        session: client.session().await?,
        client,
    };
    let barred = revoking.take_away().await?;
    if how == Revoke::Now {
        revoking.lift().await?;
    }
    let free_in = |barred| match how {
        Revoke::AfterTtl => barred,
        Revoke::Now => Duration::ZERO,
    };
    Ok(barred.map_or(Revoked::NotHeld, |barred| Revoked::Revoked {
        free_in: free_in(barred),
    }))
}

struct Revoking<'a> {
    client: &'a Arc<ZooKeeperClient>,
    session: Arc<Session>,
    parent: String,
}

impl Revoking<'_> {
    /// Repeats until none of those who held at the beginning holds. For how long the key is barred;
    /// `None` if nobody held it.
    async fn take_away(&self) -> Result<Option<Duration>, Error> {
        let mut barred: Option<Duration> = None;
        let mut taken: Vec<Contender> = Vec::new();
        let mut first = None;
        for _ in 0..ROUNDS {
            let contenders = self.look().await?;
            let held = match first {
                None => lock_info::holders(&self.session, &self.parent, &contenders).await,
                Some(made) => self.late(&taken, &contenders, made).await,
            };
            let held = held.map_err(|f| f.into_error(WHAT))?;
            if held.nodes.is_empty() {
                return Ok(barred);
            }
            let Some((barrier, length)) = self.replace(held.nodes).await? else {
                continue;
            };
            barred = Some(length.max(barred.unwrap_or_default()));
            if !held.are_readers {
                return Ok(barred);
            }
            taken.extend_from_slice(held.nodes);
            if first.is_some() {
                continue;
            }
            let made = self.session.read_if_there(&barrier).await;
            match made.map_err(|fault| fault.into_error(WHAT))? {
                Some(node) => first = Some(node.czxid),
                None => return Ok(barred),
            }
        }
        Err(Error::in_doubt(
            "holders came and went while a lock was taken away; look with inspect, and ask again",
        ))
    }

    async fn look(&self) -> Result<Vec<Contender>, Error> {
        let synced = self.session.sync(&self.parent).await;
        synced.map_err(|f| f.into_error(WHAT))?;
        let children = self.session.children_if_there(&self.parent).await;
        names::contenders(children.map_err(|f| f.into_error(WHAT))?)
    }

    /// Readers that joined beside those that were taken away, before the barrier with this `czxid`,
    /// and were not seen then.
    async fn late<'a>(
        &self,
        taken: &[Contender],
        contenders: &'a [Contender],
        made: i64,
    ) -> Result<Holders<'a>, Fault> {
        let behind = &contenders[order::barriers(contenders).len()..];
        let readers = order::readers_beside(taken, behind);
        let reads = (readers.iter()).map(|reader| async {
            let node = self.session.read_if_there(&self.path(reader)).await?;
            Ok(node.is_some_and(|node| node.czxid < made))
        });
        let are_late: Result<Vec<bool>, Fault> = join_all(reads).await.into_iter().collect();
        // In the order of their numbers, which is the order in which they were made.
        let late = are_late?.into_iter().take_while(|&is_late| is_late).count();
        Ok(Holders {
            nodes: &readers[..late],
            are_readers: true,
        })
    }

    /// Makes a barrier where these holders were. Its path, and for how long it keeps the others
    /// out; `None` if one of them left at the same time, and nothing was changed.
    async fn replace(&self, held: &[Contender]) -> Result<Option<(String, Duration)>, Error> {
        let Some(length) = self.longest_lease(held).await? else {
            return Ok(None);
        };
        let name = names::barrier(&names::new_guid()?, &held[0]);
        let barrier = format!("{}/{name}", self.parent);
        let data = NodeData {
            head: BARRIER.to_owned(),
            ttl: Some(length),
            reads: false,
        };
        let mut changes = vec![Change::CreateEphemeral {
            path: barrier.clone(),
            data: data.encode(),
        }];
        changes.extend(held.iter().map(|holder| Change::Delete {
            path: self.path(holder),
        }));
        match BarrierSession::make_barrier(self.client, length, changes).await {
            Ok(()) => Ok(Some((barrier, length))),
            Err(Refused::At(_, Fault::NoNode)) => Ok(None),
            Err(refused) => Err(refused.into_error(WHAT)),
        }
    }

    /// The longest that a lease of these holders can run. A node that does not say so is assumed to
    /// have a session like ours.
    async fn longest_lease(&self, held: &[Contender]) -> Result<Option<Duration>, Error> {
        let reads = held.iter().map(|holder| self.path(holder));
        let reads = reads.map(|path| async move { self.session.read_if_there(&path).await });
        let mut longest = Duration::ZERO;
        for read in join_all(reads).await {
            let Some(node) = read.map_err(|fault| fault.into_error(WHAT))? else {
                return Ok(None);
            };
            let ttl = NodeData::decode(&node.data).ttl.unwrap_or(self.session.ttl);
            longest = longest.max(ttl);
        }
        Ok(Some(longest))
    }

    /// Deletes the barriers of the key.
    async fn lift(&self) -> Result<(), Error> {
        for barrier in (self.look().await?.iter()).filter(|c| c.kind == Kind::Barrier) {
            let path = self.path(barrier);
            let lifted = self.session.delete_if_there(&path).await;
            lifted.map_err(|fault| fault.into_error("delete a revocation barrier"))?;
        }
        Ok(())
    }

    fn path(&self, contender: &Contender) -> String {
        format!("{}/{}", self.parent, contender.name)
    }
}
