//! [`RedisFence`]: data in a Redis server that can be changed only under the newest token.

mod answer;
mod batch;
mod resolve;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::clock::Clock;
use crate::fence::in_run::{patience, resolve_within};
use crate::fence::{AlreadyApplied, Fence, Resolve, newer_holder};
use crate::model::commit::{Applied, CommitPermit, EffectError, HeldKey, is_of};
use crate::model::doubt::Doubt;
use crate::model::error::{Error, ErrorKind};
use crate::model::fence_call::FenceCall;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::model::txn::TxnId;
use crate::redis::store::{Call, Failure, RedisOptions, Script, Servers, Target, fault};
pub use answer::Written;
use answer::read;
pub use batch::RedisBatch;

/// A script, behind what it shares with others.
macro_rules! script {
    ($($file:literal),*) => {
        LazyLock::new(|| {
            Script::new(concat!($(include_str!($file)),*))
        })
    };
}

static RAISE: LazyLock<Script> = script!("scripts/fence.lua", "scripts/raise.lua");
static APPLY: LazyLock<Script> = script!(
    "scripts/fence.lua",
    "scripts/names.lua",
    "scripts/apply.lua"
);
static VOID: LazyLock<Script> =
    script!("scripts/fence.lua", "scripts/names.lua", "scripts/void.lua");

/// How far ahead of the server's time a token may be. Our tokens are microseconds or smaller
/// numbers; one that is further ahead is damaged, and accepting it would lock out every valid
/// holder.
const MAX_AHEAD: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// For how long a name is kept at least, applied or void.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How far the time of a name may be ahead of the server's.
const NAME_AHEAD: Duration = DAY;
/// How often a batch is sent if there is no answer.
const SENDS: u32 = 8;
/// The pause before a batch is sent again.
const PAUSE: Duration = Duration::from_millis(20);

/// The name of the commit among the parts of a run.
const COMMIT: &str = "commit";

/// The name of a batch.
#[derive(Clone, Copy)]
struct Name<'a> {
    txn_id: TxnId,
    part: &'a str,
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.txn_id, self.part)
    }
}

/// Data in a Redis server that can be changed only under the newest token of a key (feature
/// `redis`).
///
/// One script checks the token and applies the batch. It checks the whole batch before its first
/// write, since a script that fails half-way is not rolled back. Its name (the run's [`TxnId`]) is
/// kept for a week: a batch that is sent again because no answer came is applied once, and answered
/// truthfully.
///
/// ```no_run
/// # async fn example(executor: leasehold::Executor) -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::redis::{RedisBatch, RedisFence};
///
/// let url = "redis://127.0.0.1:6379/0?prefix=app";
/// let fence = RedisFence::connect(url).await?;
/// let done = executor.guarded_async(async |tx| {
///     let fence = fence.clone();
///     let batch = RedisBatch::new().set("balance/7", "90");
///     tx.commit_with(move |permit| fence.apply(permit, batch));
///     Ok(())
/// });
/// let _ = done.await?;
/// # Ok(())
/// # }
/// ```
///
/// The fence of a key is a small key of its own, `<lock>{<lock>}:raised`, that never expires:
/// without it the oldest zombie could write again. The data need not be in the server that grants
/// the lock. Changes *without* the fence are not protected. The last writes of a server without
/// persistence, or of a master before a fail-over, may be lost, and the fence with them.
///
/// The commit of a run under several locks compares the tokens of all of them in its script. In a
/// cluster their names are in different slots, which one script cannot reach: then the commit is
/// refused.
///
/// In a cluster the fence is in the slot of its lock, and the data that are changed under it must
/// be there too. Give their keys the lock's whole name as hash tag: `{app:accounts/7}:balance` for
/// the lock `accounts/7` under the prefix `app`.
///
/// A commit that is not answered is sent again, then resolved within the run if there is time, and
/// later by [`Resolve`](crate::fence::Resolve). Each batch keeps a name of about 300 bytes beside
/// the lock, until a later one finds it a week old, or nobody has committed under the lock for two
/// weeks. Of names that were deleted, and of older ones, the fence says that it knows nothing, and
/// never the contrary of what it said before, wherever the server's clock goes. The wall clock of
/// this machine may be a day ahead of that of the server; otherwise the batch is refused.
///
/// Must be called inside a tokio runtime with time and io enabled. Cloning is cheap.
#[derive(Clone)]
pub struct RedisFence {
    target: Arc<Target>,
    servers: Arc<Servers>,
    clock: Clock,
}

impl RedisFence {
    /// Connects to the server that a URL names; see [`RedisOptions`].
    ///
    /// # Errors
    ///
    /// As [`RedisStore::connect`](crate::redis::RedisStore::connect); `Unsupported` behind
    /// sentinels, with the option `replicas`, and for a server or a cluster to which replicas are
    /// attached now, since after a fail-over the new master may not know the newest token; and for
    /// a server that may evict
    /// keys, whatever the option `eviction` says.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves only an attempt to connect that ends by itself.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(RedisOptions::parse(url)?).await
    }

    /// Connects as the options say. It uses their address, prefix and time-out.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves only an attempt to connect that ends by itself.
    pub async fn connect_with(options: RedisOptions) -> Result<Self, Error> {
        if options.is_behind_sentinels() {
            return Err(Error::unsupported(
                "a fence does not work behind sentinels: after a fail-over the new master may not know the newest token; name the server itself",
            ));
        }
        if options.waits_for_replicas() {
            return Err(Error::unsupported(
                "a fence waits for no replicas, and its URL has the option replicas: after a fail-over the new master may not know the newest token; leave it out, and name a server that nobody replaces",
            ));
        }
        // What is accepted for locks lowers a fence without a trace, and takes the proof from a
        // commit that was applied.
        let options = options.refusing_eviction();
        let target = Arc::new(Target::new(options)?);
        let servers = Arc::new(Servers::of(&target));
        if servers.connect().await? {
            return Err(Error::unsupported(
                "a fence does not work with replicas: one that is promoted may not know the newest token; name a server of its own, without any",
            ));
        }
        let clock = Clock::system()?;
        Ok(Self {
            target,
            servers,
            clock,
        })
    }

    /// Applies a batch as the commit of a guarded run:
    /// `tx.commit_with(move |permit| fence.apply(permit, batch))`.
    ///
    /// # Errors
    ///
    /// [`EffectError::Fenced`] if there is a newer holder, [`NotApplied`](EffectError::NotApplied)
    /// if the server refused the whole batch, a key that it creates exists ([`AlreadyApplied`]), it
    /// was never sent, or it was not answered and then resolved; otherwise
    /// [`Unknown`](EffectError::Unknown).
    ///
    /// # Cancel safety
    ///
    /// A dropped commit is in doubt: [resolve](crate::fence::Resolve) it.
    pub fn apply(
        &self,
        permit: CommitPermit,
        batch: RedisBatch,
    ) -> impl Future<Output = Result<Applied, EffectError>> + Send + use<> {
        let fence = self.clone();
        FenceCall::new(async move { permit.used_to_send(fence.commit(&permit, &batch)).await })
    }

    async fn commit(
        &self,
        permit: &CommitPermit,
        batch: &RedisBatch,
    ) -> Result<Applied, EffectError> {
        let (locks, txn_id) = (permit.locks(), permit.txn_id);
        let name = Name {
            txn_id,
            part: COMMIT,
        };
        let left = permit.not_after.since(&self.clock.stamp());
        let sends = || permit.sends();
        let written = self.write_under(locks, name, batch, &sends);
        let error = match self.clock.timeout(patience(left), written).await {
            Some(Ok(Written::Applied)) => return Ok(Applied::fenced()),
            // Proof also after a resend: the script checks the name first, and a copy that arrives
            // later will meet the same fence.
            Some(Ok(Written::Fenced { seen })) => {
                return Err(EffectError::Fenced { seen: Some(seen) });
            }
            Some(Ok(Written::AlreadyApplied)) => {
                return Err(EffectError::not_applied(AlreadyApplied));
            }
            Some(Err(error)) if error.kind() != ErrorKind::InDoubt => {
                return Err(EffectError::not_applied(error));
            }
            Some(Err(error)) => error.into(),
            None => "redis did not answer the commit in time".into(),
        };
        let doubt = Doubt::new(locks.to_vec(), txn_id);
        let ask = |_| self.resolve(&doubt);
        resolve_within(&self.clock, permit.not_after, error, ask).await
    }

    /// Applies a batch under a token: for a step of a run, and for its compensation. `txn_id` and
    /// `part` name the batch: a batch that was applied under its name before is not applied again.
    /// Each batch of a run needs a part of its own.
    ///
    /// # Errors
    ///
    /// `InDoubt` if it may have been applied or may be later: a refusal of a second copy says
    /// nothing about the first. Also if the server refused a command in the middle of the batch,
    /// however often the batch is sent again. Any other kind reports that it was not applied and
    /// will not be. `Invalid`: the data do not allow the batch, or it names keys of the lock or the
    /// fence, or takes the name of a commit under other locks. `Corrupt`: the token is absurdly far
    /// ahead, or the fence key is not ours.
    ///
    /// # Cancel safety
    ///
    /// A dropped write is in doubt; send it again under the same name.
    pub async fn write(
        &self,
        key: &Key,
        token: FencingToken,
        txn_id: TxnId,
        part: &str,
        batch: &RedisBatch,
    ) -> Result<Written, Error> {
        let lock = HeldKey {
            key: key.clone(),
            token,
        };
        if part == COMMIT && !is_of(txn_id, std::slice::from_ref(&lock)) {
            return Err(Error::invalid(format!(
                "the part {COMMIT} is the name of the run's commit, which is under other locks: key={key} txn_id={txn_id}; use another part for a step"
            )));
        }
        self.write_under(&[lock], Name { txn_id, part }, batch, &|| {})
            .await
    }

    /// Applies a batch under the tokens of all `locks`, which one script compares. The name of the
    /// batch is beside the first. `sends` is called before each send.
    async fn write_under(
        &self,
        locks: &[HeldKey],
        name: Name<'_>,
        batch: &RedisBatch,
        sends: &(dyn Fn() + Sync),
    ) -> Result<Written, Error> {
        let Some(HeldKey { key, .. }) = locks.first() else {
            return Err(Error::invalid("a batch needs at least one lock"));
        };
        self.check(key, locks, batch)?;
        let names = &self.target.options.names;
        let call = self.call(key, locks, name, batch);
        let mut is_in_doubt = false;
        for send in 0..SENDS {
            if send > 0 {
                self.clock.sleep(PAUSE).await;
            }
            let sent = self.servers.run_seen(names, key, &APPLY, &call, sends);
            match sent.await {
                Ok(answer) => match read(locks, &answer) {
                    // The data, a clock or the fence's key may allow it when an earlier copy
                    // arrives.
                    Err(refused) if is_in_doubt && refused.kind() != ErrorKind::InDoubt => break,
                    Ok(Written::AlreadyApplied) if is_in_doubt => break,
                    read => return read,
                },
                Err(Failure::Unanswered(_)) => is_in_doubt = true,
                // A refusal of this copy does not say whether an earlier copy was or will be
                // executed.
                Err(failure) if !is_in_doubt => return Err(failure.into_error("apply a batch")),
                Err(_) => {}
            }
        }
        Err(Error::in_doubt(format!(
            "redis did not answer: key={key} txn_id={} sends={SENDS}; send the same batch again under the same name to find out",
            name.txn_id
        )))
    }

    /// Refuses a batch that one script cannot apply, or that would overwrite a lock or a fence.
    fn check(&self, key: &Key, locks: &[HeldKey], batch: &RedisBatch) -> Result<(), Error> {
        if batch.len() > RedisBatch::MAX_LEN {
            return Err(Error::invalid(format!(
                "a batch of {} commands is too long; apply at most {}",
                batch.len(),
                RedisBatch::MAX_LEN
            )));
        }
        let names = &self.target.options.names;
        let mut commands = batch.commands().iter();
        let is_elsewhere = |name: &[u8]| !self.servers.is_beside(names, key, name);
        if let Some(other) = locks
            .iter()
            .find(|other| is_elsewhere(names.lock(&other.key).as_bytes()))
        {
            return Err(Error::unsupported(format!(
                "the locks of the run are in different slots of the cluster, and one script cannot compare their tokens: key={key} other={}; use a server that is not part of a cluster for the data and the fence",
                other.key
            )));
        }
        if let Some(at) = commands.position(|command| is_elsewhere(&command.words[1])) {
            return Err(Error::invalid(format!(
                "command number {at} of the batch names a key in another slot of the cluster than the lock: key={key}; give it the hash tag {{{}}}",
                names.lock(key)
            )));
        }
        let is_reserved = |name: &[u8]| locks.iter().any(|lock| names.is_reserved(&lock.key, name));
        let mut commands = batch.commands().iter();
        if let Some(at) = commands.position(|command| is_reserved(&command.words[1])) {
            return Err(Error::invalid(format!(
                "command number {at} of the batch names a key of the lock or of the fence: key={key}; use another name for the data"
            )));
        }
        Ok(())
    }

    /// The keys of the names under a lock.
    fn names(&self, key: &Key) -> [String; 2] {
        ["applied", "order"].map(|what| self.target.options.names.beside(key, what))
    }

    fn raised(&self, key: &Key) -> String {
        self.target.options.names.beside(key, "raised")
    }

    fn call(&self, key: &Key, locks: &[HeldKey], name: Name<'_>, batch: &RedisBatch) -> Call {
        let commands = batch.commands();
        let ours = self.names(key).into_iter();
        let ours = ours.chain(locks.iter().map(|lock| self.raised(&lock.key)));
        let changed = commands.iter().map(|command| command.words[1].clone());
        let mut call = Call::new(ours.map(String::into_bytes).chain(changed))
            .number(MAX_AHEAD.as_micros())
            .number(NAME_AHEAD.as_millis())
            .number(KEPT.as_millis())
            .arg(name.to_string())
            .number(name.txn_id.made_at().into())
            .number(locks.len() as u128);
        for lock in locks {
            call = call.number(lock.token.number().into());
        }
        for command in commands {
            call = call.arg(command.needs).number(command.words.len() as u128);
            for word in &command.words {
                call = call.arg(word.as_slice());
            }
        }
        call
    }
}

impl Fence for RedisFence {
    async fn raise(&self, key: &Key, token: FencingToken) -> Result<(), Error> {
        let names = &self.target.options.names;
        let call = Call::new([self.raised(key)])
            .number(token.number().into())
            .number(MAX_AHEAD.as_micros());
        let answer = self.servers.run(names, key, &RAISE, &call).await;
        let lock = HeldKey {
            key: key.clone(),
            token,
        };
        let answer = answer.map_err(|failure| failure.into_error("raise a fence"))?;
        match read(&[lock], &answer)? {
            Written::Applied => Ok(()),
            Written::AlreadyApplied => Err(fault::unexpected_reply("raise a fence")),
            Written::Fenced { seen } => Err(newer_holder(key, token, seen, || {
                format!("DEL {}", names.beside(key, "raised"))
            })),
        }
    }
}

impl fmt::Debug for RedisFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFence")
            .field("options", &self.target.options)
            .finish_non_exhaustive()
    }
}
