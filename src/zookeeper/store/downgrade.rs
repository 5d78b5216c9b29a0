//! A write hold becomes a read hold and keeps its node. One write notes that in the node's data,
//! and a repetition of it changes nothing. A second node, as Curator makes one, would have another
//! `czxid`, and a lost answer would leave two nodes or none.

use super::client::ZooKeeperClient;
use super::drivers::{Fault, Missing};
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
    let path = state.path(&node);
    let sent_at = if state.claim.mode == LockMode::Write {
        let sent_at = client.clock.stamp();
        state.downgrade();
        let data = state.node_data(session.ttl, true).encode();
        let written = session.driver.write(&path, &data).await;
        written.map_err(|fault| refused(fault, key))?;
        session.proven(sent_at);
        sent_at
    } else {
        // It reads already, if its node is there.
        let there = session.beat(&[path]).await;
        there.map_err(|missing| match missing {
            Missing::Held | Missing::Own => gone(key),
            Missing::Fault(fault) => refused(fault, key),
        })?
    };
    // The node stays for as long as this grant's lease.
    state.keep(&sent_at, session.ttl);
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

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::options::ZooKeeperOptions;
    use super::super::scripted::{Access, Scripted, pass};
    use super::super::zookeeper_store::ZooKeeperStore;
    use super::*;
    use crate::clock::{Clock, ManualClock};
    use crate::model::holder::{Label, OwnerToken};
    use crate::store::{Acquired, Store};

    /// Otherwise the next holder would enter under the lease of this one.
    #[tokio::test]
    async fn the_node_stays_for_as_long_as_the_lease_of_a_downgraded_hold() {
        let manual = ManualClock::new();
        let clock = Clock::from(manual.clone());
        let options = ZooKeeperOptions::parse("zookeeper://model").unwrap();
        let servers = Arc::new(Scripted::new(&clock));
        let access = Arc::new(Access(Arc::clone(&servers)));
        let store = ZooKeeperStore::simulated(options, manual.clone(), access).unwrap();
        pass(&manual, Duration::from_secs(1)).await;
        let (key, label) = (Key::parse("k").unwrap(), Label::parse("a").unwrap());
        let owner = OwnerToken::generate().unwrap();
        let mut claim = Claim::new(key, owner, label, Duration::from_secs(10));
        claim.mode = LockMode::Read;
        let Ok(Acquired::Granted(grant)) = store.acquire(&claim).await else {
            panic!("nobody writes");
        };
        pass(&manual, Duration::from_secs(8)).await;
        let proof = store.downgrade(&grant).await.unwrap().proof;
        pass(&manual, Duration::from_secs(3)).await;
        let lease_ends = proof.sent_at.unwrap().plus(proof.ttl);
        assert!(!lease_ends.since(&clock.stamp()).is_zero());
        assert_eq!(servers.made.lock().len(), 1);
    }
}
