//! [`Once`]: a name that a batch claims, so that what it does is done once.
//!
//! It is a node beside those of commits, with its end in its data, by the leader's clock. A batch
//! makes the node in its own request, which fails if the node exists. A name that is over is
//! written instead, in the version that was read, so that one of two batches claims it. Such nodes
//! are deleted after the old names of commits are. A version that was read counts for as long as
//! the fence's node has the same version, which each deletion changes.

use std::collections::HashSet;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::record::Record;
use super::{ZkBatch, ZkFence};
use crate::fence::AlreadyApplied;
use crate::model::commit::EffectError;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::zookeeper::store::{Change, Fault, LeaderTime, Refused};

/// What the name of such a node begins with. No name of a commit does.
const PREFIX: &str = "once-";
const LONGEST_NAME: usize = 1_000;
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
/// How many names one request deletes: with the longest names its size stays below the server's
/// limit.
const AT_ONCE: usize = 100;
/// The pause after each such request.
const PAUSE: Duration = Duration::from_millis(100);

/// A name, and for how long it is kept.
#[derive(Clone, Debug)]
pub(super) struct Once {
    pub(super) name: String,
    pub(super) keep: Duration,
}

/// The names of a batch that are over, as they were read under one version of the fence's node.
pub(super) struct Over {
    fence: Option<i32>,
    versions: Vec<Option<i32>>,
}

impl Over {
    pub(super) fn none_of(batch: &ZkBatch) -> Self {
        Self {
            fence: None,
            versions: vec![None; batch.once.len()],
        }
    }

    /// What was read under another version of the fence's node counts no more: the name may have
    /// been deleted and claimed since, and has its first version again.
    pub(super) fn under(&mut self, fence: i32) {
        if self.fence.replace(fence) != Some(fence) {
            self.versions.fill(None);
        }
    }

    pub(super) fn set(&mut self, at: usize, version: Option<i32>) {
        self.versions[at] = version;
    }
}

/// A fence's node, as it was before its children are read.
pub(super) struct Swept {
    pub(super) key: Key,
    pub(super) fence: String,
    pub(super) record: Record,
    pub(super) version: i32,
}

impl ZkFence {
    /// The changes that claim the names of a batch. A name that is over is written.
    pub(super) async fn claims(
        &self,
        fence: &str,
        batch: &ZkBatch,
        over: &Over,
    ) -> Result<Vec<Change>, EffectError> {
        if batch.once.is_empty() {
            return Ok(Vec::new());
        }
        let mut names = HashSet::new();
        if !batch.once.iter().all(|once| names.insert(&once.name)) {
            return Err(EffectError::not_applied(Error::invalid(
                "a batch claims a name of what is done once twice; claim each name once",
            )));
        }
        let now = self.store.leader_now().await;
        let now = now.map_err(EffectError::not_applied)?;
        let claim = |(Once { name, keep }, over): (&Once, &Option<i32>)| {
            if name.is_empty() || name.len() > LONGEST_NAME {
                return Err(EffectError::not_applied(Error::invalid(format!(
                    "a name of what is done once is empty or longer than {LONGEST_NAME} bytes; choose another"
                ))));
            }
            let path = format!(
                "{fence}/{PREFIX}{}",
                utf8_percent_encode(name, NON_ALPHANUMERIC)
            );
            let LeaderTime(end) = now.plus((*keep).min(LONGEST));
            let data = end.to_string().into_bytes();
            Ok(match *over {
                None => Change::Create { path, data },
                version => Change::Set {
                    path,
                    data,
                    version,
                },
            })
        };
        batch.once.iter().zip(&over.versions).map(claim).collect()
    }

    /// The version of a node that is over and may be claimed again; `None` if it is gone.
    pub(super) async fn over(&self, path: &str) -> Result<Option<i32>, EffectError> {
        // The batch was refused as a whole.
        let node = self.store.read_now(path).await;
        let Some(node) = node.map_err(EffectError::not_applied)? else {
            return Ok(None);
        };
        let now = self.store.leader_now().await;
        if is_over(&node.data, now.map_err(EffectError::not_applied)?) {
            return Ok(Some(node.version));
        }
        Err(EffectError::not_applied(AlreadyApplied))
    }

    /// Deletes those that are over among the children of a fence, while nobody waits for it.
    pub(super) fn sweep_once(&self, swept: Swept, children: &[String]) {
        let once = children.iter().filter(|name| name.starts_with(PREFIX));
        let paths: Vec<_> = once.map(|name| format!("{}/{name}", swept.fence)).collect();
        if paths.is_empty() {
            return;
        }
        let store = self.store.passing();
        let fence = Self {
            store,
            ..self.clone()
        };
        self.store.spawn(async move {
            if let Err(error) = fence.delete_over(&swept, &paths).await {
                tracing::debug!(target: "leasehold::zookeeper", key = %swept.key, %error, "old names of what is done once were not deleted")
            }
        });
    }

    /// A name that is deleted and claimed again has the version that it had before. So each request
    /// that deletes names writes the fence's node too, in the version that it had before they were
    /// read. Of two sweeps one fails, and so does a sweep of before a newer token.
    async fn delete_over(&self, swept: &Swept, paths: &[String]) -> Result<(), Error> {
        let now = self.store.leader_now().await?;
        let mut version = swept.version;
        for some in paths.chunks(AT_ONCE) {
            let nodes = self.store.read_all_now(some).await?;
            let mut changes = vec![Change::Set {
                path: swept.fence.clone(),
                data: swept.record.data(),
                version: Some(version),
            }];
            for (path, node) in some.iter().zip(nodes) {
                let Some(node) = node.filter(|node| is_over(&node.data, now)) else {
                    continue;
                };
                let (path, version) = (path.clone(), Some(node.version));
                changes.push(Change::Check {
                    path: path.clone(),
                    version,
                });
                changes.push(Change::Delete { path });
            }
            if changes.len() == 1 {
                continue;
            }
            // The version that is known here is old from now on.
            self.raised.lock().remove(&swept.key);
            match self.store.change(&changes).await {
                Ok(()) => version = version.wrapping_add(1),
                // Another client raises the fence, or deletes names.
                Err(Refused::At(0, Fault::BadVersion | Fault::NoNode)) => return Ok(()),
                // It claims one anew.
                Err(Refused::At(_, Fault::BadVersion | Fault::NoNode)) => {}
                Err(refused) => return Err(refused.into_error("delete what was done once")),
            }
            // Commits find the version that they have read.
            self.store.clock().sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// Data that is not ours has no end.
fn is_over(data: &[u8], LeaderTime(now): LeaderTime) -> bool {
    let end = std::str::from_utf8(data).ok();
    let end = end.and_then(|end| end.parse::<i64>().ok());
    end.is_some_and(|end| end <= now)
}
