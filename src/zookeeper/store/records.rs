//! [`Records`]: the nodes of contenders that were read, so that a look at a queue that has not
//! changed reads none of them again.
//!
//! The name of a contender's node has a guid, so no other node has it, and its data never changes,
//! except that a writer that holds may become a reader. That one is read each time, also if it was
//! remembered as it waited. A node without a guid is not remembered: that of a simple lock, or of
//! some other client.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use super::drivers::Node;
use super::queue::names::{self, Contender, Kind};

/// How many nodes are remembered. With more, all are read again.
const MOST: usize = 10_000;

/// What was read, by the path of the key and the name of the node.
#[derive(Debug, Default)]
pub(super) struct Records(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    of_keys: HashMap<String, HashMap<String, Node>>,
    /// How many nodes.
    count: usize,
}

impl Records {
    /// Forgets the nodes of a key that are gone.
    pub(super) fn keep(&self, path: &str, there: &[Contender]) {
        let mut all = self.0.lock();
        let Noted { of_keys, count } = &mut *all;
        let Some(nodes) = of_keys.get_mut(path) else {
            return;
        };
        *count -= nodes.len();
        let names: HashSet<_> = there.iter().map(|c| c.name.as_str()).collect();
        nodes.retain(|name, _| names.contains(name.as_str()));
        *count += nodes.len();
        if nodes.is_empty() {
            of_keys.remove(path);
        }
    }

    pub(super) fn find(&self, path: &str, contender: &Contender, holds: bool) -> Option<Node> {
        if may_change(contender, holds) {
            return None;
        }
        let all = self.0.lock();
        all.of_keys.get(path)?.get(&contender.name).cloned()
    }

    /// Remembers a node, if it never changes.
    pub(super) fn note(&self, path: &str, contender: &Contender, holds: bool, node: &Node) {
        if may_change(contender, holds) || !names::has_guid(&contender.name) {
            return;
        }
        let mut all = self.0.lock();
        if all.count >= MOST {
            *all = Noted::default();
        }
        let nodes = all.of_keys.entry(path.to_owned()).or_default();
        let is_new = nodes.insert(contender.name.clone(), node.clone()).is_none();
        all.count += usize::from(is_new);
    }
}

fn may_change(contender: &Contender, holds: bool) -> bool {
    contender.kind == Kind::Write && holds
}
