//! What operators see of the locks in the tree.

use futures_util::future::join_all;

use super::client::ZooKeeperClient;
use super::drivers::Fault;
use super::queue::names::{self, Contender, Kind, SIMPLE};
use super::queue::node_data::NodeData;
use super::queue::order;
use super::session::Session;
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::{LockInfo, LockMode, Waiter};

/// How many nodes one listing reads. A longer list does not help a person.
const MOST_NODES: usize = 100_000;

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
    let what = "inspect a lock";
    session.sync(path).await.map_err(|f| f.into_error(what))?;
    loop {
        let children = match session.driver.children(path).await {
            Ok(children) => children,
            Err(Fault::NoNode) => return Ok(None),
            Err(other) => return Err(other.into_error(what)),
        };
        let contenders = names::contenders(children)?;
        if contenders.is_empty() {
            return Ok(None);
        }
        if let Some(record) = held(session, path, key, &contenders).await? {
            let (labels, waiters) = people(session, path, key, &contenders).await?;
            return Ok(Some(LockInfo {
                labels,
                waiters,
                ..record
            }));
        }
    }
}

/// The first holders of a key by name, and the first claims that wait.
async fn people(
    session: &Session,
    path: &str,
    key: &Key,
    contenders: &[Contender],
) -> Result<(Vec<Label>, Vec<Waiter>), Error> {
    let into_error = |fault: Fault| fault.into_error("inspect a lock");
    let held = holders(session, path, contenders)
        .await
        .map_err(into_error)?;
    let is_waiter = |c: &&Contender| c.kind != Kind::Barrier;
    let waiting = contenders[held.nodes.len()..].iter().filter(is_waiter);
    let read = |c| record(session, path, c, key);
    let (holders, waiting) = tokio::join!(
        join_all(held.nodes.iter().take(LockInfo::MAX_LABELS).map(read)),
        join_all(waiting.take(LockInfo::MAX_WAITERS).map(read)),
    );
    // A node that is gone by now has no record.
    let there = |records: Vec<Result<Option<LockInfo>, Error>>| {
        let records = records.into_iter().filter_map(Result::transpose);
        records.collect::<Result<Vec<_>, _>>()
    };
    let mut holders = there(holders)?;
    holders.sort_by_key(|record| record.token);
    let waiting = there(waiting)?.into_iter();
    Ok((
        holders
            .into_iter()
            .filter_map(|record| record.label)
            .collect(),
        waiting
            .map(|record| Waiter::new(record.label, record.mode))
            .collect(),
    ))
}

/// The record of a key that is held or barred; `None` if its holder just left. For a barred key,
/// `remaining` is the whole time of the barrier.
async fn held(
    session: &Session,
    path: &str,
    key: &Key,
    contenders: &[Contender],
) -> Result<Option<LockInfo>, Error> {
    let into_error = |fault: Fault| fault.into_error("inspect a lock");
    let held = holders(session, path, contenders)
        .await
        .map_err(into_error)?;
    let queue = contenders
        .iter()
        .filter(|c| c.kind != Kind::Barrier)
        .count()
        - held.nodes.len();
    let shown = held.nodes.last().unwrap_or(&contenders[0]);
    let info = record(session, path, shown, key).await?;
    Ok(info.map(|info| LockInfo {
        holders: held.nodes.len(),
        queue: Some(queue),
        ..info
    }))
}

/// The holder of a key and the claims that wait for it, in their order.
pub(crate) async fn queue(
    session: &Session,
    path: &str,
    key: &Key,
) -> Result<Vec<LockInfo>, Error> {
    let what = "list a queue";
    session.sync(path).await.map_err(|f| f.into_error(what))?;
    let children = match session.driver.children(path).await {
        Ok(children) => children,
        Err(Fault::NoNode) => return Ok(Vec::new()),
        Err(other) => return Err(other.into_error(what)),
    };
    let mut contenders = names::contenders(children)?;
    contenders.retain(|c| c.kind != Kind::Barrier);
    let records = join_all((contenders.iter()).map(|c| record(session, path, c, key))).await;
    records.into_iter().filter_map(Result::transpose).collect()
}

/// The record of one contender; `None` if its node is gone. A node is made when its claim joins the
/// queue; whoever makes the simple lock's node holds it.
async fn record(
    session: &Session,
    path: &str,
    contender: &Contender,
    key: &Key,
) -> Result<Option<LockInfo>, Error> {
    let node = match (session.driver)
        .read(&format!("{path}/{}", contender.name))
        .await
    {
        Ok(node) => node,
        Err(Fault::NoNode) => return Ok(None),
        Err(other) => return Err(other.into_error("inspect a lock")),
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
        let children = match session.driver.children(&path).await {
            Ok(children) => children,
            Err(Fault::NoNode) => continue,
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
            match held(session, &path, &key, &contenders).await {
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
