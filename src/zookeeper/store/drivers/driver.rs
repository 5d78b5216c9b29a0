//! [`Driver`]: the requests that the store needs from a ZooKeeper client, and how they fail.
//!
//! One driver is one session. It ends with its session and is replaced by a new one; nothing is
//! carried over.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::model::error::{BoxError, Error};
use crate::store::access::Login;

/// One session with an ensemble.
///
/// Requests take effect in the order in which they are first polled. A request whose future is
/// dropped may still take effect, in that same order.
pub trait Driver: Debug + Send + Sync + 'static {
    /// The session's id, which owns every ephemeral node that it makes; `None` until such a node
    /// has shown it.
    fn session(&self) -> Option<i64>;

    /// The time-out that the server granted, or is assumed to grant where the driver cannot know
    /// it.
    fn timeout(&self) -> Duration;

    /// Completes once requests can leave; `Expired` if they never can again.
    fn connected(&self) -> BoxFuture<'_, Result<(), Fault>>;

    /// Completes when the session is over.
    fn ended(&self) -> BoxFuture<'_, ()>;

    /// Completes when the server has refused a request of this session for its credentials, which
    /// may change. Cancel safe.
    fn refused(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Adds credentials to those that the session has.
    fn log_in<'a>(&'a self, _digest: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(Err(Fault::Unimplemented)))
    }

    /// Makes a node. For a sequential kind `path` is the prefix.
    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        kind: Kind,
    ) -> BoxFuture<'a, Result<Made, Fault>>;

    /// Deletes a node, if it has this version.
    fn delete<'a>(
        &'a self,
        path: &'a str,
        version: Option<i32>,
    ) -> BoxFuture<'a, Result<(), Fault>>;

    /// The names of a node's children.
    fn children<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<String>, Fault>>;

    /// A node's data and the server's record of it.
    fn read<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Node, Fault>>;

    /// Writes a node's data.
    fn write<'a>(&'a self, path: &'a str, data: &'a [u8]) -> BoxFuture<'a, Result<(), Fault>>;

    /// Sets a watch on a node that exists. The future that it returns completes when the node may
    /// have changed.
    fn watch<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<BoxFuture<'static, ()>, Fault>>;

    /// Waits until our server has seen everything that the leader had. `own` is a node that may be
    /// written.
    fn sync<'a>(&'a self, own: &'a str, path: &'a str) -> BoxFuture<'a, Result<(), Fault>>;

    /// One write through the quorum, which also proves that nodes exist at that moment or later:
    /// all of it, or nothing. Returns the leader's time of the write.
    fn beat<'a>(
        &'a self,
        own: &'a str,
        held: &'a [String],
    ) -> BoxFuture<'a, Result<LeaderTime, Missing>>;

    /// Makes changes in one write through the quorum: all of them, or none.
    fn change<'a>(&'a self, changes: &'a [Change]) -> BoxFuture<'a, Result<(), Refused>>;

    /// Closes the session; the server deletes its ephemeral nodes. Completes when the server knows
    /// it, or cannot be reached.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What becomes of a session when its driver is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It is closed: the server deletes its nodes at once.
    Closed,
    /// Only its connection ends: the server deletes its nodes when its time-out has passed.
    LeftToTimeOut,
}

/// What kind of node is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The server deletes it some time after its last child went.
    Container,
    /// Ends with the session.
    Ephemeral,
    /// Ends with the session; the server adds ten digits to its name.
    Sequential,
}

/// A time by the wall clock of the leader of that moment, in milliseconds since 1970. It is for
/// people: no lease is measured by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaderTime(pub i64);

impl LeaderTime {
    /// Zero if `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or_default())
    }

    pub fn plus(self, span: Duration) -> Self {
        let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

/// A node that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// What the server added to the name.
    pub sequence: i64,
    pub czxid: i64,
    pub owner: i64,
    pub made_at: LeaderTime,
}

/// A node that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub data: Vec<u8>,
    pub czxid: i64,
    pub owner: i64,
    pub version: i32,
    pub made_at: LeaderTime,
}

/// One part of a write.
#[derive(Clone, PartialEq, Eq)]
pub enum Change {
    /// The node exists, in this version if one is given.
    Check {
        path: String,
        version: Option<i32>,
    },
    /// Makes a persistent node.
    Create {
        path: String,
        data: Vec<u8>,
    },
    /// Makes a node that ends with the session.
    CreateEphemeral {
        path: String,
        data: Vec<u8>,
    },
    Set {
        path: String,
        data: Vec<u8>,
        version: Option<i32>,
    },
    Delete {
        path: String,
    },
}

impl Change {
    /// What it does, and to which node.
    pub fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Check { path, .. } => ("Check", path),
            Self::Create { path, .. } => ("Create", path),
            Self::CreateEphemeral { path, .. } => ("CreateEphemeral", path),
            Self::Set { path, .. } => ("Set", path),
            Self::Delete { path } => ("Delete", path),
        }
    }
}

/// The data is not shown.
impl Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (word, path) = self.parts();
        write!(f, "{word}({path})")
    }
}

/// Why a write was refused.
#[derive(Debug)]
pub enum Refused {
    /// It was not sent. Nothing changed.
    NotSent(Error),
    /// By the change with this index. Nothing changed.
    At(usize, Fault),
    /// As a whole.
    Whole(Fault),
}

impl Refused {
    /// The refusal as callers of the store see it. `what` says what was requested.
    pub fn into_error(self, what: &str) -> Error {
        match self {
            Self::NotSent(error) => error,
            Self::At(_, fault) | Self::Whole(fault) => fault.into_error(what),
        }
    }
}

/// Why a heartbeat proved nothing.
#[derive(Debug)]
pub enum Missing {
    /// The session's own node is missing.
    Own,
    /// One of the held nodes is missing; others may be missing too.
    Held,
    /// Another fault.
    Fault(Fault),
}

/// Why a request failed.
#[derive(Debug)]
pub enum Fault {
    /// There is no such node. Nothing changed.
    NoNode,
    /// There is one already. Nothing changed.
    Exists,
    /// The node's version is another. Nothing changed.
    BadVersion,
    /// Access rights. Nothing changed.
    Denied {
        /// The credentials may change.
        may_pass: bool,
    },
    /// The session is over, and every node of it.
    Expired,
    /// The server cannot do this. Nothing changed.
    Unimplemented,
    /// Refused for another reason. Nothing changed.
    Refused(BoxError),
    /// No answer: it may or may not have happened.
    InDoubt(BoxError),
}

/// Whether refusals for a session's credentials are for good, and the last one.
#[derive(Debug)]
pub(super) struct Refusals {
    may_pass: bool,
    noted: Notify,
}

impl Refusals {
    pub(super) fn of(login: &Login) -> Self {
        Self {
            may_pass: !login.is_fixed(),
            noted: Notify::new(),
        }
    }

    /// The fault of a request as this session reports it.
    pub(super) fn note(&self, fault: Fault) -> Fault {
        match fault {
            Fault::Denied { .. } => {
                if self.may_pass {
                    self.noted.notify_one();
                }
                Fault::Denied {
                    may_pass: self.may_pass,
                }
            }
            other => other,
        }
    }

    pub(super) fn next(&self) -> Notified<'_> {
        self.noted.notified()
    }
}

impl Fault {
    /// The fault as callers of the store see it. `what` says what was requested.
    pub fn into_error(self, what: &str) -> Error {
        match self {
            Self::NoNode => Error::unavailable(format!("a node vanished during a request to {what}; try again")),
            Self::Exists | Self::BadVersion => {
                Error::corrupt(format!("another client wrote a node during a request to {what}; check the tree"))
            }
            Self::Denied { may_pass } => {
                let denied = Error::denied(format!(
                    "zookeeper refuses to {what}: the node admits other users than this client; use their credentials, or set the same \
                     acl= with an entry for each user in the URLs of all clients"
                ));
                if may_pass { denied.that_may_pass() } else { denied }
            }
            Self::Expired => Error::unavailable(format!(
                "the zookeeper session ended during a request to {what}; none of its holds is left, try again"
            )),
            Self::Unimplemented => Error::unsupported(format!(
                "this zookeeper cannot {what}; version 3.5.3 or later is needed"
            )),
            Self::Refused(source) => {
                Error::unavailable(format!("zookeeper refused to {what}; nothing changed")).because(source)
            }
            Self::InDoubt(source) => Error::in_doubt(format!(
                "the connection to zookeeper broke during a request to {what}; read the state before you repeat it"
            ))
            .because(source),
        }
    }
}
