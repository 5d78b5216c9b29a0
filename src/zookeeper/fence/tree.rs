//! [`Tree`]: a model of an ensemble's nodes in which a test stops single requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, ready};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::{Clock, Stamp};
use crate::zookeeper::store::simulation::{
    Change, Driver, Ending, Fault, Kind, LeaderTime, Made, Missing, Node, Refused, Servers,
};

const SESSION: i64 = 7;

/// The data and the version of each node, by its path.
type Nodes = BTreeMap<String, (Vec<u8>, i32)>;

/// A model that every session sees alike. Nodes need no parents.
#[derive(Debug)]
pub(super) struct Tree {
    clock: Clock,
    opened_at: Stamp,
    nodes: Mutex<Nodes>,
    stops: Mutex<Vec<(&'static str, Arc<Stop>)>>,
    /// What was listed.
    pub(super) lists: Mutex<Vec<String>>,
}

/// A request that is stopped: a change before it arrives, the others before their answer.
#[derive(Debug, Default)]
pub(super) struct Stop {
    pub(super) reached: Notify,
    pub(super) go: Notify,
}

impl Tree {
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            opened_at: clock.stamp(),
            nodes: Mutex::default(),
            stops: Mutex::default(),
            lists: Mutex::default(),
        }
    }

    /// Stops the next request that contains these words.
    pub(super) fn stop(&self, words: &'static str) -> Arc<Stop> {
        let stop = Arc::new(Stop::default());
        self.stops.lock().push((words, Arc::clone(&stop)));
        stop
    }

    async fn pass(&self, request: &str) {
        let stop = {
            let mut stops = self.stops.lock();
            let at = stops.iter().position(|(words, _)| request.contains(words));
            at.map(|at| stops.remove(at).1)
        };
        if let Some(stop) = stop {
            stop.reached.notify_one();
            stop.go.notified().await;
        }
    }

    pub(super) fn put(&self, path: &str) {
        self.nodes.lock().insert(path.to_owned(), (Vec::new(), 0));
    }

    pub(super) fn delete(&self, path: &str) {
        self.nodes.lock().remove(path).expect("it exists");
    }

    /// The version of a node, if it exists.
    pub(super) fn version(&self, path: &str) -> Option<i32> {
        self.nodes.lock().get(path).map(|(_, version)| *version)
    }

    fn now(&self) -> LeaderTime {
        LeaderTime(0).plus(self.clock.stamp().since(&self.opened_at))
    }
}

fn apply(nodes: &mut Nodes, change: &Change) -> Result<(), Fault> {
    let path = change.parts().1.to_owned();
    let there = nodes.get(&path).map(|(_, version)| *version);
    match change {
        Change::Create { data, .. } | Change::CreateEphemeral { data, .. } => match there {
            Some(_) => return Err(Fault::Exists),
            None => drop(nodes.insert(path, (data.clone(), 0))),
        },
        Change::Check { version, .. } | Change::Set { version, .. } => {
            let there = there.ok_or(Fault::NoNode)?;
            if version.is_some_and(|version| version != there) {
                return Err(Fault::BadVersion);
            }
            if let Change::Set { data, .. } = change {
                nodes.insert(path, (data.clone(), there + 1));
            }
        }
        Change::Delete { .. } => {
            nodes.remove(&path).ok_or(Fault::NoNode)?;
        }
    }
    Ok(())
}

/// A way to the tree.
#[derive(Debug)]
pub(super) struct Access(pub(super) Arc<Tree>);

impl Servers for Access {
    fn connect(
        &self,
        timeout: Duration,
        _: Ending,
    ) -> BoxFuture<'_, Result<Box<dyn Driver>, Fault>> {
        let tree = Arc::clone(&self.0);
        let driver: Box<dyn Driver> = Box::new(TreeSession { tree, timeout });
        ready(Ok(driver)).boxed()
    }

    fn disconnect(&self) {}
}

#[derive(Debug)]
struct TreeSession {
    tree: Arc<Tree>,
    timeout: Duration,
}

impl TreeSession {
    fn apply(&self, changes: &[Change]) -> Result<(), Refused> {
        let mut nodes = self.tree.nodes.lock();
        let mut changed = nodes.clone();
        for (at, change) in changes.iter().enumerate() {
            apply(&mut changed, change).map_err(|fault| Refused::At(at, fault))?;
        }
        *nodes = changed;
        Ok(())
    }

    fn apply_one(&self, change: Change) -> Result<(), Fault> {
        apply(&mut self.tree.nodes.lock(), &change)
    }
}

impl Driver for TreeSession {
    fn session(&self) -> Option<i64> {
        Some(SESSION)
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn connected(&self) -> BoxFuture<'_, Result<(), Fault>> {
        ready(Ok(())).boxed()
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        pending().boxed()
    }

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        _: Kind,
    ) -> BoxFuture<'a, Result<Made, Fault>> {
        let (path, data) = (path.to_owned(), data.to_vec());
        let made = self.apply_one(Change::Create { path, data });
        let made_at = self.tree.now();
        ready(made.map(|()| Made {
            sequence: 0,
            czxid: 1,
            owner: SESSION,
            made_at,
        }))
        .boxed()
    }

    fn delete<'a>(&'a self, path: &'a str, _: Option<i32>) -> BoxFuture<'a, Result<(), Fault>> {
        let path = path.to_owned();
        ready(self.apply_one(Change::Delete { path })).boxed()
    }

    fn children<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<String>, Fault>> {
        let below = |node: &String| {
            let name = node.strip_prefix(path)?.strip_prefix('/')?;
            (!name.contains('/')).then(|| name.to_owned())
        };
        let names = self.tree.nodes.lock().keys().filter_map(below).collect();
        self.tree.lists.lock().push(path.to_owned());
        Box::pin(async move {
            self.tree.pass(&format!("children {path}")).await;
            Ok(names)
        })
    }

    fn read<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Node, Fault>> {
        let node = self.tree.nodes.lock().get(path).cloned();
        let made_at = self.tree.now();
        Box::pin(async move {
            self.tree.pass(&format!("read {path}")).await;
            let (data, version) = node.ok_or(Fault::NoNode)?;
            Ok(Node {
                data,
                czxid: 1,
                owner: SESSION,
                version,
                made_at,
            })
        })
    }

    fn write<'a>(&'a self, path: &'a str, data: &'a [u8]) -> BoxFuture<'a, Result<(), Fault>> {
        let (path, data, version) = (path.to_owned(), data.to_vec(), None);
        ready(self.apply_one(Change::Set {
            path,
            data,
            version,
        }))
        .boxed()
    }

    fn watch<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<BoxFuture<'static, ()>, Fault>> {
        ready(Err(Fault::NoNode)).boxed()
    }

    fn sync<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        ready(Ok(())).boxed()
    }

    fn beat<'a>(
        &'a self,
        _: &'a str,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<LeaderTime, Missing>> {
        ready(Ok(self.tree.now())).boxed()
    }

    fn change<'a>(&'a self, changes: &'a [Change]) -> BoxFuture<'a, Result<(), Refused>> {
        Box::pin(async move {
            self.tree.pass(&format!("{changes:?}")).await;
            self.apply(changes)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}
