//! One attempt to hold, in either mode, and how it is undone.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, ready};

use super::client::ZooKeeperClient;
use super::drivers::Fault;
use super::options::ZooKeeperMode;
use super::queue::claim_state::{ClaimState, NodeState, withdrawn};
use super::queue::look::{Look, LookupError};
use super::queue::{join, names, simple};
use super::session::Session;
use crate::model::error::{Error, ErrorKind};
use crate::model::token::FencingToken;
use crate::store::{Acquired, Claim, Grant, Hint, LockMode};

/// How many broken connections or ended sessions one attempt survives.
const TRIES: usize = 3;

pub(super) async fn acquire(client: &ZooKeeperClient, claim: &Claim) -> Result<Acquired, Error> {
    let ttl = client.options.session_timeout;
    if client.options.mode == ZooKeeperMode::Simple && claim.mode != LockMode::Exclusive {
        return Err(Error::unsupported(format!(
            "the simple lock of zookeeper has no read and write modes: key={}; leave out mode=simple",
            claim.key
        )));
    }
    loop {
        let now = client.clock.stamp();
        let state = (client.claims).enter(claim, &client.options.chroot, &now, ttl)?;
        let _turn = state.turn.lock().await;
        // Another request may have ended and forgotten the claim meanwhile. What is not known is
        // not renewed or released.
        let known = client.claims.of(claim);
        if known.is_some_and(|known| Arc::ptr_eq(&known, &state)) {
            return attempt(client, claim, &state).await;
        }
    }
}

/// One attempt, in the claim's turn.
async fn attempt(
    client: &ZooKeeperClient,
    claim: &Claim,
    state: &ClaimState,
) -> Result<Acquired, Error> {
    let ttl = client.options.session_timeout;
    // `Unavailable` says that nothing happened, which is not known where a node of ours may exist.
    let in_doubt_where_sent = |error: Error| {
        if error.kind() != ErrorKind::Unavailable || state.node() == NodeState::Absent {
            return error;
        }
        Error::in_doubt(
            "zookeeper refused a request in the middle of an attempt; withdraw the claim or ask again",
        )
        .because(error)
    };
    let mut last = None;
    for _ in 0..TRIES {
        let session = client.session().await.map_err(in_doubt_where_sent)?;
        let is_late_writer = state.is_downgraded() && claim.mode != LockMode::Read;
        if state.is_withdrawn() || is_late_writer {
            return Err(withdrawn(claim));
        }
        let asked_at = client.clock.stamp();
        let look = match client.options.mode {
            ZooKeeperMode::Queue => join::look(client, &session, state).await,
            ZooKeeperMode::Simple => simple::look(client, &session, state).await,
        };
        match look {
            Ok(Look::Behind) => {
                if state.node() == NodeState::Absent {
                    client.claims.forget(state);
                }
                return Ok(Acquired::Busy { remaining: None });
            }
            Ok(Look::TakenAway) => {
                client.claims.bury(state, &client.clock.stamp(), ttl);
                return Err(withdrawn(claim));
            }
            Ok(Look::First(node)) => {
                let number = u64::try_from(node.czxid).unwrap_or(u64::MAX);
                let token = FencingToken::new(number)?;
                client.claims.grant(state, node)?;
                state.keep(&client.clock.stamp(), session.ttl);
                return Ok(Acquired::Granted(Grant::new(
                    claim.clone(),
                    token,
                    session.proof(asked_at),
                )));
            }
            Err(LookupError::Broken(fault)) => last = Some(fault),
            Err(LookupError::Error(error)) => return Err(in_doubt_where_sent(error)),
        }
    }
    let source = last.unwrap_or(Fault::Expired).into_error("acquire");
    Err(Error::in_doubt(
        "the connection to zookeeper broke several times; withdraw the claim or ask again",
    )
    .because(source))
}

/// Deletes the claim's nodes and forgets the claim. Returns whether there was a node.
pub(super) async fn remove(
    client: &ZooKeeperClient,
    session: &Session,
    state: &ClaimState,
) -> Result<bool, Error> {
    let was_held = state.held_in(session.id).is_some();
    let removed = match client.options.mode {
        ZooKeeperMode::Queue => join::remove(session, state).await,
        ZooKeeperMode::Simple => simple::remove(session, state).await,
    };
    let was_there = removed.map_err(|fault| fault.into_error("delete our node"))?;
    if was_held && !was_there {
        // Its lock was taken away. A repeated acquire must not grant the claim again.
        client
            .claims
            .bury(state, &client.clock.stamp(), session.ttl);
    } else {
        client.claims.forget(state);
    }
    Ok(was_there)
}

/// Deletes the nodes that no caller can rely on any more: grants that were not renewed for a TTL,
/// claims that were withdrawn while the server was away, waiting claims that nobody asks about.
pub(super) async fn sweep(client: &ZooKeeperClient, session: &Session) {
    for state in client.claims.abandoned(&client.clock.stamp()) {
        let Ok(_turn) = state.turn.try_lock() else {
            continue;
        };
        // A caller may have asked for it while the others were deleted.
        if !state.is_abandoned(&client.clock.stamp()) {
            continue;
        }
        if let Err(error) = remove(client, session, &state).await {
            tracing::warn!(target: "leasehold::zookeeper", %error, key = %state.claim.key, "an abandoned zookeeper node could not be deleted yet");
        }
    }
}

/// Deletes the nodes of every claim that holds nothing, within `limit`, after the requests that are
/// in progress. Returns whether a claim holds: nobody released it, and its node must stay. Nothing
/// is granted from now on.
pub(super) async fn leave(client: &ZooKeeperClient, session: &Session, limit: Duration) -> bool {
    let (held, waiting): (Vec<_>, Vec<_>) = (client.claims.end())
        .into_iter()
        .partition(|state| state.held_in(session.id).is_some());
    if held.is_empty() {
        // The end of the session deletes the rest.
        return false;
    }
    let removals = waiting.iter().map(|state| async {
        let _turn = state.turn.lock().await;
        remove(client, session, state).await
    });
    let _ = client.clock.timeout(limit, join_all(removals)).await;
    true
}

pub(super) async fn subscribe(client: &ZooKeeperClient, claim: &Claim) -> Result<Hint, Error> {
    let what = "watch a contender";
    let session = client.session().await?;
    let parent = names::key_path(&client.options.chroot, &claim.key)?;
    let known = client.claims.of(claim).map(|state| state.node());
    let predecessor = match known {
        Some(NodeState::At(node)) if node.session == session.id => node.predecessor,
        // It is not in the queue: the last contender would be before it.
        _ => {
            let children = session.children_if_there(&parent).await;
            let children = children.map_err(|fault| fault.into_error(what))?;
            names::contenders(children)?.pop().map(|last| last.name)
        }
    };
    let Some(predecessor) = predecessor else {
        return Ok(Hint::new(ready(())));
    };
    match session
        .driver
        .watch(&format!("{parent}/{predecessor}"))
        .await
    {
        Ok(changed) => Ok(Hint::new(changed)),
        Err(Fault::NoNode) => Ok(Hint::new(ready(()))),
        Err(other) => Err(other.into_error(what)),
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::super::options::ZooKeeperOptions;
    use super::super::scripted::{Access, Scripted, pass};
    use super::super::zookeeper_store::ZooKeeperStore;
    use crate::clock::{Clock, ManualClock};
    use crate::model::holder::{Label, OwnerToken};
    use crate::model::key::Key;
    use crate::store::Store;

    use super::*;

    /// Another client may have deleted the node after it was listed, and its lease is over when its
    /// time-out has passed since then.
    #[tokio::test]
    async fn a_grant_counts_from_no_proof_of_after_it_was_asked_for() {
        let manual = ManualClock::new();
        let clock = Clock::from(manual.clone());
        let mut servers = Scripted::new(&clock);
        servers.list_takes = Duration::from_secs(8);
        let options = ZooKeeperOptions::parse("zookeeper://model").unwrap();
        let access = Arc::new(Access(Arc::new(servers)));
        let store = ZooKeeperStore::simulated(options, manual.clone(), access).unwrap();
        pass(&manual, Duration::from_secs(1)).await;
        let (key, label) = (Key::parse("k").unwrap(), Label::parse("a").unwrap());
        let owner = OwnerToken::generate().unwrap();
        let claim = Claim::new(key, owner, label, Duration::from_secs(10));
        let asked_at = clock.stamp();
        let asking = tokio::spawn({
            let store = store.clone();
            async move { store.acquire(&claim).await }
        });
        pass(&manual, Duration::from_secs(9)).await;
        let Ok(Acquired::Granted(grant)) = asking.await.unwrap() else {
            panic!("it is first");
        };
        let counted_from = grant.proof.sent_at.unwrap();
        assert!(counted_from.since(&asked_at).is_zero());
    }
}
