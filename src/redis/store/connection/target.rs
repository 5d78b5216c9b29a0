//! [`Target`]: what a connection connects to, and by which clock it waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[cfg(feature = "testing")]
use ::redis::RedisError;
use ::redis::{AsyncConnectionConfig, ConnectionInfo, PushInfo};
use parking_lot::Mutex;

#[cfg(feature = "testing")]
use super::super::fault;
use super::super::options::RedisOptions;
use super::dialled::{dial, open};
use super::opened::{Limit, Opened};
use super::preflight::Memory;
use crate::clock::{Clock, Stamp};
use crate::model::error::Error;
use crate::store::dial::{Connecting, Health, MarksDead};

/// What a connection connects to, and by which clock it waits.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) options: RedisOptions,
    clock: Clock,
    /// A simulated server, in a simulation.
    #[cfg(feature = "testing")]
    dial: Option<std::sync::Arc<dyn super::super::simulation::Dial>>,
    /// The log has the warning that the server may drop locks.
    has_warned_of_eviction: AtomicBool,
    /// Whether the store promised that its tokens grow.
    promises: AtomicBool,
    /// What the server is, and since when this process has known it as that.
    seen: Mutex<Option<Seen>>,
}

/// What a server is.
#[derive(Debug)]
struct Seen {
    id: String,
    since: Stamp,
    /// For how long it had been that before.
    before: Duration,
}

impl Target {
    pub(crate) fn new(options: RedisOptions) -> Result<Self, Error> {
        Self::with_clock(options, Clock::system()?)
    }

    /// Connects to a simulated server.
    #[cfg(feature = "testing")]
    pub(in super::super) fn simulated(
        options: RedisOptions,
        clock: Clock,
        dial: std::sync::Arc<dyn super::super::simulation::Dial>,
    ) -> Result<Self, Error> {
        let mut target = Self::with_clock(options, clock)?;
        target.dial = Some(dial);
        Ok(target)
    }

    fn with_clock(options: RedisOptions, clock: Clock) -> Result<Self, Error> {
        options.validate()?;
        #[cfg(feature = "tls")]
        provide_cryptography();
        open(options.server.clone(), &options.address())?;
        Ok(Self {
            options,
            clock,
            #[cfg(feature = "testing")]
            dial: None,
            has_warned_of_eviction: AtomicBool::new(false),
            promises: AtomicBool::new(false),
            seen: Mutex::default(),
        })
    }

    /// Refuses a server that drops keys when its memory is full. Warns once if the options accept
    /// that, or if nobody knows.
    pub(super) fn judge_memory(&self, memory: &Memory) -> Result<(), Error> {
        let address = self.options.address();
        let warns = || !self.has_warned_of_eviction.swap(true, Ordering::Relaxed);
        let policy = match memory {
            Memory::Keeps => return Ok(()),
            Memory::Unknown => {
                if warns() {
                    tracing::warn!(
                        target: "leasehold::redis", "redis at {address} does not say whether it drops keys when its memory is full, since INFO and CONFIG GET \
                         maxmemory-policy are refused: if it does, two may hold a lock, and a fence (RedisFence) forgets its newest token and what \
                         it has applied; allow +info or +config|get, or make sure that maxmemory-policy is noeviction",
                    );
                }
                return Ok(());
            }
            Memory::Drops(policy) => policy,
        };
        if !self.options.accepts_eviction {
            return Err(Error::unsupported(format!(
                "this redis may drop locks when its memory is full: address={address} maxmemory-policy={policy}; set maxmemory-policy to noeviction (on a managed service, in its parameter group or configuration), use another server, or, for locks only, accept it with eviction=accept in the URL"
            )));
        }
        if warns() {
            tracing::warn!(
                target: "leasehold::redis", "redis at {address} may drop locks when its memory is full, and eviction=accept allows that: two may hold a lock \
                 then, and tokens do not promise to grow; set maxmemory-policy={policy} to noeviction (on a managed service, \
                 in its parameter group or configuration), and remove eviction=accept",
            );
        }
        Ok(())
    }

    /// The store promises that its tokens grow, by what it saw at its first connection.
    pub(in super::super) fn promise(&self) {
        self.promises.store(true, Ordering::Relaxed);
    }

    /// Warns of a server to which replicas were attached since.
    pub(super) fn compare(&self, replicas: u32) {
        if self.options.may_lose_grants(replicas > 0) && self.promises.load(Ordering::Relaxed) {
            tracing::warn!(
                target: "leasehold::redis", address = %self.options.address(),
                "this redis has replicas now that nobody waits for: after a fail-over tokens may not \
                 grow, and fences of this process count on it; set replicas=1 in the URL, or connect \
                 again"
            );
        }
    }

    /// The server said at this time what it is. One that says the same again was never anything
    /// else in between.
    pub(super) fn saw(&self, id: Option<&str>, asked_at: Stamp) {
        let Some(id) = id else { return };
        let mut seen = self.seen.lock();
        if seen.as_ref().is_none_or(|seen| seen.id != id) {
            *seen = Some(Seen {
                id: id.to_owned(),
                since: asked_at,
                before: Duration::ZERO,
            });
        }
    }

    /// It had been that for so long, as another client has found.
    pub(in super::super) fn was_seen_for(&self, id: &str, before: Duration) {
        if let Some(seen) = (self.seen.lock().as_mut()).filter(|seen| seen.id == id) {
            seen.before = before;
        }
    }

    /// For how long it has been known as that.
    pub(in super::super) fn seen_for(&self, id: &str) -> Duration {
        match &*self.seen.lock() {
            Some(seen) if seen.id == id => seen.before + self.clock.stamp().since(&seen.since),
            _ => Duration::ZERO,
        }
    }

    pub(in super::super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// For one connection of one runtime.
    pub(super) fn connecting(&self) -> Connecting {
        Connecting::new("redis", self.clock.clone(), self.options.max_ttl)
    }

    /// The server; behind sentinels, the master of now.
    async fn server(&self) -> Result<ConnectionInfo, Error> {
        let options = &self.options;
        let Some(sentinels) = &options.sentinels else {
            return Ok(options.server.clone());
        };
        let (host, port) = sentinels.master(options.how(&self.clock)).await?;
        Ok(options.server_at(&host, port))
    }

    /// Connects. `pushed` receives what the server sends without being asked.
    pub(super) async fn connect(
        &self,
        pushed: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Opened, Error> {
        let health = Health::default();
        // The connection's driver owns the sender. It drops the sender when the connection ends,
        // and so does a runtime that ends with the driver in it.
        let sentinel = MarksDead(health.clone());
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.timeout))
            .set_response_timeout(Some(self.options.timeout))
            .set_push_sender(move |info: PushInfo| {
                let _owned = &sentinel;
                pushed(info);
                Ok::<(), std::convert::Infallible>(())
            });
        #[cfg(feature = "testing")]
        if let Some(dial) = &self.dial {
            return self.connect_simulated(&**dial, config, health).await;
        }
        let server = self.server().await?;
        let address = self.options.address();
        let how = self.options.how(&self.clock);
        let (connection, driver) = dial(&server, &address, how, &config).await?;
        Ok(Opened {
            connection,
            health,
            limit: Limit {
                #[cfg(feature = "testing")]
                simulated: None,
                _driver: driver,
            },
        })
    }

    /// The same over a stream of a simulation. What the client would count by the timer of tokio,
    /// the clock counts.
    #[cfg(feature = "testing")]
    async fn connect_simulated(
        &self,
        dial: &dyn super::super::simulation::Dial,
        config: AsyncConnectionConfig,
        health: Health,
    ) -> Result<Opened, Error> {
        use super::opened::simulated::Simulated;
        use ::redis::aio::MultiplexedConnection;

        let config = config.set_response_timeout(None);
        let settings = self.options.server.redis_settings();
        let connecting = async {
            let stream = dial.dial().await?;
            MultiplexedConnection::new_with_config(settings, stream, config).await
        };
        let (clock, timeout) = (self.clock.clone(), self.options.timeout);
        let connected = clock.timeout(timeout, connecting).await;
        let timed_out = || Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
        let (connection, driver) = connected
            .unwrap_or_else(timed_out)
            .map_err(|error: RedisError| fault::not_connected(&error, &self.options.address()))?;
        let driver = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(driver));
        Ok(Opened {
            connection,
            health,
            limit: Limit {
                simulated: Some(Simulated { clock, timeout }),
                _driver: Some(driver),
            },
        })
    }
}

/// TLS takes its cryptography from a provider of the process, and the client panics without one. A
/// provider that the program has installed stays.
#[cfg(feature = "tls")]
fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error says that another thread has just installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
