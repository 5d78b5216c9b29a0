//! [`Records`]: the nodes of contenders that were read, so that a look at a queue that has not
//! changed reads none of them again.
//!
//! The name of a contender's node has a guid, so no other node has it, and its data never changes,
//! except that a writer that holds may become a reader. That one is not remembered, and neither is
//! a node without a guid: that of a simple lock, or of some other client.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use super::drivers::Node;
use super::queue::names::{self, Contender, Kind};

/// How many nodes are remembered. With more, all are read again.
const MOST: usize = 10_000;

/// What was read, by the path of the key and the name of the node.
#[derive(Debug, Default)]
pub(super) struct Records(Mutex<HashMap<String, HashMap<String, Node>>>);

impl Records {
    /// Forgets the nodes of a key that are gone.
    pub(super) fn keep(&self, path: &str, there: &[Contender]) {
        let mut all = self.0.lock();
        let Some(nodes) = all.get_mut(path) else {
            return;
        };
        let names: HashSet<_> = there.iter().map(|c| c.name.as_str()).collect();
        nodes.retain(|name, _| names.contains(name.as_str()));
        if nodes.is_empty() {
            all.remove(path);
        }
    }

    pub(super) fn find(&self, path: &str, name: &str) -> Option<Node> {
        self.0.lock().get(path)?.get(name).cloned()
    }

    /// Remembers a node, if it never changes.
    pub(super) fn note(&self, path: &str, contender: &Contender, holds: bool, node: &Node) {
        let may_change = contender.kind == Kind::Write && holds;
        if may_change || !names::has_guid(&contender.name) {
            return;
        }
        let mut all = self.0.lock();
        if all.values().map(HashMap::len).sum::<usize>() >= MOST {
            all.clear();
        }
        let nodes = all.entry(path.to_owned()).or_default();
        nodes.insert(contender.name.clone(), node.clone());
    }
}
