//! The store itself: each operation is one script over one connection.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::claims::Ended;
use super::client::RedisClient;
use super::cluster;
use super::connection::{Purpose, Target, Wait};
use super::ends::{downgrade, release, revoke, watch, withdraw};
use super::fault::unexpected_reply;
use super::inspect::{inspect, list_at};
use super::message::{Message, call};
use super::options::RedisOptions;
use super::renew::{all_unknown, renew_at};
use super::servers::Servers;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::store::{
    Acquired, Capability, Claim, Fencing, Grant, Hint, LockInfo, Released, Renewed, Revoke,
    Revoked, Store,
};

/// Locks in one Redis server, version 6 or later, in a Redis Cluster, or in what speaks their
/// protocol (feature `redis`).
///
/// The keys in the server, the order of waiters, and what is not promised: see the
/// [module](crate::redis).
///
/// Must be called inside a tokio runtime with time and io enabled. Cloning is cheap; all clones are
/// the same store.
#[derive(Clone, Debug)]
pub struct RedisStore {
    pub(super) client: Arc<RedisClient>,
}

impl RedisStore {
    /// Connects to the server that a URL names; see [`RedisOptions`].
    ///
    /// # Errors
    ///
    /// `Invalid` for the URL; `Denied` for user or password; `Unsupported` for a server that cannot
    /// keep locks; `Unavailable` if it cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves only an attempt to connect that ends by itself.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(RedisOptions::parse(url)?).await
    }

    /// Connects as the options say.
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
        if fencing == Fencing::Monotonic {
            target.promise();
        }
        Ok(Self::over(target, servers, fencing, false))
    }

    /// A store that connects with its first request, as a member of a
    /// [`Quorum`](crate::store::quorum::Quorum): some members may be down when the quorum is built.
    /// It claims tokens that grow, as a member must: it grants none until its time is past every
    /// token that it may have forgotten.
    ///
    /// # Errors
    ///
    /// `Invalid` if the client refuses the address; `Unavailable` if a fork of this process could
    /// not be noticed.
    pub fn member(options: RedisOptions) -> Result<Self, Error> {
        let target = Arc::new(Target::new(options)?);
        let servers = Servers::of(&target);
        let fencing = fencing(&target.options, false);
        Ok(Self::over(target, servers, fencing, true))
    }

    /// A store over a simulated server. It connects with its first request, and waits by `clock`
    /// alone.
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
        Ok(Self::over(target, servers, fencing, false))
    }

    fn over(target: Arc<Target>, servers: Servers, fencing: Fencing, is_member: bool) -> Self {
        Self {
            client: Arc::new(RedisClient::new(target, servers, fencing, is_member)),
        }
    }

    /// What the next message says to a claim.
    fn hint(&self, claim: &Claim, wait: Wait) -> Hint {
        let (client, claim) = (Arc::clone(&self.client), claim.clone());
        Hint::granting(async move {
            match wait.message().await? {
                Message::Granted(message) => {
                    let lasts = call(client.options().max_ttl, claim.ttl);
                    client.claims.granted(&claim, &message, lasts)
                }
                Message::Gap(left) => {
                    client.target.clock().sleep(left).await;
                    None
                }
            }
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

impl Store for RedisStore {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn capability(&self) -> Capability {
        Capability {
            fencing: self.client.fencing,
            // No message grants where replicas are waited for. A grant to a claim that took no
            // place yet would be taken back if they are slow.
            subscribes_first: !self.client.options().waits_for_replicas(),
            shares: true,
            ..Capability::queued()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let answer = self.client.attempt(claim, None).await?;
        Ok(answer.acquired)
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
            client.claims.end(&grant.claim, Ended::Gone);
        }
        renewed
    }

    async fn release(&self, grant: &Grant) -> Released {
        release(&self.client, grant, Duration::ZERO).await
    }

    async fn rest(&self, grant: &Grant, rest: Duration) -> Released {
        release(&self.client, grant, rest).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        withdraw(&self.client, claim).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        let names = &self.client.options().names;
        let subscriber = self.client.servers.subscriber(names, &claim.key).await?;
        let wait = subscriber.subscribe(claim.owner.digits()).await?;
        watch(&self.client, claim).await;
        Ok(self.hint(claim, wait))
    }

    fn listen(&self, claim: &Claim) -> Option<Hint> {
        let names = &self.client.options().names;
        let subscriber = self.client.servers.present_subscriber(names, &claim.key)?;
        let wait = subscriber.listen(claim.owner.digits())?;
        Some(self.hint(claim, wait))
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        downgrade(&self.client, grant).await
    }

    /// Revokes the lock of other clients too: a bar that lasts as long as their value replaces it,
    /// or with [`Revoke::Now`] nothing does. A value that never expires has no end to wait for:
    /// `Corrupt`, and it stays.
    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        revoke(&self.client, key, how).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        let mut records = inspect(&self.client, std::slice::from_ref(key), true).await?;
        records
            .pop()
            .unwrap_or_else(|| Err(unexpected_reply("inspect")))
    }

    /// Reads every name in the database: for operators. Omits names under the prefix that are no
    /// locks; without a prefix it omits locks of other clients too, since they look like other
    /// data.
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
