//! How a fence is raised: the token is written to a permanent node beside the lock.

use std::time::Duration;

use super::record::Record;
use super::{LATE_LOOK, TRIES, ZkFence, disturbed};
use crate::clock::Stamp;
use crate::fence::{Fence, newer_holder};
use crate::model::commit::HeldKey;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::room::make_room;
use crate::model::token::FencingToken;
use crate::zookeeper::store::{Change, Fault, Refused};

/// How long a fence is known at least; after that it may be read again.
const KNOWN_FOR: Duration = Duration::from_secs(60 * 60);

/// Why a fence was not raised.
pub(super) enum Stop {
    /// It has seen this larger token.
    Newer(FencingToken),
    Other(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// A fence that was raised.
#[derive(Clone)]
pub(super) struct Raised {
    pub(super) record: Record,
    pub(super) version: i32,
    /// The hold's own node, if the store granted it.
    pub(super) hold: Option<String>,
    /// Until when it is not forgotten.
    pub(super) until: Stamp,
}

impl ZkFence {
    /// The fence, raised to `token`, as it was last seen from here.
    pub(super) async fn raised_to(&self, key: &Key, token: FencingToken) -> Result<Raised, Stop> {
        let known = self.raised.lock().get(key).cloned();
        if let Some(raised) = known
            && raised.record.token == token
        {
            return Ok(raised);
        }
        // A larger token is read again: an operator may have deleted it.
        let (record, version) = self.raise_node(key, token).await?;
        let now = self.store.clock().stamp();
        let raised = Raised {
            record,
            version,
            hold: self.store.hold_path(key, token),
            until: now.plus(KNOWN_FOR),
        };
        let mut known = self.raised.lock();
        make_room(&mut known, |raised| now.since(&raised.until).is_zero());
        known.insert(key.clone(), raised.clone());
        Ok(raised)
    }

    /// Writes the token to the fence's node, unless it contains a larger one. Gives the node's
    /// content and version.
    pub(super) async fn raise_node(
        &self,
        key: &Key,
        token: FencingToken,
    ) -> Result<(Record, i32), Stop> {
        let path = self.store.fence_path(key)?;
        for _ in 0..TRIES {
            let (change, record, version) = match self.store.read_now(&path).await? {
                Some(node) => {
                    let mut record = Record::parse(key, &node.data)?;
                    if record.token > token {
                        return Err(Stop::Newer(record.token));
                    }
                    if record.token == token {
                        return Ok((record, node.version));
                    }
                    record.token = token;
                    let set = Change::Set {
                        path: path.clone(),
                        data: record.data(),
                        version: Some(node.version),
                    };
                    (set, record, node.version.wrapping_add(1))
                }
                None => {
                    let record = Record::new(token);
                    let create = Change::Create {
                        path: path.clone(),
                        data: record.data(),
                    };
                    (create, record, 0)
                }
            };
            match self.store.change(&[change]).await {
                Ok(()) => return Ok((record, version)),
                Err(Refused::At(_, Fault::NoNode)) => self.store.make_above(&path).await?,
                Err(Refused::At(_, Fault::BadVersion | Fault::Exists)) => {}
                Err(refused) => return Err(refused.into_error("raise a fence").into()),
            }
        }
        Err(disturbed(key.as_str()).into())
    }
}

impl Fence for ZkFence {
    async fn raise(&self, key: &Key, token: FencingToken) -> Result<(), Error> {
        match self.raised_to(key, token).await {
            Ok(_) => {
                let lock = HeldKey {
                    key: key.clone(),
                    token,
                };
                self.sweep_if_due(&[lock], LATE_LOOK).await;
                Ok(())
            }
            Err(Stop::Newer(seen)) => {
                let path = self.store.fence_path(key)?;
                let forget = || format!("deleteall {path}");
                Err(newer_holder(key, token, seen, forget))
            }
            Err(Stop::Other(error)) => Err(error),
        }
    }
}
