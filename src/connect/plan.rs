//! [`Plan`]: the store and the settings that a URL and the settings give, before anything is
//! connected. The only file that knows every store.

use std::collections::HashMap;
#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
use std::fmt::Debug;
#[cfg(any(
    feature = "object-store",
    feature = "postgres",
    feature = "redis",
    target_os = "linux"
))]
use std::time::Duration;

use parking_lot::Mutex;

use super::misplaced::refuse_settings;
#[cfg(feature = "object-store")]
use crate::bucket::{BucketOptions, BucketStore};
#[cfg(any(
    feature = "kubernetes",
    feature = "object-store",
    feature = "zookeeper"
))]
use crate::clock::Clock;
#[cfg(feature = "kubernetes")]
use crate::kubernetes::{KubernetesOptions, KubernetesStore};
use crate::manager::LockManagerBuilder;
use crate::model::error::{Error, ErrorKind};
use crate::model::key::Key;
#[cfg(feature = "postgres")]
use crate::postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "redis")]
use crate::redis::{RedisOptions, RedisStore};
use crate::settings::Settings;
#[cfg(feature = "redis")]
use crate::store::quorum::Quorum;
#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
use crate::store::url::StoreUrl;
use crate::store::{AnyStore, MemoryStore, erase};
#[cfg(target_os = "linux")]
use crate::store::{FileOptions, FileStore};
#[cfg(feature = "zookeeper")]
use crate::zookeeper::store::{ZooKeeperOptions, ZooKeeperStore};

/// The schemes that some build of leasehold knows, and the feature that each needs.
const SCHEMES: &[(&str, &str)] = &[
    ("redis", "redis"),
    ("rediss", "redis"),
    ("redis+sentinel", "redis"),
    ("rediss+sentinel", "redis"),
    ("redis+cluster", "redis"),
    ("rediss+cluster", "redis"),
    ("unix", "redis"),
    ("redlock", "redis"),
    ("redlocks", "redis"),
    ("zookeeper", "zookeeper"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("k8s", "kubernetes"),
    ("s3", "object-store"),
    ("az", "object-store"),
];
const EXAMPLES: &str = "memory:, file:, file:///path, redis://host:6379, redis+sentinel://h1:26379,h2:26379,h3:26379/master, redis+cluster://h1:7000,h2:7001,h3:7002, redlock://h1:6379,h2:6379,h3:6379, zookeeper://host:2181, postgres://host:5432/database, k8s://namespace, s3://bucket/prefix or az://container/prefix";

#[derive(Debug)]
pub(crate) struct Plan {
    source: Source,
    settings: Settings,
}

#[derive(Debug)]
enum Source {
    Memory(MemoryStore),
    #[cfg(target_os = "linux")]
    File(FileOptions),
    #[cfg(feature = "redis")]
    Redis(Box<RedisOptions>),
    #[cfg(feature = "redis")]
    Redlock(Vec<RedisOptions>),
    #[cfg(feature = "zookeeper")]
    ZooKeeper(Box<ZooKeeperOptions>),
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresOptions>),
    #[cfg(feature = "kubernetes")]
    Kubernetes(Box<KubernetesOptions>),
    #[cfg(feature = "object-store")]
    Bucket(Box<BucketOptions>),
}

impl Plan {
    /// Reads a URL and makes it agree with the settings. Connects to nothing.
    pub(crate) fn of(url: &str, settings: Settings) -> Result<Self, Error> {
        let plan = Self::unchecked(url, settings)?;
        plan.settings.validate()?;
        Ok(plan)
    }

    /// As [`of`](Self::of), for a caller that validates the settings itself.
    #[cfg_attr(
        not(any(
            feature = "object-store",
            feature = "postgres",
            feature = "redis",
            feature = "zookeeper"
        )),
        allow(unused_mut, reason = "only these stores affect the settings")
    )]
    pub(crate) fn unchecked(url: &str, mut settings: Settings) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once(':').ok_or_else(no_scheme)?;
        refuse_settings(rest)?;
        let source = match scheme {
            "memory" => Source::Memory(memory(rest)?),
            #[cfg(target_os = "linux")]
            "file" => Source::File(file(url, &mut settings)?),
            #[cfg(not(target_os = "linux"))]
            "file" => {
                return Err(Error::unsupported(
                    "locks in files need Linux; use another store",
                ));
            }
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
            | "rediss+cluster" | "unix" => {
                let options = RedisOptions::parse(url)?;
                limit(url, options.longest_ttl(), &mut settings)?;
                Source::Redis(Box::new(options.max_ttl(settings.max_ttl)?))
            }
            #[cfg(feature = "redis")]
            "redlock" | "redlocks" => {
                let members = RedisOptions::parse_members(url)?.into_iter();
                let members = members.map(|member| {
                    limit(url, member.longest_ttl(), &mut settings)?;
                    member.max_ttl(settings.max_ttl)
                });
                Source::Redlock(members.collect::<Result<_, _>>()?)
            }
            #[cfg(feature = "zookeeper")]
            "zookeeper" => Source::ZooKeeper(Box::new(zookeeper(url, &mut settings)?)),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                let options = PostgresOptions::parse(url)?;
                limit(url, options.longest_ttl(), &mut settings)?;
                Source::Postgres(Box::new(options.max_ttl(settings.max_ttl)?))
            }
            #[cfg(feature = "kubernetes")]
            "k8s" => Source::Kubernetes(Box::new(KubernetesOptions::parse(url)?)),
            #[cfg(feature = "object-store")]
            "s3" | "az" => Source::Bucket(Box::new(bucket(url, &mut settings)?)),
            _ => return Err(refusal(scheme, rest)),
        };
        Ok(Self { source, settings })
    }

    /// The settings that the manager gets.
    #[cfg(feature = "config")]
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) async fn builder(self) -> Result<LockManagerBuilder, Error> {
        let settings = self.settings.clone();
        Ok(LockManagerBuilder::over(self.store().await?).settings(settings))
    }

    pub(super) async fn store(self) -> Result<AnyStore, Error> {
        Ok(match self.source {
            Source::Memory(store) => erase(store),
            #[cfg(target_os = "linux")]
            Source::File(options) => erase(FileStore::open(&options)?),
            #[cfg(feature = "redis")]
            Source::Redis(options) => erase(RedisStore::connect_with(*options).await?),
            #[cfg(feature = "redis")]
            Source::Redlock(members) => erase(quorum(members)?),
            #[cfg(feature = "zookeeper")]
            Source::ZooKeeper(options) => erase(open(*options).await?),
            #[cfg(feature = "postgres")]
            Source::Postgres(options) => erase(PostgresStore::connect_with(*options).await?),
            #[cfg(feature = "kubernetes")]
            Source::Kubernetes(options) => {
                erase(KubernetesStore::open(*options, Clock::system()?).await?)
            }
            #[cfg(feature = "object-store")]
            Source::Bucket(options) => erase(BucketStore::open(*options, Clock::system()?).await?),
        })
    }
}

/// The options of every URL that this build reads, in lines for a program's help.
pub(super) fn options() -> String {
    let tables = [
        #[cfg(target_os = "linux")]
        FileOptions::OPTIONS.help(),
        #[cfg(feature = "redis")]
        RedisOptions::OPTIONS.help(),
        #[cfg(feature = "postgres")]
        PostgresOptions::OPTIONS.help(),
        #[cfg(feature = "zookeeper")]
        ZooKeeperOptions::OPTIONS.help(),
        #[cfg(feature = "kubernetes")]
        KubernetesOptions::OPTIONS.help(),
        #[cfg(feature = "object-store")]
        BucketOptions::OPTIONS.help(),
    ];
    tables.concat()
}

/// Why a scheme is refused. Only a scheme before `//` is shown: anything else may be part of a
/// password.
fn refusal(scheme: &str, rest: &str) -> Error {
    if let Some((scheme, feature)) = SCHEMES.iter().find(|(known, _)| *known == scheme) {
        return Error::new(
            ErrorKind::Unsupported,
            format!(
                "this build of leasehold cannot reach such a store: scheme={scheme}; switch on its feature {feature:?}"
            ),
        );
    }
    if !rest.starts_with("//") || scheme.len() > 20 {
        return no_scheme();
    }
    Error::invalid(format!(
        "no store has this scheme: scheme={scheme:?}; use {EXAMPLES}"
    ))
}

fn no_scheme() -> Error {
    Error::invalid(format!(
        "the store's URL does not begin with a scheme; use {EXAMPLES}"
    ))
}

/// One store for each name in this process: callers that use the same name contend for the same
/// locks.
fn memory(name: &str) -> Result<MemoryStore, Error> {
    static STORES: Mutex<Option<HashMap<String, MemoryStore>>> = Mutex::new(None);

    if !name.is_empty() {
        Key::parse(name)
            .map_err(|why| Error::invalid(format!("a memory store has no such name: {why}")))?;
    }
    let mut stores = STORES.lock();
    let stores = stores.get_or_insert_default();
    if let Some(store) = stores.get(name) {
        return Ok(store.clone());
    }
    let store = MemoryStore::new()?;
    stores.insert(name.to_owned(), store.clone());
    Ok(store)
}

/// All processes of a machine read one clock, so no drift has to be subtracted, and a margin only
/// for the time of a step.
#[cfg(target_os = "linux")]
fn file(url: &str, settings: &mut Settings) -> Result<FileOptions, Error> {
    let default = Settings::default();
    if settings.server_drift_ppm == default.server_drift_ppm {
        settings.server_drift_ppm = 0;
    }
    if settings.margin == default.margin {
        settings.margin = Duration::from_millis(1);
    }
    let mut options = FileOptions::parse(url)?;
    // The store reports why it did not answer, before the manager stops waiting.
    options.request_timeout = settings.request_timeout / 5 * 4;
    Ok(options)
}

/// A request takes longer than in a lock server: time-outs that were not changed are longer.
#[cfg(feature = "object-store")]
fn bucket(url: &str, settings: &mut Settings) -> Result<BucketOptions, Error> {
    const LEAST_TTL: Duration = Duration::from_secs(5);
    let options = BucketOptions::parse(url)?;
    let default = Settings::default();
    if settings.ttl < LEAST_TTL {
        return Err(Error::invalid(format!(
            "a lock in a bucket needs a ttl of {LEAST_TTL:?} or more: ttl={:?}; each heartbeat is a write that is paid for",
            settings.ttl
        )));
    }
    if settings.request_timeout == default.request_timeout {
        settings.request_timeout = Duration::from_secs(3).min(settings.ttl / 4);
    }
    if settings.max_poll_interval == default.max_poll_interval {
        settings.max_poll_interval = Duration::from_secs(3);
    }
    Ok(options)
}

/// The settings take the longest TTL of a URL that gives it.
#[cfg(any(feature = "postgres", feature = "redis"))]
fn limit(url: &str, longest: Duration, settings: &mut Settings) -> Result<(), Error> {
    if !gives(url, "max_ttl")? {
        return Ok(());
    }
    let default = Settings::default();
    agree("max_ttl", longest, &mut settings.max_ttl, default.max_ttl)?;
    // A setting that was not changed follows the URL's limit.
    if settings.ttl == default.ttl {
        settings.ttl = default.ttl.min(longest);
        if settings.request_timeout == default.request_timeout {
            // A renewal must take less time than the lease.
            settings.request_timeout = default.request_timeout.min(settings.ttl / 4);
        }
    }
    Ok(())
}

#[cfg(feature = "redis")]
fn quorum(members: Vec<RedisOptions>) -> Result<Quorum<RedisStore>, Error> {
    let members = members.into_iter().map(RedisStore::member);
    Quorum::new(members.collect::<Result<Vec<_>, _>>()?)
}

/// The session time-out is the ttl of every lock.
#[cfg(feature = "zookeeper")]
fn zookeeper(url: &str, settings: &mut Settings) -> Result<ZooKeeperOptions, Error> {
    let mut options = ZooKeeperOptions::parse(url)?;
    let default = Settings::default();
    if gives(url, "session_timeout")? {
        agree(
            "session_timeout",
            options.session_timeout,
            &mut settings.ttl,
            default.ttl,
        )?;
    } else {
        options.session_timeout = settings.ttl;
        options.validate()?;
    }
    if settings.max_ttl == default.max_ttl {
        settings.max_ttl = settings.max_ttl.max(settings.ttl);
    }
    Ok(options)
}

#[cfg(feature = "zookeeper")]
async fn open(options: ZooKeeperOptions) -> Result<ZooKeeperStore, Error> {
    ZooKeeperStore::open(options, Clock::system()?).await
}

#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
fn gives(url: &str, option: &str) -> Result<bool, Error> {
    Ok(StoreUrl::parse(url, EXAMPLES)?.has(option))
}

/// The setting takes the URL's value, unless it was changed.
#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
fn agree<T: PartialEq + Debug>(
    option: &str,
    said: T,
    setting: &mut T,
    default: T,
) -> Result<(), Error> {
    if *setting != default && *setting != said {
        return Err(Error::invalid(format!(
            "the URL has {option}={said:?} and the settings have {setting:?}; set it in one place"
        )));
    }
    *setting = said;
    Ok(())
}

#[cfg(test)]
mod tests;
