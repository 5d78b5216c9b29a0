//! [`Tree`]: the nodes and sessions that a server knows, and what a write does to them.

use std::collections::BTreeMap;

use leasehold::zookeeper::simulation::{Change, Fault, LeaderTime, Made, Node};

/// What every server does in the same way, with the stamp that the leader gave it.
#[derive(Clone, Debug)]
pub(crate) enum One {
    Check {
        path: String,
        version: Option<i32>,
    },
    Create {
        path: String,
        data: Vec<u8>,
        is_ephemeral: bool,
        is_sequential: bool,
    },
    Set {
        path: String,
        data: Vec<u8>,
        version: Option<i32>,
    },
    Delete {
        path: String,
        version: Option<i32>,
    },
    Open {
        session: i64,
        timeout: u64,
    },
    Close {
        session: i64,
    },
}

/// Why a write changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Code {
    NoNode,
    Exists,
    BadVersion,
    NotEmpty,
    ChildOfEphemeral,
}

/// The leader's mark on a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) zxid: i64,
    pub(crate) time: i64,
    pub(crate) session: i64,
}

#[derive(Clone, Debug)]
struct Znode {
    data: Vec<u8>,
    czxid: i64,
    mzxid: i64,
    version: i32,
    owner: i64,
    made_at: i64,
    /// How many children it ever had: the next sequence number.
    children: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Znode>,
    /// The time-outs of the sessions.
    pub(crate) sessions: BTreeMap<i64, u64>,
}

impl Code {
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::NoNode => Fault::NoNode,
            Self::Exists => Fault::Exists,
            Self::BadVersion => Fault::BadVersion,
            Self::NotEmpty | Self::ChildOfEphemeral => Fault::Refused(format!("{self:?}").into()),
        }
    }
}

impl One {
    pub(crate) fn of(change: &Change) -> Self {
        match change.clone() {
            Change::Check { path, version } => Self::Check { path, version },
            Change::Create { path, data } => Self::create(path, data, false, false),
            Change::CreateEphemeral { path, data } => Self::create(path, data, true, false),
            Change::Set {
                path,
                data,
                version,
            } => Self::Set {
                path,
                data,
                version,
            },
            Change::Delete { path } => Self::Delete {
                path,
                version: None,
            },
        }
    }

    pub(crate) fn create(
        path: String,
        data: Vec<u8>,
        is_ephemeral: bool,
        is_sequential: bool,
    ) -> Self {
        Self::Create {
            path,
            data,
            is_ephemeral,
            is_sequential,
        }
    }

    /// The node whose watches it fires.
    pub(crate) fn changes(&self) -> Option<&str> {
        match self {
            Self::Set { path, .. } | Self::Delete { path, .. } => Some(path),
            _ => None,
        }
    }
}

impl Tree {
    pub(crate) fn new() -> Self {
        let root = Znode {
            data: Vec::new(),
            czxid: 0,
            mzxid: 0,
            version: 0,
            owner: 0,
            made_at: 0,
            children: 0,
        };
        Self {
            nodes: BTreeMap::from([(String::new(), root)]),
            sessions: BTreeMap::new(),
        }
    }

    /// Does one part of a write; an error changes nothing.
    pub(crate) fn apply(&mut self, mark: Mark, one: &One) -> Result<Option<Made>, Code> {
        match one {
            One::Check { path, version } => self.known(path, *version).map(|_| None),
            One::Set {
                path,
                data,
                version,
            } => {
                self.known(path, *version)?;
                let node = self.nodes.get_mut(path).ok_or(Code::NoNode)?;
                node.data.clone_from(data);
                node.version += 1;
                node.mzxid = mark.zxid;
                Ok(None)
            }
            One::Delete { path, version } => {
                self.known(path, *version)?;
                if self.below(path).next().is_some() {
                    return Err(Code::NotEmpty);
                }
                self.nodes.remove(path);
                Ok(None)
            }
            One::Create {
                path,
                data,
                is_ephemeral,
                is_sequential,
            } => self
                .create(mark, path, data, *is_ephemeral, *is_sequential)
                .map(Some),
            One::Open { session, timeout } => {
                self.sessions.insert(*session, *timeout);
                Ok(None)
            }
            One::Close { session } => {
                self.sessions.remove(session);
                Ok(None)
            }
        }
    }

    fn create(
        &mut self,
        mark: Mark,
        path: &str,
        data: &[u8],
        is_ephemeral: bool,
        is_sequential: bool,
    ) -> Result<Made, Code> {
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let parent = self.nodes.get_mut(above).ok_or(Code::NoNode)?;
        if parent.owner != 0 {
            return Err(Code::ChildOfEphemeral);
        }
        let sequence = parent.children;
        let path = if is_sequential {
            format!("{path}{sequence:010}")
        } else {
            path.to_owned()
        };
        if self.nodes.contains_key(&path) {
            return Err(Code::Exists);
        }
        if let Some(parent) = self.nodes.get_mut(above) {
            parent.children += 1;
        }
        let owner = if is_ephemeral { mark.session } else { 0 };
        let node = Znode {
            data: data.to_vec(),
            czxid: mark.zxid,
            mzxid: mark.zxid,
            version: 0,
            owner,
            made_at: mark.time,
            children: 0,
        };
        self.nodes.insert(path, node);
        Ok(Made {
            sequence,
            czxid: mark.zxid,
            owner,
            made_at: LeaderTime(mark.time),
        })
    }

    fn known(&self, path: &str, version: Option<i32>) -> Result<&Znode, Code> {
        let node = self.nodes.get(path).ok_or(Code::NoNode)?;
        match version {
            Some(version) if version != node.version => Err(Code::BadVersion),
            _ => Ok(node),
        }
    }

    /// The names of everything below a node.
    fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let first = format!("{path}/");
        let length = first.len();
        let later = self.nodes.range(first.clone()..);
        later
            .take_while(move |(known, _)| known.starts_with(&first))
            .map(move |(known, _)| &known[length..])
    }

    pub(crate) fn children(&self, path: &str) -> Result<Vec<String>, Code> {
        self.known(path, None)?;
        let below = self.below(path).filter(|name| !name.contains('/'));
        Ok(below.map(str::to_owned).collect())
    }

    pub(crate) fn read(&self, path: &str) -> Result<Node, Code> {
        let node = self.known(path, None)?;
        Ok(Node {
            data: node.data.clone(),
            czxid: node.czxid,
            owner: node.owner,
            version: node.version,
            made_at: LeaderTime(node.made_at),
        })
    }

    /// Whether a node is gone, or was written after `zxid`.
    pub(crate) fn has_changed(&self, path: &str, zxid: i64) -> bool {
        self.nodes.get(path).is_none_or(|node| node.mzxid > zxid)
    }

    /// The session of the node that was made by this write; zero for a node without one, `None` if
    /// there is no such node.
    pub(crate) fn owner_of(&self, czxid: i64) -> Option<i64> {
        let mut nodes = self.nodes.values();
        nodes
            .find(|node| node.czxid == czxid)
            .map(|node| node.owner)
    }

    pub(crate) fn czxid_of(&self, path: &str) -> Option<i64> {
        self.nodes.get(path).map(|node| node.czxid)
    }

    /// The nodes that end with a session.
    pub(crate) fn ephemerals(&self, session: i64) -> Vec<String> {
        let own = self.nodes.iter().filter(|(_, node)| node.owner == session);
        own.map(|(path, _)| path.clone()).collect()
    }

    /// Every node that ends with a session.
    pub(crate) fn all_ephemerals(&self) -> Vec<&String> {
        let own = self.nodes.iter().filter(|(_, node)| node.owner != 0);
        own.map(|(path, _)| path).collect()
    }

    /// Nodes without a session that had children and have none: the servers delete such containers.
    pub(crate) fn empty_containers(&self) -> Vec<String> {
        let empty = self.nodes.iter().filter(|(path, node)| {
            !path.is_empty()
                && node.owner == 0
                && node.children > 0
                && self.below(path).next().is_none()
        });
        empty.map(|(path, _)| path.clone()).collect()
    }
}
