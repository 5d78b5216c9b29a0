//! The store itself: each operation is one script over one link.

use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;
use futures_util::future::join_all;

use super::attempt::Want;
use super::fault::strange;
use super::line::Burial;
use super::link::{Failure, Link, Target};
use super::links::Purpose;
use super::marks::Marks;
use super::options::RedisOptions;
use super::renew::all_unknown;
use super::reply;
use super::script::{Call, INSPECT, LEAVE, RELEASE, Script, WITHDRAW};
use super::servers::Servers;
use crate::model::error::{Error, ErrorKind};
use crate::model::key::Key;
use crate::store::{
    Acquired, Capability, Claim, Fencing, Grant, Hint, LockInfo, LockMode, Released, Renewed,
    Revoke, Revoked, Store,
};

/// How many names one step of a listing looks at.
const LIST_BATCH: usize = 500;
/// How long the last token of a key is kept. Bounded, since keys come and go; the server's time carries on from there.
pub(super) const COUNTER_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Locks in one Redis server, version 6 or later, in a Redis Cluster, or in what speaks their protocol (feature `redis`).
///
/// What stands in the server, who comes first, and what is not promised: see the [module](crate::store::redis).
///
/// Must be called inside a tokio runtime with time and io enabled. Cloning is cheap; all clones are the same store.
#[derive(Clone, Debug)]
pub struct RedisStore {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) target: Arc<Target>,
    pub(super) servers: Servers,
    pub(super) fencing: Fencing,
    pub(super) marks: Marks,
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
    /// Cancel safe: a dropped connect leaves nothing but an attempt to connect that ends by itself.
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
    /// Cancel safe: a dropped connect leaves nothing but an attempt to connect that ends by itself.
    pub async fn connect_with(options: RedisOptions) -> Result<Self, Error> {
        let target = Arc::new(Target::new(options)?);
        let servers = Servers::of(&target);
        let fencing = fencing(&target.options, servers.connect().await?);
        Ok(Self::over(target, servers, fencing))
    }

    /// A store that connects with its first request: a member of a [`Quorum`](crate::store::Quorum), of which some may be
    /// down when it is built. It claims tokens that grow, as a member has to: it grants none until its time is past every
    /// token that it may have forgotten.
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

    fn over(target: Arc<Target>, servers: Servers, fencing: Fencing) -> Self {
        Self {
            shared: Arc::new(Shared {
                target,
                servers,
                fencing,
                marks: Marks::default(),
            }),
        }
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

impl Shared {
    pub(super) fn options(&self) -> &RedisOptions {
        &self.target.options
    }

    /// Runs a script where a lock is.
    pub(super) async fn run(
        &self,
        key: &Key,
        script: &Script,
        call: &Call,
    ) -> Result<Value, Failure> {
        let names = &self.options().names;
        self.servers.run(names, key, script, call).await
    }

    pub(super) async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        if claim.queues() {
            return self.withdraw_queued(claim).await;
        }
        let names = &self.options().names;
        let call = Call::new([
            names.lock(&claim.key),
            names.tombstone(&claim.key, &claim.owner),
        ])
        .arg(claim.owner.expose())
        .number(self.options().max_ttl.as_millis())
        .arg(names.channel(&claim.key));
        match self.run(&claim.key, &WITHDRAW, &call).await {
            Ok(Value::Int(1)) => Ok(()),
            Ok(_) => Err(strange("withdraw")),
            Err(failure) => Err(failure.into_error("withdraw")),
        }
    }

    /// `keys`: all of one slot where there are slots.
    async fn inspect(&self, keys: &[Key]) -> Result<Vec<Result<Option<LockInfo>, Error>>, Error> {
        let Some(first) = keys.first() else {
            return Ok(Vec::new());
        };
        let names = &self.options().names;
        let all = keys.iter().flat_map(|key| {
            [
                names.lock(key),
                names.counter(key),
                names.places(key),
                names.readers(key),
                names.grants(key),
            ]
        });
        let answer = self.run(first, &INSPECT, &Call::new(all)).await;
        match answer.map_err(|failure| cannot_say(failure.into_error("inspect")))? {
            Value::Array(answers) if answers.len() == keys.len() => Ok(keys
                .iter()
                .zip(&answers)
                .map(|(key, answer)| reply::inspected(key, answer))
                .collect()),
            _ => Err(strange("inspect")),
        }
    }

    /// The records of the locks that are in one server.
    async fn list_at(&self, link: &Link, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let names = &self.options().names;
        let mut records = Vec::new();
        let mut cursor = String::from("0");
        loop {
            let mut scan = ::redis::cmd("SCAN");
            scan.arg(&cursor)
                .arg("MATCH")
                .arg(format!("{}*", names.prefix()))
                .arg("COUNT")
                .arg(LIST_BATCH);
            let page = link
                .ask(&scan)
                .await
                .map_err(|failure| cannot_say(failure.into_error("list")))?;
            let (next, found): (String, Vec<Vec<u8>>) =
                ::redis::from_redis_value(page).map_err(|_| strange("list"))?;
            // A name that is no text is none of ours.
            let found = found
                .iter()
                .filter_map(|name| std::str::from_utf8(name).ok());
            let keys = found.filter_map(|name| names.key_of(name));
            let keys = keys.filter(|key| key.as_str().starts_with(prefix));
            let is_ours = |record: &LockInfo| {
                record.token.is_some() || record.holders == 0 || !names.prefix().is_empty()
            };
            let parts = self.servers.by_slot(names, keys);
            let looks = parts.iter().map(|keys| self.inspect(keys));
            for found in join_all(looks).await {
                records.extend(found?.into_iter().flatten().flatten().filter(is_ours));
            }
            if next == "0" {
                return Ok(records);
            }
            cursor = next;
        }
    }
}

/// A question changes nothing: without an answer it is not in doubt.
fn cannot_say(error: Error) -> Error {
    match error.kind() {
        ErrorKind::InDoubt => {
            Error::unavailable("redis did not answer a question; try later").because(error)
        }
        _ => error,
    }
}

impl Store for RedisStore {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn capability(&self) -> Capability {
        Capability {
            fencing: self.shared.fencing,
            wakes: true,
            ttl_per_lock: true,
            fair: true,
            read_write: true,
            revokes: true,
            tells_holder: true,
            ..Capability::least()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let answer = self.shared.attempt(claim, Want::default()).await?;
        Ok(Shared::judge(answer.outcome))
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let shared = &*self.shared;
        let links = match &shared.servers {
            Servers::One(links) => links,
            Servers::Many(cluster) => return shared.renew_in(cluster, grants).await,
        };
        match links.link(Purpose::Heartbeat) {
            Ok(link) => shared.renew_at(&link, grants).await,
            Err(error) => all_unknown(grants, &error),
        }
    }

    async fn release(&self, grant: &Grant) -> Released {
        let shared = &*self.shared;
        let (names, key) = (&shared.options().names, &grant.claim.key);
        let released = match grant.claim.mode {
            LockMode::Exclusive => {
                let call = Call::new([names.lock(key)])
                    .arg(grant.claim.owner.expose())
                    .arg(names.channel(key));
                shared.run(key, &RELEASE, &call).await
            }
            LockMode::Read | LockMode::Write => {
                let call = shared.leave_call(&grant.claim, Burial::None);
                shared.run(key, &LEAVE, &call).await
            }
        };
        match released {
            Ok(Value::Int(1)) => Released::Released,
            Ok(Value::Int(0)) => Released::AlreadyGone,
            Ok(_) => Released::Unknown(strange("release")),
            Err(failure) => match failure.into_error("release") {
                // What is no lock any more is not ours any more.
                error if error.kind() == ErrorKind::Corrupt => Released::AlreadyGone,
                error => Released::Unknown(error),
            },
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        self.shared.withdraw(claim).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        let names = &self.shared.options().names;
        let waker = self.shared.servers.waker(names, &claim.key).await?;
        let woken = waker.subscribe(names.channel(&claim.key)).await?;
        Ok(Hint::new(async {
            // An error says that no wake-up can come any more: look again.
            let _ = woken.await;
        }))
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        self.shared.downgrade(grant).await
    }

    /// Takes it from other clients too: their value gives way to a bar that lasts as long as it would have lasted, or with
    /// [`Revoke::Now`] to nothing. A value that never expires has no end to wait for: `Corrupt`, and it stays.
    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        self.shared.revoke(key, how).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        let mut records = self.shared.inspect(std::slice::from_ref(key)).await?;
        records.pop().unwrap_or_else(|| Err(strange("inspect")))
    }

    /// Looks at every name in the database: for operators. What is under the prefix but no lock is left out; without a
    /// prefix, locks of other clients are left out too, since nothing tells them from other data.
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let shared = &*self.shared;
        let links = shared.servers.all().await?;
        let lists = links.iter().map(|link| shared.list_at(link, prefix));
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
        self.shared.servers.close();
        Ok(())
    }
}
