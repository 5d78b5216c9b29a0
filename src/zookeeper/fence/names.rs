//! The names of commits in ZooKeeper, and [`Resolve`]: a name is a persistent child of the fence's
//! node.
//!
//! An ephemeral one would end with its session, and a commit that was applied would be taken for
//! void. Old names are deleted by any client that uses the fence. The same request writes the
//! newest deleted name into the fence's node, whose version every commit and every resolver checks.
//! So no name up to that one is made again, and one that is absent proves nothing. Only names are
//! compared for this: no clock of a client or server matters, except for when a name is deleted.

use std::time::Duration;

use super::once::Swept;
use super::raise::Stop;
use super::record::Record;
use super::{TRIES, ZkFence, disturbed};
use crate::clock::wall_millis;
use crate::fence::{Resolve, too_old};
use crate::model::commit::HeldKey;
use crate::model::doubt::{Doubt, Resolution};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::room::make_room;
use crate::model::txn::TxnId;
use crate::zookeeper::store::{Change, Fault, Refused};

/// How often a client looks for old names of a key.
const EVERY: Duration = Duration::from_secs(60 * 60);
/// How soon it does so again after a time that did not suffice, or failed.
const AGAIN: Duration = Duration::from_secs(60);
/// For how long a caller waits for the deletion of old names. What is left is deleted the next
/// time.
const SWEEP: Duration = Duration::from_millis(200);
/// How many names one request deletes: its size stays far below the server's limit.
const AT_ONCE: usize = 500;

const APPLIED: &[u8] = b"applied";
const VOID: &[u8] = b"void";
const WHAT: &str = "resolve a commit";

/// The node that makes a commit's name exist.
pub(super) fn applied(fence: &str, name: TxnId, record: &Record) -> Result<Change, Error> {
    if record.has_forgotten(name) {
        return Err(Error::invalid(format!(
            "the run began too long ago: names of its time are deleted already: txn_id={name}; keep names longer, or compare the clocks of the clients"
        )));
    }
    Ok(create(fence, name, APPLIED))
}

fn create(fence: &str, name: TxnId, data: &[u8]) -> Change {
    Change::Create {
        path: format!("{fence}/{name}"),
        data: data.to_vec(),
    }
}

impl Resolve for ZkFence {
    async fn resolve(&self, doubt: &Doubt) -> Result<Resolution, Error> {
        let HeldKey { key, token } = doubt.first()?;
        let name = doubt.txn_id;
        let fence = self.store.fence_path(key)?;
        for _ in 0..TRIES {
            let Some(node) = self.store.read_now(&fence).await? else {
                // A name needs its parent. Nobody has used this fence, so to raise it harms nobody.
                match self.raise_node(key, *token).await {
                    Ok(_) | Err(Stop::Newer(_)) => continue,
                    Err(Stop::Other(error)) => return Err(error),
                }
            };
            if Record::parse(key, &node.data)?.has_forgotten(name) {
                let found = self.found(key, &fence, name).await?;
                return found.ok_or_else(|| too_old(doubt));
            }
            let check = Change::Check {
                path: fence.clone(),
                version: Some(node.version),
            };
            let void = create(&fence, name, VOID);
            match self.store.change(&[check, void]).await {
                Ok(()) => return Ok(Resolution::NotApplied),
                Err(Refused::At(1, Fault::Exists)) => {
                    // If it is gone now, the fence's node shows that it was deleted.
                    if let Some(found) = self.found(key, &fence, name).await? {
                        return Ok(found);
                    }
                }
                // Another client wrote the fence.
                Err(Refused::At(_, Fault::BadVersion | Fault::NoNode)) => {}
                Err(refused) => return Err(refused.into_error(WHAT)),
            }
        }
        Err(disturbed(key.as_str()))
    }
}

impl ZkFence {
    /// What the node of a name says, if it exists.
    async fn found(
        &self,
        key: &Key,
        fence: &str,
        name: TxnId,
    ) -> Result<Option<Resolution>, Error> {
        let node = self.store.read_now(&format!("{fence}/{name}")).await?;
        match node.as_ref().map(|node| &*node.data) {
            None => Ok(None),
            Some(APPLIED) => Ok(Some(Resolution::Applied)),
            Some(VOID) => Ok(Some(Resolution::NotApplied)),
            Some(_) => Err(Error::corrupt(format!(
                "the node of a commit's name has a foreign value: key={key} txn_id={name}; check who wrote it"
            ))),
        }
    }

    /// Deletes old names beside the first of the locks, if that was not done from here for an hour.
    pub(super) async fn sweep_if_due(&self, locks: &[HeldKey], left: Duration) {
        let Some(HeldKey { key, .. }) = locks.first() else {
            return;
        };
        let clock = self.store.clock();
        let now = clock.stamp();
        {
            let mut next_sweeps = self.next_sweeps.lock();
            let next = next_sweeps.get(key);
            if next.is_some_and(|next| now.since(next).is_zero()) {
                return;
            }
            make_room(&mut next_sweeps, |next| now.since(next).is_zero());
            next_sweeps.insert(key.clone(), now.plus(AGAIN));
        }
        match clock.timeout(SWEEP.min(left / 4), self.sweep(key)).await {
            Some(Ok(())) => {
                // No insertion: it would make room for one more, though the key is there.
                if let Some(next) = self.next_sweeps.lock().get_mut(key) {
                    *next = now.plus(EVERY);
                }
            }
            Some(Err(error)) => {
                tracing::debug!(target: "leasehold::zookeeper", %key, %error, "old names were not deleted")
            }
            None => {
                tracing::debug!(target: "leasehold::zookeeper", %key, "not all old names are deleted yet")
            }
        }
    }

    /// Deletes the names of a key that are older than the fence keeps them.
    async fn sweep(&self, key: &Key) -> Result<(), Error> {
        let fence = self.store.fence_path(key)?;
        let Some(mut node) = self.store.read_now(&fence).await? else {
            return Ok(());
        };
        let kept = u64::try_from(self.kept.as_millis()).unwrap_or(u64::MAX);
        let limit = TxnId::first_at(wall_millis().saturating_sub(kept));
        let children = self.store.children_of(&fence).await?;
        let names = children.iter().filter_map(|name| name.parse().ok());
        let mut old: Vec<TxnId> = names.filter(|name| *name < limit).collect();
        old.sort_unstable();
        let mut record = Record::parse(key, &node.data)?;
        for some in old.chunks(AT_ONCE) {
            record.forgotten = record.forgotten.max(some.last().copied());
            let set = Change::Set {
                path: fence.clone(),
                data: record.data(),
                version: Some(node.version),
            };
            let deletes = some.iter().map(|name| Change::Delete {
                path: format!("{fence}/{name}"),
            });
            let changes: Vec<Change> = std::iter::once(set).chain(deletes).collect();
            // The version that is known here is old from now on.
            self.raised.lock().remove(key);
            match self.store.change(&changes).await {
                Ok(()) => node.version = node.version.wrapping_add(1),
                // Another client raises the fence, or deletes the same names.
                Err(Refused::At(_, Fault::BadVersion | Fault::NoNode)) => return Ok(()),
                Err(refused) => return Err(refused.into_error("delete old names")),
            }
        }
        let swept = Swept {
            key: key.clone(),
            fence,
            record,
            version: node.version,
        };
        self.sweep_once(swept, &children);
        Ok(())
    }
}
