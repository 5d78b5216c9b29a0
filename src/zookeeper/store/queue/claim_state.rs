//! [`Claims`]: what this process knows about every claim that it sent to the ensemble.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::names;
use super::node_data::NodeData;
use crate::clock::Stamp;
use crate::model::error::Error;
use crate::model::holder::OwnerToken;
use crate::model::key::Key;
use crate::model::room::make_room;
use crate::store::Claim;

/// The longest pause between two requests of a claim that waits: the longest `max_poll_interval`. A
/// waiting claim that nobody asks about for this long and a TTL is removed, so that a forgotten
/// waiter does not block the queue for the life of the session.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What is known about one claim. Its nodes are found again by the guid, also after a reply was
/// lost.
#[derive(Debug)]
pub(crate) struct ClaimState {
    pub(crate) claim: Claim,
    pub(crate) guid: String,
    /// The key's node.
    pub(crate) parent: String,
    /// One request of a claim at a time: a second create would make a second contender.
    pub(crate) turn: tokio::sync::Mutex<()>,
    is_withdrawn: AtomicBool,
    /// Whether a writer's claim became a reader's, or may have.
    is_downgraded: AtomicBool,
    known: Mutex<KnownClaim>,
}

#[derive(Debug)]
struct KnownClaim {
    node: NodeState,
    /// Until when the node is kept without another request for the claim.
    kept_until: Stamp,
}

/// What is known about the claim's node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NodeState {
    /// There is none.
    Absent,
    /// A create was sent, and no answer has arrived.
    InDoubt,
    /// It exists.
    At(ClaimNode),
}

/// A claim's node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClaimNode {
    /// The session that owns it.
    pub(crate) session: i64,
    pub(crate) name: String,
    pub(crate) czxid: i64,
    /// Whether the claim was granted: from then on nothing comes before it.
    pub(crate) is_granted: bool,
    /// The node that it waited for when the queue was last read.
    pub(crate) predecessor: Option<String>,
}

impl ClaimState {
    pub(crate) fn node(&self) -> NodeState {
        self.known.lock().node.clone()
    }

    pub(crate) fn set_node(&self, node: NodeState) {
        self.known.lock().node = node;
    }

    /// The claim's node, if it was granted in this session.
    pub(crate) fn held_in(&self, session: i64) -> Option<ClaimNode> {
        match self.node() {
            NodeState::At(node) if node.session == session && node.is_granted => Some(node),
            _ => None,
        }
    }

    /// The data of the claim's node in a queue.
    pub(crate) fn node_data(&self, ttl: Duration, reads: bool) -> NodeData {
        NodeData {
            head: self.claim.label.record().to_owned(),
            ttl: Some(ttl),
            reads,
        }
    }

    pub(crate) fn path(&self, node: &ClaimNode) -> String {
        format!("{}/{}", self.parent, node.name)
    }

    /// A caller asked for this claim at `now`: its node is kept for a while.
    pub(crate) fn keep(&self, now: &Stamp, ttl: Duration) {
        let mut known = self.known.lock();
        let is_granted = matches!(&known.node, NodeState::At(node) if node.is_granted);
        known.kept_until = now.plus(if is_granted { ttl } else { ttl + LONGEST_PAUSE });
    }

    /// Whether no caller can rely on this claim any more at `now`.
    pub(crate) fn is_abandoned(&self, now: &Stamp) -> bool {
        self.is_withdrawn() || self.known.lock().kept_until.since(now).is_zero()
    }

    pub(crate) fn downgrade(&self) {
        self.is_downgraded.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_downgraded(&self) -> bool {
        self.is_downgraded.load(Ordering::SeqCst)
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::SeqCst)
    }
}

/// Every claim that is held, waits or is in doubt.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    inner: Mutex<ClaimTable>,
}

#[derive(Debug, Default)]
struct ClaimTable {
    claims: HashMap<OwnerToken, Arc<ClaimState>>,
    /// Withdrawn claims, and until when they are remembered: an acquire that arrives after its
    /// withdrawal is refused.
    withdrawn: HashMap<OwnerToken, Stamp>,
    /// The store has ended: nothing is granted any more.
    is_over: bool,
}

impl Claims {
    /// The state of a claim, new if there is none.
    ///
    /// # Errors
    ///
    /// `Invalid` if the claim was withdrawn or its key does not suit the tree.
    pub(crate) fn enter(
        &self,
        claim: &Claim,
        chroot: &str,
        now: &Stamp,
        ttl: Duration,
    ) -> Result<Arc<ClaimState>, Error> {
        let parent = names::key_path(chroot, &claim.key)?;
        let mut inner = self.inner.lock();
        if inner.withdrawn.contains_key(&claim.owner) {
            return Err(withdrawn(claim));
        }
        if let Some(state) = inner.claims.get(&claim.owner) {
            state.keep(now, ttl);
            return Ok(Arc::clone(state));
        }
        let state = Arc::new(ClaimState {
            claim: claim.clone(),
            guid: names::new_guid()?,
            parent,
            turn: tokio::sync::Mutex::default(),
            is_withdrawn: AtomicBool::new(false),
            is_downgraded: AtomicBool::new(false),
            known: Mutex::new(KnownClaim {
                node: NodeState::Absent,
                kept_until: now.plus(ttl + LONGEST_PAUSE),
            }),
        });
        inner.claims.insert(claim.owner, Arc::clone(&state));
        Ok(state)
    }

    /// Notes that the claim holds the lock with this node. In one step with the checks, so whoever
    /// withdraws the claim or ends the store after this finds a hold, and nothing is granted after
    /// they began.
    ///
    /// # Errors
    ///
    /// `Invalid` if the claim was withdrawn, `Closed` if the store has ended. Its node is left to
    /// whoever did that.
    pub(crate) fn grant(&self, state: &ClaimState, node: ClaimNode) -> Result<(), Error> {
        let inner = self.inner.lock();
        if state.is_withdrawn() {
            return Err(withdrawn(&state.claim));
        }
        if inner.is_over {
            return Err(closed());
        }
        state.set_node(NodeState::At(ClaimNode {
            is_granted: true,
            ..node
        }));
        Ok(())
    }

    /// From now on no claim is granted. Gives those that are known.
    pub(crate) fn end(&self) -> Vec<Arc<ClaimState>> {
        self.inner.lock().is_over = true;
        self.such(|_| true)
    }

    /// In an order that a simulation repeats.
    fn such(&self, is_such: impl Fn(&ClaimState) -> bool) -> Vec<Arc<ClaimState>> {
        let inner = self.inner.lock();
        let such = inner.claims.values().filter(|state| is_such(state));
        let mut such: Vec<_> = such.cloned().collect();
        such.sort_unstable_by(|a, b| a.guid.cmp(&b.guid));
        such
    }

    /// Every claim of a key.
    pub(crate) fn of_key(&self, key: &Key) -> Vec<Arc<ClaimState>> {
        self.such(|state| state.claim.key == *key)
    }

    pub(crate) fn of(&self, claim: &Claim) -> Option<Arc<ClaimState>> {
        self.inner.lock().claims.get(&claim.owner).cloned()
    }

    /// From now on the claim is never granted. Gives its state, if it has one.
    pub(crate) fn withdraw(
        &self,
        claim: &Claim,
        now: &Stamp,
        ttl: Duration,
    ) -> Option<Arc<ClaimState>> {
        let mut inner = self.inner.lock();
        inner.bury(claim, now, ttl);
        let state = inner.claims.get(&claim.owner).cloned();
        if let Some(state) = &state {
            state.is_withdrawn.store(true, Ordering::SeqCst);
        }
        state
    }

    /// Forgets a claim whose node was taken away: it is never granted again.
    pub(crate) fn bury(&self, state: &ClaimState, now: &Stamp, ttl: Duration) {
        let mut inner = self.inner.lock();
        inner.bury(&state.claim, now, ttl);
        inner.claims.remove(&state.claim.owner);
    }

    /// Forgets a claim whose nodes are gone.
    pub(crate) fn forget(&self, state: &ClaimState) {
        self.inner.lock().claims.remove(&state.claim.owner);
    }

    /// The claims that no caller can rely on any more.
    pub(crate) fn abandoned(&self, now: &Stamp) -> Vec<Arc<ClaimState>> {
        self.such(|state| state.is_abandoned(now))
    }
}

impl ClaimTable {
    fn bury(&mut self, claim: &Claim, now: &Stamp, ttl: Duration) {
        make_room(&mut self.withdrawn, |until| !until.since(now).is_zero());
        (self.withdrawn).insert(claim.owner, now.plus(ttl + LONGEST_PAUSE));
    }
}

pub(crate) fn withdrawn(claim: &Claim) -> Error {
    Error::invalid(format!(
        "this claim was withdrawn, its lock was taken away, or it became a reader's: key={}; make a new claim",
        claim.key
    ))
}

pub(crate) fn closed() -> Error {
    Error::closed("the zookeeper store was closed; connect again")
}
