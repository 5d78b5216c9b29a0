//! A lock is taken away from whoever holds it.
//!
//! In *one* write the holders' nodes are deleted and a [bar](super::bars) is made where the first of them stood. Not one after
//! the other: a bar that others see, and begin to count, before the hold is gone would be too short for it; and a hold that is
//! gone before its bar would let somebody in. The old holders' next heartbeat misses their nodes, and their leases end within
//! the time that the bar stands.
//!
//! A reader may join, and be granted, while that write is on its way. It came before the bar, as its `czxid` tells, and is taken
//! away in the next round, under a bar of its own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

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
/// What the data of a bar say to people.
const BAR: &str = "taken away";
/// How often it is looked again, because holders came or went at the same time.
const ROUNDS: usize = 16;

pub(super) async fn revoke(
    client: &ZooKeeperClient,
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
    client: &'a ZooKeeperClient,
    session: Arc<Session>,
    parent: String,
}

impl Revoking<'_> {
    /// Until nobody holds who held when it began. For how long the key is barred; `None` if nobody held it.
    async fn take_away(&self) -> Result<Option<Duration>, Error> {
        let mut barred: Option<Duration> = None;
        let mut newest_bar = None;
        for _ in 0..ROUNDS {
            let contenders = self.look().await?;
            let held = match newest_bar {
                None => lock_info::holders(&self.session, &self.parent, &contenders).await,
                Some(made) => self.late(&contenders, made).await,
            };
            let held = held.map_err(|f| f.into_error(WHAT))?;
            if held.nodes.is_empty() {
                return Ok(barred);
            }
            let Some((bar, length)) = self.replace(held.nodes).await? else {
                continue;
            };
            barred = Some(length.max(barred.unwrap_or_default()));
            if !held.are_readers {
                return Ok(barred);
            }
            newest_bar = match self.session.driver.read(&bar).await {
                Ok(node) => Some(node.czxid),
                Err(Fault::NoNode) => return Ok(barred),
                Err(other) => return Err(other.into_error(WHAT)),
            };
        }
        Err(Error::in_doubt(
            "holders came and went while a lock was taken away; look with inspect, and ask again",
        ))
    }

    async fn look(&self) -> Result<Vec<Contender>, Error> {
        let driver = &self.session.driver;
        let synced = self.session.sync(&self.parent).await;
        synced.map_err(|f| f.into_error(WHAT))?;
        match driver.children(&self.parent).await {
            Ok(children) => names::contenders(children),
            Err(Fault::NoNode) => Ok(Vec::new()),
            Err(other) => Err(other.into_error(WHAT)),
        }
    }

    /// Readers who joined before the bar that was made at `made`, and were not seen then.
    async fn late<'a>(&self, contenders: &'a [Contender], made: i64) -> Result<Holders<'a>, Fault> {
        let behind = &contenders[order::barriers(contenders).len()..];
        let readers = order::readers(behind);
        let reads = (readers.iter()).map(|reader| async {
            match self.session.driver.read(&self.path(reader)).await {
                Ok(node) => Ok(node.czxid < made),
                Err(Fault::NoNode) => Ok(false),
                Err(other) => Err(other),
            }
        });
        let are_late: Result<Vec<bool>, Fault> = join_all(reads).await.into_iter().collect();
        // In the order of their numbers, which is that of their making.
        let late = are_late?.into_iter().take_while(|&is_late| is_late).count();
        Ok(Holders {
            nodes: &readers[..late],
            are_readers: true,
        })
    }

    /// A bar in place of these holders. Its path, and how long it stands; `None` if one of them left at the same time, and
    /// nothing was changed.
    async fn replace(&self, held: &[Contender]) -> Result<Option<(String, Duration)>, Error> {
        let Some(length) = self.longest_lease(held).await? else {
            return Ok(None);
        };
        let bar = format!(
            "{}/{}",
            self.parent,
            names::barrier(&names::new_guid()?, &held[0])
        );
        let data = NodeData {
            head: BAR.to_owned(),
            ttl: Some(length),
            reads: false,
        };
        let mut changes = vec![Change::Create {
            path: bar.clone(),
            data: data.encode(),
        }];
        changes.extend(held.iter().map(|holder| Change::Delete {
            path: self.path(holder),
        }));
        match self.session.driver.change(&changes).await {
            Ok(()) => {
                let now = self.client.clock.stamp();
                self.client.barriers.made(bar.clone(), length, &now);
                Ok(Some((bar, length)))
            }
            Err(Refused::At(_, Fault::NoNode)) => Ok(None),
            Err(Refused::NotSent(error)) => Err(error),
            Err(Refused::At(_, fault) | Refused::Whole(fault)) => Err(fault.into_error(WHAT)),
        }
    }

    /// The longest that a lease of these holders can run; one who does not say is believed to have a session like ours.
    async fn longest_lease(&self, held: &[Contender]) -> Result<Option<Duration>, Error> {
        let reads = held.iter().map(|holder| self.path(holder));
        let reads = reads.map(|path| async move { self.session.driver.read(&path).await });
        let mut longest = Duration::ZERO;
        for read in join_all(reads).await {
            match read {
                Ok(node) => {
                    let ttl = NodeData::decode(&node.data).ttl.unwrap_or(self.session.ttl);
                    longest = longest.max(ttl);
                }
                Err(Fault::NoNode) => return Ok(None),
                Err(other) => return Err(other.into_error(WHAT)),
            }
        }
        Ok(Some(longest))
    }

    /// Deletes the bars of the key.
    async fn lift(&self) -> Result<(), Error> {
        for bar in (self.look().await?.iter()).filter(|c| c.kind == Kind::Barrier) {
            let path = self.path(bar);
            match self.session.driver.delete(&path, None).await {
                Ok(()) | Err(Fault::NoNode) => self.client.barriers.forget(&path),
                Err(other) => return Err(other.into_error("let the next holder in at once")),
            }
        }
        Ok(())
    }

    fn path(&self, contender: &Contender) -> String {
        format!("{}/{}", self.parent, contender.name)
    }
}
