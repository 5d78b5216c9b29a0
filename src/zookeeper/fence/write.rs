//! A batch under the tokens of a run: one request, which checks each fence and each hold before it
//! changes anything.

use super::once::Over;
use super::raise::Stop;
use super::{TRIES, ZkBatch, ZkFence, disturbed, keys, names};
use crate::model::commit::{Applied, CommitPermit, EffectError, HeldKey};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::txn::TxnId;
use crate::zookeeper::store::{Change, Fault, Refused};

/// The changes of one request: the checks of the fences, the node of the commit's name, the checks
/// of the holds, the names of what is done once, the batch.
struct Request {
    changes: Vec<Change>,
    name_at: Option<usize>,
    once_at: usize,
    batch_at: usize,
}

impl ZkFence {
    /// Applies a batch under the tokens of all `locks`, in one request that checks each and makes
    /// the node of its name, if it is the commit of a run, beside the first.
    pub(super) async fn write_under(
        &self,
        locks: &[HeldKey],
        commit: Option<&CommitPermit>,
        batch: &ZkBatch,
    ) -> Result<Applied, EffectError> {
        let mut over = Over::none_of(batch);
        for _ in 0..TRIES {
            let name = commit.map(|permit| permit.txn_id);
            let request = self.request(locks, name, batch, &mut over).await?;
            if let Some(permit) = commit {
                permit.sends();
            }
            match self.store.change(&request.changes).await {
                Ok(()) => return Ok(Applied::fenced()),
                // Another client wrote it. The next round reads whether a newer holder did. Nothing
                // was applied.
                Err(Refused::At(at, _)) if at < locks.len() => {
                    self.raised.lock().remove(&locks[at].key);
                }
                Err(Refused::At(at, Fault::Exists | Fault::BadVersion | Fault::NoNode))
                    if (request.once_at..request.batch_at).contains(&at) =>
                {
                    let path = request.changes[at].parts().1;
                    over.set(at - request.once_at, self.over(path).await?);
                }
                Err(refused) => return Err(request.error(refused)),
            }
        }
        Err(EffectError::not_applied(disturbed(&keys(locks))))
    }

    /// The checks of the fences come first, in the order of the locks.
    async fn request(
        &self,
        locks: &[HeldKey],
        name: Option<TxnId>,
        batch: &ZkBatch,
        over: &mut Over,
    ) -> Result<Request, EffectError> {
        let (mut changes, mut holds, mut named) = (Vec::new(), Vec::new(), None);
        let mut once = None;
        for HeldKey { key, token } in locks {
            let raised = match self.raised_to(key, *token).await {
                Ok(raised) => raised,
                Err(Stop::Newer(seen)) => return Err(EffectError::Fenced { seen: Some(seen) }),
                // The batch itself was not sent.
                Err(Stop::Other(error)) => return Err(EffectError::not_applied(error)),
            };
            let path = self.store.fence_path(key);
            let path = path.map_err(EffectError::not_applied)?;
            check(batch, key, &path, raised.hold.as_deref())?;
            if let (Some(name), None) = (name, &named) {
                let node = names::applied(&path, name, &raised.record);
                named = Some(node.map_err(EffectError::not_applied)?);
            }
            if once.is_none() {
                over.under(raised.version);
                once = Some(self.claims(&path, batch, over).await?);
            }
            changes.push(Change::Check {
                path,
                version: Some(raised.version),
            });
            holds.extend(raised.hold.map(|path| Change::Check {
                path,
                version: None,
            }));
        }
        let name_at = named.as_ref().map(|_| locks.len());
        changes.extend(named);
        changes.append(&mut holds);
        let once_at = changes.len();
        changes.extend(once.into_iter().flatten());
        let batch_at = changes.len();
        changes.extend(batch.changes.iter().cloned());
        Ok(Request {
            changes,
            name_at,
            once_at,
            batch_at,
        })
    }
}

/// Refuses a batch that changes the fence, the names beneath it, or the node of the hold.
fn check(batch: &ZkBatch, key: &Key, fence: &str, hold: Option<&str>) -> Result<(), EffectError> {
    let is_of_the_fence = |path: &str| {
        let below = path.strip_prefix(fence);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    };
    let mut paths = batch.changes.iter().map(|change| change.parts().1);
    match paths.position(|path| is_of_the_fence(path) || Some(path) == hold) {
        None => Ok(()),
        Some(at) => Err(EffectError::not_applied(Error::invalid(format!(
            "change number {at} of the batch is to a node of the fence or of the hold: key={key}; use another node for the data"
        )))),
    }
}

impl Request {
    /// What a refusal means, except for that of a fence.
    fn error(&self, refused: Refused) -> EffectError {
        match refused {
            Refused::At(at, Fault::Exists) if Some(at) == self.name_at => {
                EffectError::unknown("the name of the commit was taken before it was sent")
            }
            Refused::At(at, fault) if Some(at) == self.name_at => {
                EffectError::not_applied(fault.into_error("name a commit"))
            }
            Refused::At(at, _) if at < self.once_at => EffectError::Fenced { seen: None },
            Refused::At(at, fault) if at < self.batch_at => {
                EffectError::not_applied(fault.into_error("claim the name of what is done once"))
            }
            Refused::At(at, fault) => {
                let what = format!("make change number {} of a batch", at - self.batch_at);
                EffectError::not_applied(fault.into_error(&what))
            }
            Refused::NotSent(error) => EffectError::not_applied(error),
            Refused::Whole(fault @ (Fault::InDoubt(_) | Fault::Expired)) => {
                EffectError::unknown(fault.into_error("apply a batch"))
            }
            Refused::Whole(fault) => EffectError::not_applied(fault.into_error("apply a batch")),
        }
    }
}
