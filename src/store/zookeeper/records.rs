//! What the tree tells of locks that are held, for operators.

use futures_util::future::join_all;

use super::driver::Fault;
use super::names::{self, SIMPLE};
use super::session::Session;
use crate::error::Error;
use crate::holder::Label;
use crate::key::Key;
use crate::store::Record;
use crate::token::FencingToken;

/// How many nodes one listing looks at. More is no answer for people.
const MOST_NODES: usize = 100_000;

/// Who is first in a key's queue.
pub(crate) async fn inspect(
    session: &Session,
    path: &str,
    key: &Key,
) -> Result<Option<Record>, Error> {
    let what = "inspect a lock";
    session.sync(path).await.map_err(|f| f.into_error(what))?;
    loop {
        let children = match session.driver.children(path).await {
            Ok(children) => children,
            Err(Fault::NoNode) => return Ok(None),
            Err(other) => return Err(other.into_error(what)),
        };
        let Some(first) = names::contenders(children)?.into_iter().next() else {
            return Ok(None);
        };
        if let Some(record) = record(session, path, &first.name, key).await? {
            return Ok(Some(record));
        }
    }
}

/// Who holds a key and who waits for it, first come first.
pub(crate) async fn queue(session: &Session, path: &str, key: &Key) -> Result<Vec<Record>, Error> {
    let what = "list a queue";
    session.sync(path).await.map_err(|f| f.into_error(what))?;
    let children = match session.driver.children(path).await {
        Ok(children) => children,
        Err(Fault::NoNode) => return Ok(Vec::new()),
        Err(other) => return Err(other.into_error(what)),
    };
    let contenders = names::contenders(children)?;
    let told = join_all((contenders.iter()).map(|c| record(session, path, &c.name, key))).await;
    told.into_iter().filter_map(Result::transpose).collect()
}

/// What a contender's node tells; `None` if it is gone.
async fn record(
    session: &Session,
    path: &str,
    name: &str,
    key: &Key,
) -> Result<Option<Record>, Error> {
    let node = match session.driver.read(&format!("{path}/{name}")).await {
        Ok(node) => node,
        Err(Fault::NoNode) => return Ok(None),
        Err(other) => return Err(other.into_error("inspect a lock")),
    };
    let text = String::from_utf8_lossy(&node.data);
    let label = if name == SIMPLE {
        text.split_once(' ').map(|(_, label)| label)
    } else {
        Some(&*text)
    };
    Ok(Some(Record {
        // Another client's node may carry anything, or nothing.
        label: label.and_then(|text| Label::parse(text).ok()),
        token: u64::try_from(node.czxid)
            .ok()
            .and_then(|number| FencingToken::new(number).ok()),
        ..Record::of(key.clone())
    }))
}

/// Every held lock under `chroot` whose key starts with `prefix`, by key.
pub(crate) async fn list(
    session: &Session,
    chroot: &str,
    prefix: &str,
) -> Result<Vec<Record>, Error> {
    let what = "list the locks";
    let mut records = Vec::new();
    let mut open = vec![String::new()];
    let mut seen = 0;
    let root = if chroot.is_empty() { "/" } else { chroot };
    session.sync(root).await.map_err(|f| f.into_error(what))?;
    while let Some(key) = open.pop() {
        seen += 1;
        if seen > MOST_NODES {
            return Err(Error::unavailable(format!(
                "the tree has more than {MOST_NODES} nodes to look at; list with a longer prefix"
            )));
        }
        let path = match (chroot, key.as_str()) {
            ("", "") => "/".to_owned(),
            (_, "") => chroot.to_owned(),
            _ => format!("{chroot}/{key}"),
        };
        let children = match session.driver.children(&path).await {
            Ok(children) => children,
            Err(Fault::NoNode) => continue,
            Err(other) => return Err(other.into_error(what)),
        };
        let join = |child: &str| {
            if key.is_empty() {
                child.to_owned()
            } else {
                format!("{key}/{child}")
            }
        };
        for child in &children {
            let under = join(child);
            // Nodes that are no key of ours (contenders, the system's, foreign ones) have nothing below them to list.
            let is_key = Key::parse(&under).is_ok_and(|key| names::key_path(chroot, &key).is_ok());
            if is_key && (under.starts_with(prefix) || prefix.starts_with(&format!("{under}/"))) {
                open.push(under);
            }
        }
        if !key.starts_with(prefix) {
            continue;
        }
        if let (Ok(key), Some(first)) = (
            Key::parse(&key),
            names::contenders(children)?.into_iter().next(),
        ) {
            records.extend(record(session, &path, &first.name, &key).await?);
        }
    }
    records.sort_by(|a: &Record, b| a.key.cmp(&b.key));
    Ok(records)
}
