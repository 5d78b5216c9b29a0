//! [`Once`]: a name that a batch claims, so that what it does is done once.
//!
//! It is a node beside those of commits, with its end in its data, by the leader's clock. A batch
//! makes the node in its own request, which fails if the node exists. A name that is over is
//! written instead, in the version that was read, so that one of two batches claims it. Such nodes
//! are deleted when the old names of commits are.

use std::time::Duration;

use futures_util::future::join_all;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{ZkBatch, ZkFence};
use crate::clock::wall_millis;
use crate::fence::AlreadyApplied;
use crate::model::commit::EffectError;
use crate::model::error::Error;
use crate::zookeeper::store::{Change, Fault, LeaderTime, Refused};

/// What the name of such a node begins with. No name of a commit does.
const PREFIX: &str = "once-";
const LONGEST_NAME: usize = 1_000;
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
/// How many names one request deletes: with the longest names its size stays below the server's
/// limit.
const AT_ONCE: usize = 100;

/// A name, and for how long it is kept.
#[derive(Clone, Debug)]
pub(super) struct Once {
    pub(super) name: String,
    pub(super) keep: Duration,
}

impl ZkFence {
    /// The changes that claim the names of a batch. `over`: the versions of nodes that are there
    /// and over.
    pub(super) async fn claims(
        &self,
        fence: &str,
        batch: &ZkBatch,
        over: &[Option<i32>],
    ) -> Result<Vec<Change>, EffectError> {
        if batch.once.is_empty() {
            return Ok(Vec::new());
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
        batch.once.iter().zip(over).map(claim).collect()
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

    /// Deletes those that are over among the children of a fence.
    pub(super) async fn sweep_once(&self, fence: &str, children: &[String]) -> Result<(), Error> {
        let once = children.iter().filter(|name| name.starts_with(PREFIX));
        let mut paths: Vec<_> = once.map(|name| format!("{fence}/{name}")).collect();
        if paths.is_empty() {
            return Ok(());
        }
        let now = self.store.leader_now().await?;
        // A sweep has little time: each begins elsewhere, so that all come to their turn.
        let begin = wall_millis() % paths.len() as u64;
        paths.rotate_left(begin as usize);
        for some in paths.chunks(AT_ONCE) {
            let nodes = join_all(some.iter().map(|path| self.store.read(path))).await;
            let mut changes = Vec::new();
            for (path, node) in some.iter().zip(nodes) {
                let Some(node) = node?.filter(|node| is_over(&node.data, now)) else {
                    continue;
                };
                let (path, version) = (path.clone(), Some(node.version));
                changes.push(Change::Check {
                    path: path.clone(),
                    version,
                });
                changes.push(Change::Delete { path });
            }
            if changes.is_empty() {
                continue;
            }
            match self.store.change(&changes).await {
                // Another client deletes some, or claims one anew.
                Ok(()) | Err(Refused::At(_, Fault::BadVersion | Fault::NoNode)) => {}
                Err(refused) => return Err(refused.into_error("delete what was done once")),
            }
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
