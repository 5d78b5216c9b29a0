//! The store itself: each operation is one script over one connection.

use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;
use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::acquire::{AttemptTerms, attempt, judge};
use super::client::RedisClient;
use super::cluster;
use super::connection::{Failure, GrantMessage, Purpose, Target};
use super::counters::Ended;
use super::downgrade::downgrade;
use super::fault::unexpected_reply;
use super::inspect::{inspect, list_at};
use super::options::RedisOptions;
use super::renew::{all_unknown, renew_at};
use super::revoke::revoke;
use super::script::{Call, LEAVE, REST};
use super::servers::Servers;
use super::startup::report_quarantine;
use super::waiting::{leave_call, release, withdraw};
use crate::model::error::{Error, ErrorKind};
use crate::model::key::Key;
use crate::store::{
    Acquired, Capability, Claim, Fencing, Grant, Hint, LockInfo, LockMode, Released, Renewed,
    Revoke, Revoked, Store,
};

/// Locks in one Redis server, version 6 or later, in a Redis Cluster, or in what speaks their protocol (feature `redis`).
///
/// The keys in the server, the order of waiters, and what is not promised: see the [module](crate::store::redis).
///
/// Must be called inside a tokio runtime with time and io enabled. Cloning is cheap; all clones are the same store.
#[derive(Clone, Debug)]
pub struct RedisStore {
    pub(super) client: Arc<RedisClient>,
}

impl RedisStore {
    /// Connects to the server that a URL names; see [`RedisOptions`].
    ///
    /// # Errors
    ///
    /// `Invalid` for the URL; `Denied` for user or password; `Unsupported` for a server that cannot keep locks;
    /// `Unavailable` if it cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves only an attempt to connect that ends by itself.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(RedisOptions::parse(url)?).await
    }

    /// Connects as the options say. Logs a warning if the server grants nothing yet, because it started a short time ago.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves only an attempt to connect that ends by itself.
    pub async fn connect_with(options: RedisOptions) -> Result<Self, Error> {
        let target = Arc::new(Target::new(options)?);
        let servers = Servers::of(&target);
        let fencing = fencing(&target.options, servers.connect().await?);
        let store = Self::over(target, servers, fencing);
        report_quarantine(&store.client).await;
        Ok(store)
    }

    /// A store that connects with its first request, as a member of a [`Quorum`](crate::store::Quorum): some members may be
    /// down when the quorum is built. It claims tokens that grow, as a member must: it grants none until its time is past
    /// every token that it may have forgotten.
    ///
    /// # Errors
    ///
    /// `Invalid` if the client refuses the address; `Unavailable` if a fork of this process could not be noticed.
    pub fn member(options: RedisOptions) -> Result<Self, Error> {
        let target = Arc::new(Target::new(options)?);
        let servers = Servers::of(&target);
        let fencing = fencing(&target.options, false);
        Ok(Self::over(target, servers, fencing))
    }

    /// A store over a simulated server. It connects with its first request, and waits by `clock` alone.
    ///
    /// # Errors
    ///
    /// `Invalid` if an option is out of range.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn simulated(
        options: RedisOptions,
        clock: impl Into<crate::clock::Clock>,
        dial: Arc<dyn super::simulation::Dial>,
    ) -> Result<Self, Error> {
        let target = Arc::new(Target::simulated(options, clock.into(), dial)?);
        let servers = Servers::of(&target);
        let fencing = fencing(&target.options, false);
        Ok(Self::over(target, servers, fencing))
    }

    fn over(target: Arc<Target>, servers: Servers, fencing: Fencing) -> Self {
        Self {
            client: Arc::new(RedisClient::new(target, servers, fencing)),
        }
    }

    /// What the next message says to a claim.
    fn hint(&self, claim: &Claim, woken: oneshot::Receiver<Option<GrantMessage>>) -> Hint {
        let (client, claim) = (Arc::clone(&self.client), claim.clone());
        Hint::granting(async move {
            // An error says that no message can arrive any more: ask again.
            let message = woken.await.ok().flatten()?;
            client.asked.granted(&client.counters, &claim, &message)
        })
    }
}

/// A replica may lag behind the grants that it takes over from.
fn fencing(options: &RedisOptions, has_replicas: bool) -> Fencing {
    if options.may_lose_grants(has_replicas) {
        Fencing::None
    } else {
        Fencing::Monotonic
    }
}

impl RedisClient {
    /// What the answer to a release means.
    fn released(&self, grant: &Grant, answer: Result<Value, Failure>) -> Released {
        let released = match answer {
            Ok(Value::Int(1)) => Released::Released,
            Ok(Value::Int(0)) => Released::AlreadyGone,
            Ok(_) => Released::Unknown(unexpected_reply("release")),
            Err(failure) => match failure.into_error("release") {
                // A key that is no longer a lock is no longer ours.
                error if error.kind() == ErrorKind::Corrupt => Released::AlreadyGone,
                error => Released::Unknown(error),
            },
        };
        if matches!(released, Released::AlreadyGone) {
            self.counters.end(&grant.claim, Ended::Gone);
        }
        released
    }
}

impl Store for RedisStore {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn capability(&self) -> Capability {
        Capability {
            fencing: self.client.fencing,
            subscribes_first: true,
            ..Capability::queued()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let answer = attempt(&self.client, claim, AttemptTerms::default()).await?;
        Ok(judge(answer.outcome))
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let client = &*self.client;
        let renewed = match &client.servers {
            Servers::One(pool) => match pool.connection(Purpose::Heartbeat) {
                Ok(connection) => renew_at(client, &connection, grants).await,
                Err(error) => all_unknown(grants, &error),
            },
            Servers::Many(nodes) => cluster::renew(client, nodes, grants).await,
        };
        for (grant, _) in
            (grants.iter().zip(&renewed)).filter(|(_, one)| matches!(one, Renewed::Gone))
        {
            client.counters.end(&grant.claim, Ended::Gone);
        }
        renewed
    }

    async fn release(&self, grant: &Grant) -> Released {
        let client = &*self.client;
        let key = &grant.claim.key;
        let released = match grant.claim.mode {
            LockMode::Exclusive => release(client, &grant.claim).await,
            LockMode::Read | LockMode::Write => {
                let call = leave_call(client, &grant.claim);
                client.run(key, &LEAVE, &call).await
            }
        };
        client.released(grant, released)
    }

    async fn rest(&self, grant: &Grant, rest: Duration) -> Released {
        let (client, key) = (&*self.client, &grant.claim.key);
        // Rounded up: never shorter than was asked for.
        let millis = rest.saturating_add(Duration::from_micros(999)).as_millis();
        let call = Call::new([client.options().names.lock(key)])
            .parts([grant.claim.owner.digits()])
            .number(millis);
        client.released(grant, client.run(key, &REST, &call).await)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        withdraw(&self.client, claim).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        let names = &self.client.options().names;
        let subscriber = self.client.servers.subscriber(names, &claim.key).await?;
        let woken = subscriber
            .subscribe(
                names.own_channel(&claim.key, &claim.owner),
                claim.owner.digits(),
            )
            .await?;
        Ok(self.hint(claim, woken))
    }

    fn listen(&self, claim: &Claim) -> Option<Hint> {
        let woken = self.client.subscriptions_of(claim)?.listen(&claim.owner)?;
        Some(self.hint(claim, woken))
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        downgrade(&self.client, grant).await
    }

    /// Revokes the lock of other clients too: a bar that lasts as long as their value replaces it, or with [`Revoke::Now`]
    /// nothing does. A value that never expires has no end to wait for: `Corrupt`, and it stays.
    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        revoke(&self.client, key, how).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        let mut records = inspect(&self.client, std::slice::from_ref(key)).await?;
        records
            .pop()
            .unwrap_or_else(|| Err(unexpected_reply("inspect")))
    }

    /// Reads every name in the database: for operators. Omits names under the prefix that are no locks; without a prefix it
    /// omits locks of other clients too, since they look like other data.
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let client = &*self.client;
        let connections = client.servers.all().await?;
        let lists = connections
            .iter()
            .map(|connection| list_at(client, connection, prefix));
        let mut records = Vec::new();
        for found in join_all(lists).await {
            records.extend(found?);
        }
        records.sort_by(|a, b| a.key.cmp(&b.key));
        // A scan may show a name twice.
        records.dedup_by(|a, b| a.key == b.key);
        Ok(records)
    }

    async fn close(&self) -> Result<(), Error> {
        self.client.servers.close();
        Ok(())
    }
}
