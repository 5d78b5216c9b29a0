//! A write hold becomes a read hold and keeps its node.
//!
//! One write notes in the node's data that its claim only reads now; a repetition of that write changes nothing. So the token
//! stays (it is the node's `czxid`), the heartbeat proves the same node as before, and the write wakes the readers that watch it.
//! Curator makes a second node instead. That node would have another `czxid`, and if the answer to its creation were lost, the
//! hold would have two nodes or none. The disadvantage: Curator's readers read only names, so they wait until the hold ends.

use super::client::ZooKeeperClient;
use super::drivers::Fault;
use crate::model::error::{Ended, Error, ErrorKind};
use crate::model::key::Key;
use crate::store::{Claim, Grant, LockMode};

pub(super) async fn downgrade(client: &ZooKeeperClient, grant: &Grant) -> Result<Grant, Error> {
    let key = &grant.claim.key;
    let state = (client.claims.of(&grant.claim)).ok_or_else(|| gone(key))?;
    if state.claim.mode == LockMode::Exclusive {
        return Err(Error::invalid(format!(
            "an exclusive hold cannot become a read hold: key={key}; take a write lock"
        )));
    }
    let _turn = state.turn.lock().await;
    let session = client.session().await?;
    let node = state.held_in(session.id).ok_or_else(|| gone(key))?;
    let sent_at = client.clock.stamp();
    if state.claim.mode == LockMode::Write {
        let data = state.node_data(session.ttl, true).encode();
        let written = session.driver.write(&state.path(&node), &data).await;
        written.map_err(|fault| refused(fault, key))?;
        session.proven(sent_at);
    }
    let claim = Claim {
        mode: LockMode::Read,
        ..grant.claim.clone()
    };
    Ok(Grant::new(claim, grant.token, session.proof(sent_at)))
}

fn refused(fault: Fault, key: &Key) -> Error {
    match fault {
        Fault::NoNode | Fault::Expired => gone(key),
        other => other.into_error("turn a write hold into a read hold"),
    }
}

fn gone(key: &Key) -> Error {
    Error::new(
        ErrorKind::Lost(Ended::Gone),
        format!("the claim does not hold the lock: key={key}; ask for it again"),
    )
}
