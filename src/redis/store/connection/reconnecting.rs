//! [`Connection`]: a connection that is made again when it is dead.
//!
//! The client's own connection stays dead after the server went away, and after a time-out its
//! queue holds commands of unknown fate. So a connection is given up after one time-out, also when
//! our caller ran out of patience and dropped the request, and the next request makes a new one.
//! Making one may take longer than a caller waits, so it is made by [a task of its
//! own](crate::store::dial), for the next caller.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ::redis::{Cmd, Pipeline, RedisError, Value};
use parking_lot::Mutex;

use super::failure::Failure;
use super::opened::Opened;
use super::preflight::preflight;
use super::session::Session;
use super::target::Target;
use crate::model::error::Error;
use crate::store::dial::{Pooled, Reconnecting};

/// One connection of one runtime, for one purpose. Made on first use.
pub(crate) struct Connection {
    pub(in super::super) target: Arc<Target>,
    inner: Reconnecting<Arc<Session>>,
    /// The last attempt to connect failed, or had no result yet when a caller stopped waiting for
    /// it.
    has_failed: Arc<AtomicBool>,
}

impl Pooled for Connection {
    type Target = Target;

    fn new(target: Arc<Target>) -> Self {
        Self {
            inner: Reconnecting::new(target.connecting()),
            target,
            has_failed: Arc::default(),
        }
    }

    fn is_live(&self) -> bool {
        self.inner.is_live()
    }
}

impl Connection {
    /// Whether the last connection ended, or could not be made: the server may be gone.
    pub(in super::super) fn is_broken(&self) -> bool {
        let has_failed = || self.has_failed.load(Ordering::Relaxed);
        self.inner.is_dead().unwrap_or_else(has_failed)
    }

    /// The server's address, for messages.
    pub(in super::super) fn address(&self) -> String {
        self.target.options.address()
    }

    /// The server is not what it was when this connection was made, which is given up: the next one
    /// reads again what the server reports about itself. Returns the error for callers that do not
    /// wait for it.
    pub(in super::super) fn outdated(&self, session: &Session) -> Error {
        let error = Error::unavailable(format!(
            "redis was flushed or replaced between two requests: address={}; try again, and if this goes on, look for a proxy that connects one client to several servers, and for a client that flushes",
            self.address()
        ));
        session.give_up();
        self.inner.blame(error.clone());
        error
    }

    /// Whether there is a connection now.
    pub(in super::super) fn is_ready(&self) -> bool {
        self.inner.is_dead() == Some(false)
    }

    /// Returns once there is a connection.
    pub(in super::super) async fn connected(&self) -> Result<(), Error> {
        if self.is_ready() {
            return Ok(());
        }
        self.session().await.map(drop)
    }

    /// Sends one command and waits for its answer.
    ///
    /// # Cancel safety
    ///
    /// A dropped request may be executed now, later or never.
    pub(in super::super) async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        let session = self.session().await.map_err(Failure::NotSent)?;
        session.ask(command).await
    }

    /// Sends commands at once and waits for their answers, refusals among them.
    ///
    /// # Cancel safety
    ///
    /// As [`ask`](Self::ask).
    pub(in super::super) async fn ask_all(
        &self,
        commands: &Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, Failure> {
        let session = self.session().await.map_err(Failure::NotSent)?;
        let answers = session.ask_all(commands).await?;
        if answers.iter().any(Result::is_ok) {
            session.served();
        }
        Ok(answers)
    }

    /// The present connection: what is sent over it reaches the server that was judged over it, or
    /// none.
    pub(in super::super) async fn session(&self) -> Result<Arc<Session>, Error> {
        if let Some(session) = self.inner.present() {
            return Ok(session);
        }
        let attempt = DialWait(Some(&self.has_failed));
        let ended = || {
            Error::unavailable("the connection to redis ended as soon as it was made; try later")
        };
        let session = self.inner.ready(|| self.connect(), ended).await;
        attempt.ended();
        session
    }

    fn connect(&self) -> impl Future<Output = Result<Arc<Session>, Error>> + Send + use<> {
        let (target, has_failed) = (Arc::clone(&self.target), Arc::clone(&self.has_failed));
        async move {
            let connected = connect(&target).await;
            has_failed.store(connected.is_err(), Ordering::Relaxed);
            connected.map(Arc::new)
        }
    }
}

async fn connect(target: &Target) -> Result<Session, Error> {
    let mut opened = target.connect(|_| {}).await?;
    let asked_at = target.clock().stamp();
    let sent = target.clock().boot();
    let server = preflight(&mut opened, target).await?;
    if let (Some(members), Some(run)) = (&target.options.members, &server.run_id) {
        members.note(&target.options.address(), run)?;
    }
    target.saw(server.id.as_deref(), asked_at);
    target.compare(server.replicas);
    let Opened {
        connection,
        health,
        limit,
    } = opened;
    Ok(Session {
        connection,
        health,
        limit,
        clock: target.clock().clone(),
        login_changes: !target.options.login.is_fixed(),
        server,
        marks: Mutex::default(),
        judging: tokio::sync::Mutex::default(),
        proven: AtomicU64::new(sent),
    })
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("is_live", &self.is_live())
            .finish_non_exhaustive()
    }
}

/// A wait for an attempt to connect. An attempt that a caller stopped waiting for counts as failed
/// until it succeeds.
struct DialWait<'a>(Option<&'a AtomicBool>);

impl DialWait<'_> {
    /// The attempt has a result, and has noted it.
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for DialWait<'_> {
    fn drop(&mut self) {
        if let Some(has_failed) = self.0 {
            has_failed.store(true, Ordering::Relaxed);
        }
    }
}
