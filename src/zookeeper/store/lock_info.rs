//! What operators see of the locks in the tree.

use futures_util::future::{join, join_all};

use super::client::ZooKeeperClient;
use super::drivers::Fault;
use super::queue::names::{self, Contender, Kind, SIMPLE};
use super::queue::node_data::NodeData;
use super::queue::order;
use super::session::Session;
use crate::model::error::{Error, ErrorKind};
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::{LockInfo, LockMode, Waiter};

/// How many nodes one listing reads. A longer list does not help a person.
const MOST_NODES: usize = 100_000;
const INSPECT: &str = "inspect a lock";

/// Who holds a key.
pub(crate) struct Holders<'a> {
    pub(crate) nodes: &'a [Contender],
    pub(crate) are_readers: bool,
}

/// The holders among the contenders of a key.
pub(crate) async fn holders<'a>(
    session: &Session,
    path: &str,
    contenders: &'a [Contender],
) -> Result<Holders<'a>, Fault> {
    let first_reads = match contenders.first() {
        Some(first) if first.kind == Kind::Read => true,
        Some(first) if first.kind == Kind::Write => {
            session.reads_now(&format!("{path}/{}", first.name)).await?
        }
        _ => false,
    };
    Ok(Holders {
        nodes: order::holders(contenders, first_reads),
        are_readers: first_reads,
    })
}

/// The holder of a key, if there is one.
pub(crate) async fn inspect(
    session: &Session,
    path: &str,
    key: &Key,
) -> Result<Option<LockInfo>, Error> {
    let into_error = |fault: Fault| fault.into_error(INSPECT);
    loop {
        // Requests take effect in this order: the list shows what the leader had.
        let (synced, listed) = join(session.sync(path), session.children_if_there(path)).await;
        synced.map_err(into_error)?;
        let contenders = names::contenders(listed.map_err(into_error)?)?;
        session.records.keep(path, &contenders);
        if contenders.is_empty() {
            return Ok(None);
        }
        if let Some(info) = of_contenders(session, path, key, &contenders, true).await? {
            return Ok(Some(info));
        }
    }
}

/// The record of a key that is held or barred; `None` if its holder just left. For a barred key,
/// `remaining` is the whole time of the barrier. A look at one key names holders and claims that
/// wait, and remembers their nodes.
async fn of_contenders(
    session: &Session,
    path: &str,
    key: &Key,
    contenders: &[Contender],
    is_of_one_key: bool,
) -> Result<Option<LockInfo>, Error> {
    let (labels, waiters) = match is_of_one_key {
        true => (LockInfo::MAX_LABELS, LockInfo::MAX_WAITERS),
        false => (0, 0),
    };
    let held = holders(session, path, contenders).await;
    let held = held.map_err(|fault| fault.into_error(INSPECT))?.nodes;
    let (last, others) = match held.split_last() {
        Some((last, others)) => (last, others),
        None => (&contenders[0], held),
    };
    let waiting = contenders[held.len()..].iter();
    let waiting = waiting.filter(|c| c.kind != Kind::Barrier);
    let queue = waiting.clone().count();
    let read = |c, holds| record(session, path, c, holds, key, is_of_one_key);
    let (last, others, waiting) = tokio::join!(
        read(last, true),
        join_all(others.iter().take(labels).map(|c| read(c, true))),
        join_all(waiting.take(waiters).map(|c| read(c, false))),
    );
    let Some(mut info) = last? else {
        return Ok(None);
    };
    // A node that is gone by now has no record.
    let there = |records: Vec<Result<Option<LockInfo>, Error>>| {
        let records = records.into_iter().filter_map(Result::transpose);
        records.collect::<Result<Vec<_>, _>>()
    };
    let mut named = there(others)?;
    named.sort_by_key(|record| record.token);
    let named = named.into_iter().filter_map(|record| record.label);
    (info.holders, info.queue) = (held.len(), Some(queue));
    info.labels = named.chain(info.label.clone()).take(labels).collect();
    let waiting = there(waiting)?.into_iter();
    info.waiters = waiting.map(|w| Waiter::new(w.label, w.mode)).collect();
    Ok(Some(info))
}

/// The record of one contender; `None` if its node is gone. A node is made when its claim joins the
/// queue; whoever makes the simple lock's node holds it.
async fn record(
    session: &Session,
    path: &str,
    contender: &Contender,
    holds: bool,
    key: &Key,
    is_remembered: bool,
) -> Result<Option<LockInfo>, Error> {
    let node = match session.records.find(path, contender, holds) {
        Some(node) => node,
        None => {
            let of = format!("{path}/{}", contender.name);
            let node = session.read_if_there(&of).await;
            let Some(node) = node.map_err(|fault| fault.into_error(INSPECT))? else {
                return Ok(None);
            };
            if is_remembered {
                session.records.note(path, contender, holds, &node);
            }
            node
        }
    };
    let data = NodeData::decode(&node.data);
    if contender.kind == Kind::Barrier {
        return Ok(Some(LockInfo {
            remaining: data.ttl,
            ..LockInfo::of(key.clone())
        }));
    }
    let mode = match contender.kind.mode() {
        LockMode::Write if data.reads => LockMode::Read,
        mode => mode,
    };
    let is_simple = contender.name == SIMPLE;
    let now = session.leader_now();
    let ago = now.map(|now| now.since(node.made_at));
    Ok(Some(LockInfo {
        label: data.label(is_simple),
        held_for: ago.filter(|_| is_simple),
        asked_ago: ago.filter(|_| !is_simple),
        mode: Some(mode),
        token: u64::try_from(node.czxid)
            .ok()
            .and_then(|number| FencingToken::new(number).ok()),
        ..LockInfo::of(key.clone())
    }))
}

/// Every held lock under `chroot` whose key starts with `prefix`, by key.
pub(crate) async fn list(
    client: &ZooKeeperClient,
    session: &Session,
    prefix: &str,
) -> Result<Vec<LockInfo>, Error> {
    let chroot = client.options.chroot.as_str();
    let what = "list the locks";
    let mut records = Vec::new();
    let mut open = vec![String::new()];
    let (mut seen, mut hidden) = (0, 0);
    let root = if chroot.is_empty() { "/" } else { chroot };
    session.sync(root).await.map_err(|f| f.into_error(what))?;
    while let Some(key) = open.pop() {
        seen += 1;
        if seen > MOST_NODES {
            return Err(Error::unavailable(format!(
                "the tree has more than {MOST_NODES} nodes to look at; list with a longer prefix"
            )));
        }
        let path = match Key::parse(&key) {
            Ok(key) => names::key_path(chroot, &key)?,
            Err(_) => root.to_owned(),
        };
        let children = match session.children_if_there(&path).await {
            Ok(children) => children,
            Err(Fault::Denied { .. }) if !key.is_empty() => {
                hidden += 1;
                continue;
            }
            Err(other) => return Err(other.into_error(what)),
        };
        let join = |child: &str| {
            if key.is_empty() {
                child.to_owned()
            } else {
                format!("{key}/{}", names::nested_segment(child))
            }
        };
        for child in &children {
            let under = join(child);
            // Nodes that are no keys (contenders, those of the system, those of others) have no
            // locks below them.
            let node = format!("{}/{child}", path.trim_end_matches('/'));
            let is_key = Key::parse(&under)
                .is_ok_and(|key| names::key_path(chroot, &key).is_ok_and(|path| path == node));
            if is_key && (under.starts_with(prefix) || prefix.starts_with(&format!("{under}/"))) {
                open.push(under);
            }
        }
        if !key.starts_with(prefix) {
            continue;
        }
        let contenders = names::contenders(children)?;
        if let (Ok(key), false) = (Key::parse(&key), contenders.is_empty()) {
            match of_contenders(session, &path, &key, &contenders, false).await {
                Ok(record) => records.extend(record),
                Err(error) if error.kind() == ErrorKind::Denied => hidden += 1,
                Err(error) => return Err(error),
            }
        }
    }
    if hidden > 0 {
        tracing::warn!(target: "leasehold::zookeeper", "a list leaves out {hidden} nodes that this session may not read");
    }
    records.sort_by(|a: &LockInfo, b| a.key.cmp(&b.key));
    Ok(records)
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
    use crate::store::{Claim, Store};

    async fn world() -> (ManualClock, Arc<Scripted>, ZooKeeperStore) {
        let manual = ManualClock::new();
        let servers = Arc::new(Scripted::new(&Clock::from(manual.clone())));
        let access = Arc::new(Access(Arc::clone(&servers)));
        let options = ZooKeeperOptions::parse("zookeeper://model").expect("a URL");
        let store = ZooKeeperStore::simulated(options, manual.clone(), access);
        let store = store.expect("the options are in range");
        pass(&manual, Duration::from_secs(1)).await;
        (manual, servers, store)
    }

    async fn joins(store: &ZooKeeperStore, mode: LockMode) -> Claim {
        let owner = OwnerToken::generate().expect("an owner");
        let label = Label::parse("a").expect("a label");
        let key = Key::parse("k").expect("a key");
        let mut claim = Claim::new(key, owner, label, Duration::from_secs(10));
        claim.mode = mode;
        let asked = store.acquire(&claim).await;
        let _ = asked.expect("it joins the queue");
        claim
    }

    /// A writer that holds writes its node when it becomes a reader.
    #[tokio::test]
    async fn a_writer_that_was_seen_as_it_waited_is_shown_as_the_reader_that_it_became() {
        let (_manual, servers, store) = world().await;
        let first = joins(&store, LockMode::Write).await;
        joins(&store, LockMode::Write).await;
        let look = async || store.inspect(&first.key).await.unwrap().unwrap();
        assert_eq!(look().await.waiters.len(), 1);
        store.withdraw(&first).await.unwrap();
        assert_eq!(look().await.mode, Some(LockMode::Write));
        *servers.data.lock() = b"a\nttl_millis=10000\nreads".to_vec();
        assert_eq!(look().await.mode, Some(LockMode::Read));
    }

    /// A list of all keys would push out what looks at single keys need.
    #[tokio::test]
    async fn a_list_of_the_keys_remembers_no_node() {
        let (_manual, servers, store) = world().await;
        let key = joins(&store, LockMode::Read).await.key;
        let session = store.client.session().await.unwrap();
        let nodes = session.children_if_there("/k").await.unwrap();
        let nodes = names::contenders(nodes).unwrap();
        let listed = of_contenders(&session, "/k", &key, &nodes, false).await;
        assert!(listed.unwrap().is_some());
        servers.asked.lock().clear();
        let _ = store.inspect(&key).await.unwrap().unwrap();
        let asked = servers.asked.lock().clone();
        assert_eq!(asked, ["sync", "children", "read"]);
    }

    /// Each member of a hundred looks at all of them six times in a TTL.
    #[tokio::test]
    async fn a_look_at_a_queue_that_has_not_changed_reads_no_node() {
        let (_manual, servers, store) = world().await;
        let key = Key::parse("k").unwrap();
        let joins = async || joins(&store, LockMode::Read).await;
        let looks = async || {
            servers.asked.lock().clear();
            let info = store.inspect(&key).await.unwrap().unwrap();
            (info.labels.len(), servers.asked.lock().clone())
        };
        let idle = ["sync", "children"];
        let first = joins().await;
        for _ in 0..2 {
            joins().await;
        }
        let (members, asked) = looks().await;
        assert_eq!((members, asked.len()), (3, idle.len() + 3));
        assert_eq!(looks().await, (3, idle.to_vec()));
        joins().await;
        assert_eq!(looks().await, (4, [&idle[..], &["read"]].concat()));
        store.withdraw(&first).await.unwrap();
        assert_eq!(looks().await, (3, idle.to_vec()));
    }
}
