//! [`Scripted`]: servers that do what a test says, for moments that a model of an ensemble seldom
//! meets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, ready};
use parking_lot::Mutex;

use super::simulation::{
    Change, Driver, Ending, Fault, Kind, LeaderTime, Made, Missing, Node, Refused, Servers,
};
use crate::clock::{Clock, ManualClock, Stamp};

/// Servers whose every request is answered at once, with what a script says.
#[derive(Debug)]
pub(super) struct Scripted {
    clock: Clock,
    /// For how long the store's own session lasts.
    pub(super) lasts: Option<Duration>,
    /// How long a write of several changes takes.
    pub(super) change_takes: Duration,
    /// How long a list takes that shows what was made before.
    pub(super) list_takes: Duration,
    /// The contenders that exist, with their paths.
    pub(super) made: Mutex<Vec<String>>,
    /// What each of their nodes contains.
    pub(super) data: Mutex<Vec<u8>>,
    /// What lists show until a `sync`, where the server is behind.
    pub(super) behind: Mutex<Option<Vec<String>>>,
    /// What becomes of the first heartbeats of a barrier's session after its write; those after
    /// them are proven.
    pub(super) beats: Mutex<VecDeque<Missing>>,
    /// The answer to a write of several changes.
    pub(super) change: fn() -> Result<(), Refused>,
    /// What was asked for that changes nothing.
    pub(super) asked: Mutex<Vec<&'static str>>,
    /// When sessions of the store's own were opened.
    pub(super) opened: Mutex<Vec<Stamp>>,
    /// When a barrier's session was proven after its write.
    pub(super) proven: Mutex<Vec<Stamp>>,
    changed: Mutex<bool>,
}

impl Scripted {
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            lasts: None,
            change_takes: Duration::ZERO,
            list_takes: Duration::ZERO,
            made: Mutex::default(),
            data: Mutex::new(b"a".to_vec()),
            behind: Mutex::default(),
            beats: Mutex::default(),
            change: || Ok(()),
            asked: Mutex::default(),
            opened: Mutex::default(),
            proven: Mutex::default(),
            changed: Mutex::new(false),
        }
    }
}

/// Lets so much time pass, in steps in which everybody gets a turn.
pub(super) async fn pass(clock: &ManualClock, span: Duration) {
    const STEP: Duration = Duration::from_millis(10);
    for _ in 0..span.as_millis() / STEP.as_millis() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        clock.advance(STEP);
    }
}

/// A way to the servers.
#[derive(Clone, Debug)]
pub(super) struct Access(pub(super) Arc<Scripted>);

impl Servers for Access {
    fn connect(
        &self,
        timeout: Duration,
        ending: Ending,
    ) -> BoxFuture<'_, Result<Box<dyn Driver>, Fault>> {
        let session = ScriptedSession {
            servers: Arc::clone(&self.0),
            timeout,
            is_barrier: ending == Ending::LeftToTimeOut,
            opened_at: self.0.clock.stamp(),
        };
        if !session.is_barrier {
            self.0.opened.lock().push(session.opened_at);
        }
        Box::pin(async move {
            // Whoever opens sessions without end lets the test go on.
            tokio::task::yield_now().await;
            let driver: Box<dyn Driver> = Box::new(session);
            Ok(driver)
        })
    }

    fn disconnect(&self) {}
}

#[derive(Debug)]
struct ScriptedSession {
    servers: Arc<Scripted>,
    timeout: Duration,
    is_barrier: bool,
    opened_at: Stamp,
}

const SESSION: i64 = 7;

impl Driver for ScriptedSession {
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
        match self.servers.lasts {
            Some(lasts) if !self.is_barrier => {
                let end = self.opened_at.plus(lasts);
                (self.servers.clock.until(end, pending::<()>()).map(drop)).boxed()
            }
            _ => pending().boxed(),
        }
    }

    fn create<'a>(
        &'a self,
        path: &'a str,
        _: &'a [u8],
        kind: Kind,
    ) -> BoxFuture<'a, Result<Made, Fault>> {
        let mut contenders = self.servers.made.lock();
        let sequence = contenders.len();
        if kind == Kind::Sequential {
            contenders.push(format!("{path}{sequence:010}"));
        }
        let made = Made {
            sequence: i64::try_from(sequence).expect("a number of ten digits"),
            czxid: 1,
            owner: SESSION,
            made_at: LeaderTime(0),
        };
        ready(Ok(made)).boxed()
    }

    fn delete<'a>(&'a self, path: &'a str, _: Option<i32>) -> BoxFuture<'a, Result<(), Fault>> {
        let mut contenders = self.servers.made.lock();
        let at = contenders.iter().position(|made| made == path);
        let deleted = at.map(|at| drop(contenders.remove(at)));
        ready(deleted.ok_or(Fault::NoNode)).boxed()
    }

    fn children<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<String>, Fault>> {
        let below = |made: &String| match made.rsplit_once('/') {
            Some((parent, name)) if parent == path => Some(name.to_owned()),
            _ => None,
        };
        let servers = &self.servers;
        servers.asked.lock().push("children");
        let behind = servers.behind.lock().clone();
        let shown = behind.unwrap_or_else(|| servers.made.lock().clone());
        let names = shown.iter().filter_map(below).collect();
        Box::pin(async move {
            servers.clock.sleep(servers.list_takes).await;
            Ok(names)
        })
    }

    fn read<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Node, Fault>> {
        self.servers.asked.lock().push("read");
        let is_made = self.servers.made.lock().iter().any(|made| made == path);
        let node = is_made.then_some(Node {
            data: self.servers.data.lock().clone(),
            czxid: 1,
            owner: SESSION,
            version: 0,
            made_at: LeaderTime(0),
        });
        ready(node.ok_or(Fault::NoNode)).boxed()
    }

    fn write<'a>(&'a self, _: &'a str, _: &'a [u8]) -> BoxFuture<'a, Result<(), Fault>> {
        ready(Err(Fault::NoNode)).boxed()
    }

    fn watch<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<BoxFuture<'static, ()>, Fault>> {
        ready(Err(Fault::NoNode)).boxed()
    }

    fn sync<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        self.servers.asked.lock().push("sync");
        *self.servers.behind.lock() = None;
        ready(Ok(())).boxed()
    }

    fn beat<'a>(
        &'a self,
        _: &'a str,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<LeaderTime, Missing>> {
        let servers = &self.servers;
        let mut failed = None;
        if self.is_barrier && *servers.changed.lock() {
            failed = servers.beats.lock().pop_front();
            if failed.is_none() {
                servers.proven.lock().push(servers.clock.stamp());
            }
        }
        ready(failed.map_or(Ok(LeaderTime(0)), Err)).boxed()
    }

    fn change<'a>(&'a self, _: &'a [Change]) -> BoxFuture<'a, Result<(), Refused>> {
        let servers = &self.servers;
        Box::pin(async move {
            servers.clock.sleep(servers.change_takes).await;
            *servers.changed.lock() = true;
            (servers.change)()
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.servers.made.lock().clear();
        ready(()).boxed()
    }
}
