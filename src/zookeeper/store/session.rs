//! [`Session`]: one session with the ensemble, for all locks of a store.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

use super::drivers::{Driver, Fault, Kind, LeaderTime, Missing, Node};
use super::options::ZooKeeperOptions;
use super::proof::Proofs;
use super::queue::lists::Lists;
use super::queue::names;
use super::queue::node_data::NodeData;
use super::records::Records;
use crate::clock::{Clock, Stamp};
use crate::model::error::Error;
use crate::store::GrantProof;

/// A session is proven this often in its time-out, whether or not anything is held: a deadline
/// counts from a heartbeat that is at least a tick old, and a first acquire must find one.
pub(crate) const HEARTBEATS_PER_TIMEOUT: u32 = 6;
/// How many times a request is repeated that failed for a missing node.
const TRIES: usize = 3;

/// A session that was opened and has its own node, which heartbeats write.
pub(crate) struct Session {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) id: i64,
    /// The negotiated time-out: the TTL of every lock.
    pub(crate) ttl: Duration,
    own: String,
    clock: Clock,
    proofs: Mutex<Ring>,
    /// Those that are in flight.
    pub(super) lists: Lists,
    pub(super) records: Records,
}

struct Ring {
    proofs: Proofs,
    newest: Stamp,
    /// The leader's time of a write, and ours before it was sent.
    leader: Option<(LeaderTime, Stamp)>,
}

impl Session {
    /// Makes a driver's new session ready: checks what was negotiated and makes its own node.
    /// `asked_at` was read before the session was requested.
    pub(crate) async fn open(
        driver: Box<dyn Driver>,
        options: &ZooKeeperOptions,
        clock: &Clock,
        asked_at: Stamp,
    ) -> Result<Self, Error> {
        let ttl = driver.timeout();
        options.check_ticks(ttl)?;
        let own = names::session_path(&options.chroot, &names::new_guid()?);
        let sent_at = clock.stamp();
        let (id, made_at) = make_own(&*driver, &own).await?;
        if driver.session().is_some_and(|known| known != id) {
            return Err(foreign());
        }
        Ok(Self {
            id,
            ttl,
            own,
            clock: clock.clone(),
            proofs: Mutex::new(Ring {
                proofs: Proofs::new(options.tick_time, asked_at),
                newest: asked_at,
                leader: made_at.map(|made_at| (made_at, sent_at)),
            }),
            lists: Lists::default(),
            records: Records::default(),
            driver,
        })
    }

    /// The names of a node's children; none if there is no such node.
    pub(crate) async fn children_if_there(&self, path: &str) -> Result<Vec<String>, Fault> {
        match self.driver.children(path).await {
            Err(Fault::NoNode) => Ok(Vec::new()),
            answer => answer,
        }
    }

    pub(crate) async fn read_if_there(&self, path: &str) -> Result<Option<Node>, Fault> {
        match self.driver.read(path).await {
            Err(Fault::NoNode) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Deletes a node. Returns whether it was there.
    pub(crate) async fn delete_if_there(&self, path: &str) -> Result<bool, Fault> {
        match self.driver.delete(path, None).await {
            Err(Fault::NoNode) => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    /// Waits until our server has seen everything that the leader had.
    pub(crate) async fn sync(&self, path: &str) -> Result<(), Fault> {
        match self.driver.sync(&self.own, path).await {
            Err(Fault::NoNode) => Ok(()),
            other => other,
        }
    }

    /// Makes a node and what is missing above it.
    pub(crate) async fn make_parents(&self, path: &str) -> Result<(), Error> {
        make_parents(&*self.driver, path).await
    }

    /// One heartbeat: proves this session and that these nodes exist. `Held` if one does not. Gives
    /// when it was sent.
    pub(crate) async fn beat(&self, held: &[String]) -> Result<Stamp, Missing> {
        for _ in 0..TRIES {
            let sent_at = self.clock.stamp();
            match self.driver.beat(&self.own, held).await {
                Ok(leader) => {
                    self.proven(sent_at);
                    self.proofs.lock().leader = Some((leader, sent_at));
                    return Ok(sent_at);
                }
                Err(Missing::Own) => match make_own(&*self.driver, &self.own).await {
                    Ok((owner, _)) if owner == self.id => {}
                    Ok(_) => return Err(Missing::Fault(Fault::Expired)),
                    Err(error) => return Err(Missing::Fault(Fault::Refused(Box::new(error)))),
                },
                Err(other) => return Err(other),
            }
        }
        Err(Missing::Own)
    }

    /// After a slow opening the base is old, and a lease could run out before a heartbeat that is a
    /// tick old moves it. Proves the session until the base moves.
    pub(crate) async fn catch_up(&self, tick: Duration) -> Result<(), Missing> {
        let opened = self.base();
        while self.base() == opened && self.age() > self.ttl / HEARTBEATS_PER_TIMEOUT {
            self.beat(&[]).await?;
            if self.base() == opened {
                self.clock.sleep(tick).await;
            }
        }
        Ok(())
    }

    /// How long the servers may have counted.
    fn age(&self) -> Duration {
        self.clock.stamp().since(&self.base())
    }

    /// A write that was sent at `sent_at` was acknowledged as done, just now.
    pub(crate) fn proven(&self, sent_at: Stamp) {
        let mut ring = self.proofs.lock();
        ring.proofs.proven(sent_at, self.clock.stamp());
        if !sent_at.since(&ring.newest).is_zero() {
            ring.newest = sent_at;
        }
    }

    /// What the session's newest proven write proves of a node that a request saw, which was sent
    /// at `seen_at` or later (I3). A proof of after that says nothing about the node: others may
    /// have deleted it, while whoever looked was kept from going on.
    pub(crate) fn proof(&self, seen_at: Stamp) -> GrantProof {
        let base = self.base();
        let is_of_before = base.since(&seen_at).is_zero();
        GrantProof::since(self.ttl, if is_of_before { base } else { seen_at })
    }

    /// Whether the writer whose node this is has become a reader.
    pub(crate) async fn reads_now(&self, path: &str) -> Result<bool, Fault> {
        let node = self.read_if_there(path).await?;
        Ok(node.is_some_and(|node| NodeData::decode(&node.data).reads))
    }

    /// The leader's time now, later by the time of a request at most; `None` before the first
    /// heartbeat.
    pub(crate) fn leader_now(&self) -> Option<LeaderTime> {
        let (written, sent_at) = self.proofs.lock().leader?;
        Some(written.plus(self.clock.stamp().since(&sent_at)))
    }

    /// The servers count the session from then, or from later.
    pub(crate) fn base(&self) -> Stamp {
        self.proofs.lock().proofs.base()
    }

    /// How long until the next heartbeat is due.
    pub(crate) fn until_due(&self) -> Duration {
        let since = self.clock.stamp().since(&self.proofs.lock().newest);
        (self.ttl / HEARTBEATS_PER_TIMEOUT).saturating_sub(since)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &format_args!("{:#x}", self.id))
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

/// Makes a session's own node. Gives its owner, which is the session, and when it was made if that
/// was just now.
async fn make_own(driver: &dyn Driver, own: &str) -> Result<(i64, Option<LeaderTime>), Error> {
    let what = "make the session's own node";
    for _ in 0..TRIES {
        match driver.create(own, b"", Kind::Ephemeral).await {
            Ok(made) => return Ok((made.owner, Some(made.made_at))),
            Err(Fault::NoNode) => {
                make_parents(driver, names::parent(own).unwrap_or_default()).await?
            }
            // It is ours, from an earlier try: no other client knows its name.
            Err(Fault::Exists) => {
                let node = driver.read(own).await.map_err(|f| f.into_error(what))?;
                return Ok((node.owner, None));
            }
            Err(other) => return Err(other.into_error(what)),
        }
    }
    Err(Fault::NoNode.into_error(what))
}

/// Only containers, where the driver can: the server deletes them some time after their last child
/// went, so that old keys leave nothing behind.
async fn make_parents(driver: &dyn Driver, path: &str) -> Result<(), Error> {
    let mut missing = vec![path];
    while let Some(next) = missing.last().copied() {
        match driver.create(next, b"", Kind::Container).await {
            Ok(_) | Err(Fault::Exists) => {
                missing.pop();
            }
            Err(Fault::NoNode) => match names::parent(next) {
                Some(parent) => missing.push(parent),
                None => return Err(Fault::NoNode.into_error("make a node under the root")),
            },
            Err(other) => return Err(other.into_error("make the lock's node or one above it")),
        }
    }
    Ok(())
}

fn foreign() -> Error {
    Error::corrupt(
        "the node of our zookeeper session is not ours; look for another writer under ~leasehold",
    )
}
