//! [`Link`]: one connection that is made again when it is dead.
//!
//! The client's own connection stays dead after the server went away, and after a time-out its queue holds commands whose
//! fate nobody knows. So a link throws a connection away after one time-out, also where it was our caller who ran out of
//! patience and dropped the request, and the next request makes a new one. To make one may take longer than a caller waits:
//! it is [made](super::connecting) all the same, for the next.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind as Redis, Pipeline, PushInfo,
    RedisError, ServerErrorKind, Value,
};
use parking_lot::Mutex;

use super::connecting::Connecting;
use super::fault;
use super::hosts::moved_to;
use super::options::RedisOptions;
use super::preflight::{Server, preflight};
use super::session::{Health, Live, MarksDead, Session};
use crate::clock::Clock;
use crate::model::error::Error;

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It was not sent.
    NotSent(Error),
    /// It was answered, and the answer is an error of ours.
    Answered(Error),
    /// The server said no.
    Refused(RedisError),
    /// It was sent, and no answer came.
    Unanswered(RedisError),
}

impl Failure {
    pub(super) fn of(error: RedisError) -> Self {
        match error.kind() {
            Redis::Server(_) | Redis::Extension | Redis::AuthenticationFailed => {
                Self::Refused(error)
            }
            _ => Self::Unanswered(error),
        }
    }

    pub(crate) fn is_unknown_script(&self) -> bool {
        matches!(self, Self::Refused(error) if is_unknown_script(error))
    }

    /// The error for our caller.
    pub(crate) fn into_error(self, doing: &str) -> Error {
        match self {
            Self::NotSent(error) | Self::Answered(error) => error,
            Self::Refused(error) => fault::refused(&error, doing),
            Self::Unanswered(error) => fault::unanswered(&error, doing),
        }
    }
}

/// Whether the server does not know the hash of a script; then it has executed nothing of it.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == Redis::Server(ServerErrorKind::NoScript)
}

/// What a link connects to, and by which clock it waits.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) options: RedisOptions,
    client: Client,
    clock: Clock,
}

impl Target {
    pub(crate) fn new(options: RedisOptions) -> Result<Self, Error> {
        options.validate()?;
        #[cfg(feature = "redis-tls")]
        provide_cryptography();
        let client = open(&options, options.server.clone())?;
        let clock = Clock::system()?;
        Ok(Self {
            options,
            client,
            clock,
        })
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The server; behind sentinels, where it is now.
    async fn client(&self) -> Result<Client, Error> {
        let options = &self.options;
        let Some(sentinels) = &options.sentinels else {
            return Ok(self.client.clone());
        };
        let (host, port) = sentinels.master(options.timeout).await?;
        open(options, moved_to(&options.server, &host, port))
    }

    fn no_database(&self) -> Error {
        let options = &self.options;
        Error::invalid(format!(
            "this redis has no such database: address={} db={}; write one that it has behind the host of the URL, such as /0",
            options.address(),
            options.server.redis_settings().db()
        ))
    }

    /// A connection, and whether it is dead. `pushed` is told what the server sends unasked.
    pub(super) async fn connect(
        &self,
        pushed: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<(MultiplexedConnection, Health), Error> {
        let health = Health::default();
        // The driver of the connection owns the sender; it drops it when the connection ends, and so does a runtime that
        // ends with the driver in it.
        let sentinel = MarksDead(health.clone());
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.timeout))
            .set_response_timeout(Some(self.options.timeout))
            .set_push_sender(move |info: PushInfo| {
                let _owned = &sentinel;
                pushed(info);
                Ok::<(), std::convert::Infallible>(())
            });
        let client = self.client().await?;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        match connecting.await {
            Ok(connection) => Ok((connection, health)),
            Err(error) if is_no_database(&error) => Err(self.no_database()),
            Err(error) => Err(fault::not_connected(&error, &self.options.address())),
        }
    }
}

pub(super) fn open(options: &RedisOptions, server: ConnectionInfo) -> Result<Client, Error> {
    Client::open(server).map_err(|error| {
        Error::invalid(format!(
            "the redis client refused the address: address={} reason={}",
            options.address(),
            error.category()
        ))
    })
}

/// The client tells by its text alone what the server refused at the door.
fn is_no_database(error: &RedisError) -> bool {
    let told = error.to_string();
    let why = ["index is out of range", "not allowed in cluster mode"];
    told.contains("switch database") && why.iter().any(|why| told.contains(why))
}

/// TLS takes its cryptography from a provider of the process, and the client panics without one. A provider that the
/// program has installed is left in its place.
#[cfg(feature = "redis-tls")]
fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error says that another thread has just installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// One connection of one runtime, for one purpose. Made on first use.
pub(crate) struct Link {
    target: Arc<Target>,
    connecting: Connecting,
    standing: Arc<Standing>,
}

/// What an attempt to connect leaves behind.
#[derive(Default)]
struct Standing {
    live: Mutex<Option<Live>>,
    /// The last attempt to connect came to nothing, or has not come to anything while somebody waited.
    has_failed: AtomicBool,
}

impl Standing {
    fn present(&self) -> Option<Live> {
        let mut live = self.live.lock();
        live.take_if(|live| live.health.is_dead());
        live.clone()
    }
}

impl Link {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        Self {
            target,
            connecting: Connecting::default(),
            standing: Arc::default(),
        }
    }

    /// Whether it had a connection that ended, or came to none: the server may not be there any more.
    pub(super) fn is_broken(&self) -> bool {
        let has_failed = self.standing.has_failed.load(Ordering::Relaxed);
        let live = self.standing.live.lock();
        live.as_ref()
            .map_or(has_failed, |live| live.health.is_dead())
    }

    /// The server's address, for messages.
    pub(super) fn address(&self) -> String {
        self.target.options.address()
    }

    /// Whether a connection stands, or is being made, that its runtime still drives.
    pub(super) fn is_live(&self) -> bool {
        let lives = |live: &Live| !live.health.is_dead();
        self.connecting.is_under_way() || self.standing.live.lock().as_ref().is_some_and(lives)
    }

    /// The present connection: for what is decided by what its server told, which must reach no other.
    pub(super) async fn session(&self) -> Result<Session<'_>, Error> {
        let live = self.ready().await?;
        let clock = &self.target.clock;
        Ok(Session { live, clock })
    }

    /// What the server told of itself when the present connection was made.
    pub(super) async fn server(&self) -> Result<Arc<Server>, Error> {
        self.ready().await.map(|live| live.server)
    }

    /// Sends one command and waits for its answer.
    ///
    /// # Cancel safety
    ///
    /// A dropped request may be executed, now or later, or never.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value, Failure> {
        let session = self.session().await.map_err(Failure::NotSent)?;
        session.ask(command).await
    }

    /// Sends commands at once and waits for their answers, refusals among them.
    ///
    /// # Cancel safety
    ///
    /// As [`ask`](Self::ask).
    pub(crate) async fn ask_all(
        &self,
        commands: &Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, Failure> {
        let session = self.session().await.map_err(Failure::NotSent)?;
        session.ask_all(commands).await
    }

    /// The connection; a new one if there is none or it is dead.
    async fn ready(&self) -> Result<Live, Error> {
        if let Some(live) = self.standing.present() {
            return Ok(live);
        }
        let attempt = Attempt(Some(&self.standing.has_failed));
        let is_there = || self.standing.present().is_some();
        let connected = self.connecting.wait(is_there, || self.connect()).await;
        attempt.ended();
        connected?;
        self.standing.present().ok_or_else(|| {
            Error::unavailable("the connection to redis ended as soon as it was made; try later")
        })
    }

    /// Connects for all who wait, and for those who come next.
    fn connect(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (target, standing) = (Arc::clone(&self.target), Arc::clone(&self.standing));
        async move {
            let connected = connect(&target).await;
            let has_failed = connected.is_err();
            let connected = connected.map(|live| *standing.live.lock() = Some(live));
            standing.has_failed.store(has_failed, Ordering::Relaxed);
            connected
        }
    }
}

async fn connect(target: &Target) -> Result<Live, Error> {
    let (mut connection, health) = target.connect(|_| {}).await?;
    let server = preflight(&mut connection, &target.options.address()).await?;
    Ok(Live {
        connection,
        health,
        server: Arc::new(server),
    })
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("is_live", &self.is_live())
            .finish_non_exhaustive()
    }
}

/// An attempt to connect that is waited for. One that somebody stopped waiting for counts as failed until it succeeds.
struct Attempt<'a>(Option<&'a AtomicBool>);

impl Attempt<'_> {
    /// It came to something, and has noted what.
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(has_failed) = self.0 {
            has_failed.store(true, Ordering::Relaxed);
        }
    }
}
