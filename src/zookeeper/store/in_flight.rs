//! An acquire that is in flight while its claim is withdrawn, its store ends, or its server is
//! behind: it grants nothing that goes away under its holder, and leaves no node.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::options::ZooKeeperOptions;
use super::scripted::{Access, Scripted, pass};
use super::zookeeper_store::ZooKeeperStore;
use crate::clock::{Clock, ManualClock};
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::{Label, OwnerToken};
use crate::model::key::Key;
use crate::store::{Acquired, Claim, Store};

const LIST: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(10);

/// A store whose lists are answered a second later.
struct World {
    manual: ManualClock,
    servers: Arc<Scripted>,
    store: ZooKeeperStore,
}

type Asking = JoinHandle<Result<Acquired, Error>>;

impl World {
    async fn new() -> Self {
        let manual = ManualClock::new();
        let mut servers = Scripted::new(&Clock::from(manual.clone()));
        servers.list_takes = LIST;
        let servers = Arc::new(servers);
        let options = ZooKeeperOptions::parse("zookeeper://model").expect("a model");
        let access = Arc::new(Access(Arc::clone(&servers)));
        let store = ZooKeeperStore::simulated(options, manual.clone(), access).expect("a model");
        let world = Self {
            manual,
            servers,
            store,
        };
        world.pass(LIST).await;
        world
    }

    async fn pass(&self, span: Duration) {
        pass(&self.manual, span).await;
    }

    /// Begins a request, whose list is in flight afterwards.
    async fn ask(&self, claim: &Claim) -> Asking {
        let asking = self.send(claim);
        self.pass(LIST / 2).await;
        asking
    }

    fn send(&self, claim: &Claim) -> Asking {
        let (store, claim) = (self.store.clone(), claim.clone());
        tokio::spawn(async move { store.acquire(&claim).await })
    }

    async fn end(&self, asking: Asking) -> Result<Acquired, Error> {
        self.pass(4 * LIST).await;
        asking.await.expect("the task ends")
    }

    /// Closes the store while others go on.
    fn close(&self) -> JoinHandle<Result<(), Error>> {
        let store = self.store.clone();
        tokio::spawn(async move { store.close().await })
    }

    /// A claim that waits behind a node of another client, which then goes.
    async fn next(&self, key: &str) -> Claim {
        let first = format!("/{key}/_c_other-lock-0000000000");
        self.servers.made.lock().insert(0, first.clone());
        let claim = claim(key);
        let asking = self.ask(&claim).await;
        let answer = self.end(asking).await;
        assert!(matches!(answer, Ok(Acquired::Busy { .. })), "{answer:?}");
        self.servers.made.lock().retain(|made| *made != first);
        claim
    }

    /// The contenders of a key.
    fn nodes(&self, key: &str) -> usize {
        let under = format!("/{key}/");
        let made = self.servers.made.lock();
        made.iter().filter(|made| made.starts_with(&under)).count()
    }
}

/// One that keeps a place.
fn claim(key: &str) -> Claim {
    let (key, label) = (
        Key::parse(key).expect("a key"),
        Label::parse("a").expect("a label"),
    );
    Claim::new(key, OwnerToken::generate().expect("an owner"), label, TTL)
}

impl World {
    /// The store ends while somebody asks for `k`, who is not granted it and leaves no node. What
    /// is held stays held.
    async fn ends_beside(&self, asking: Asking) {
        let closing = self.close();
        let answer = self.end(asking).await;
        closing.await.expect("the task ends").expect("it is closed");
        assert_eq!(self.nodes("held"), 1, "nobody released it");
        assert_eq!(self.nodes("k"), 0);
        assert!(!is_granted(&answer), "{answer:?}");
    }
}

fn is_granted(answer: &Result<Acquired, Error>) -> bool {
    matches!(answer, Ok(Acquired::Granted(_)))
}

#[tokio::test]
async fn a_claim_whose_withdrawal_has_begun_is_not_granted() {
    let world = World::new().await;
    let claim = claim("k");
    let asking = world.ask(&claim).await;
    let (store, withdrawn) = (world.store.clone(), claim.clone());
    let withdrawal = tokio::spawn(async move { store.withdraw(&withdrawn).await });
    let answer = world.end(asking).await;
    let kind = answer.map_err(|error| error.kind());
    assert!(matches!(kind, Err(ErrorKind::Invalid)), "{kind:?}");
    withdrawal.await.expect("the task ends").unwrap();
    assert_eq!(world.nodes("k"), 0);
}

#[tokio::test]
async fn a_claim_is_not_granted_in_a_session_that_is_closed() {
    let world = World::new().await;
    let asking = world.ask(&claim("k")).await;
    let closing = world.close();
    let answer = world.end(asking).await;
    closing.await.expect("the task ends").unwrap();
    assert_eq!(world.nodes("k"), 0, "it went with the session");
    let kind = answer.map_err(|error| error.kind());
    assert!(matches!(kind, Err(ErrorKind::Closed)), "{kind:?}");
}

#[tokio::test]
async fn a_claim_is_not_granted_whose_node_is_deleted_as_its_store_ends() {
    let world = World::new().await;
    let asking = world.ask(&claim("held")).await;
    assert!(is_granted(&world.end(asking).await));
    let waits = world.next("k").await;
    let asking = world.ask(&waits).await;
    world.ends_beside(asking).await;
}

#[tokio::test]
async fn a_claim_leaves_no_node_that_it_makes_while_its_store_ends() {
    let world = World::new().await;
    let asking = world.ask(&claim("held")).await;
    assert!(is_granted(&world.end(asking).await));
    // A claim without a place lists before it joins.
    let mut once = claim("k");
    once.place_ttl = Duration::ZERO;
    let asking = world.ask(&once).await;
    assert_eq!(world.nodes("k"), 0);
    world.ends_beside(asking).await;
}

/// A server that is behind shows the node that a revocation took away, and not the barrier in its
/// place.
#[tokio::test]
async fn a_claim_that_waited_is_not_granted_by_the_list_of_a_server_that_is_behind() {
    let world = World::new().await;
    let waits = world.next("k").await;
    let barrier = "/k/_c_b-bar-lock-0000000000".to_owned();
    let shown = std::mem::replace(&mut *world.servers.made.lock(), vec![barrier]);
    assert_eq!(shown.len(), 1);
    *world.servers.behind.lock() = Some(shown);
    let asking = world.ask(&waits).await;
    let answer = world.end(asking).await;
    assert!(matches!(answer, Ok(Acquired::Busy { .. })), "{answer:?}");
}

/// A request that comes second would otherwise keep the claim's turn until the store is closed, and
/// the node could not be deleted.
#[tokio::test]
async fn a_claim_that_is_sent_twice_while_its_store_ends_leaves_no_node() {
    let world = World::new().await;
    let waits = world.next("k").await;
    let asking = world.ask(&claim("held")).await;
    assert!(is_granted(&world.end(asking).await));
    let first = world.send(&waits);
    let second = world.ask(&waits).await;
    let closing = world.close();
    let answers = [world.end(first).await, world.end(second).await];
    closing.await.expect("the task ends").unwrap();
    assert!(!answers.iter().any(is_granted), "{answers:?}");
    assert_eq!(world.nodes("held"), 1, "nobody released it");
    assert_eq!(world.nodes("k"), 0);
}
