//! From a URL to a store: the only file that knows them all.

use crate::error::Error;
use crate::manager::{Builder, LockManager};
use crate::store::MemoryStore;

impl LockManager {
    /// A manager over the store that a URL names, with the default settings.
    ///
    /// | URL | store | feature |
    /// |---|---|---|
    /// | `memory:` | a new [`MemoryStore`] of this process | |
    /// | `redis://user:password@host:6379/0?prefix=app` | [`RedisStore`](crate::store::RedisStore) | `redis` |
    /// | `rediss://...` | the same over TLS, certificates verified | `redis-tls` |
    /// | `unix:///path/to.sock?db=0` | the same over a Unix socket | `redis` |
    /// | `redlock://user:password@h1:6379,h2:6379,h3:6379/0` | a [`Quorum`](crate::store::Quorum) of Redis servers | `redis` |
    ///
    /// The options of the Redis URLs are those of [`RedisOptions`](crate::store::RedisOptions); `max_ttl` is also that of the
    /// settings.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::LockManager;
    ///
    /// let locks = LockManager::connect("memory:").await?;
    /// assert!(locks.lock("accounts/7").try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` for a URL that names no store or has a bad option; otherwise as the store cannot be reached, and as
    /// [`Builder::build`]. No message holds the URL.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves nothing.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_builder(url).await?.build()
    }

    /// The same, to be set up further.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_builder(url: &str) -> Result<Builder, Error> {
        let scheme = url.split(':').next().unwrap_or_default();
        match scheme {
            "memory" => Ok(Self::builder(MemoryStore::new()?)),
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "unix" => redis::single(url).await,
            #[cfg(feature = "redis")]
            "redlock" => redis::quorum(url),
            #[cfg(not(feature = "redis"))]
            "redis" | "rediss" | "unix" | "redlock" => Err(Error::unsupported(format!(
                "leasehold was built without Redis: scheme={scheme}; build it with the feature redis"
            ))),
            _ => Err(Error::invalid(
                "this URL names no store; begin it with memory:, redis://, rediss://, unix:// or redlock://",
            )),
        }
    }
}

#[cfg(feature = "redis")]
mod redis {
    use crate::error::Error;
    use crate::manager::{Builder, LockManager};
    use crate::settings::Settings;
    use crate::store::{Quorum, RedisOptions, RedisStore};

    pub(super) async fn single(url: &str) -> Result<Builder, Error> {
        let options = RedisOptions::parse(url)?;
        let settings = settings(&options);
        let store = RedisStore::connect_with(options).await?;
        Ok(LockManager::builder(store).settings(settings))
    }

    pub(super) fn quorum(url: &str) -> Result<Builder, Error> {
        let urls = members(url)?;
        let mut members = Vec::new();
        let mut agreed = Settings::default();
        for url in urls {
            let options = RedisOptions::parse(&url)?;
            agreed = settings(&options);
            members.push(RedisStore::member(options)?);
        }
        Ok(LockManager::builder(Quorum::new(members)?).settings(agreed))
    }

    /// The store's longest ttl is also the manager's.
    fn settings(options: &RedisOptions) -> Settings {
        Settings {
            max_ttl: options.longest_ttl(),
            ..Settings::default()
        }
    }

    /// One URL for each host; user, password, database and options are those of all.
    fn members(url: &str) -> Result<Vec<String>, Error> {
        let rest = url.strip_prefix("redlock://").unwrap_or_default();
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let hosts: Vec<_> = hosts.split(',').collect();
        if hosts.iter().any(|host| host.is_empty()) {
            return Err(Error::invalid(
                "a redlock URL names its servers; write redlock://h1:6379,h2:6379,h3:6379/0",
            ));
        }
        let mut distinct = hosts.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < hosts.len() {
            return Err(Error::invalid(
                "a redlock URL names a server twice, which would have two votes; name each once",
            ));
        }
        Ok(hosts
            .iter()
            .map(|host| format!("redis://{user}{host}{tail}"))
            .collect())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_redlock_url_is_one_url_for_each_server() {
            assert_eq!(
                members("redlock://me:secret@a:1,b:2,[::1]:3/0?prefix=app").unwrap(),
                [
                    "redis://me:secret@a:1/0?prefix=app",
                    "redis://me:secret@b:2/0?prefix=app",
                    "redis://me:secret@[::1]:3/0?prefix=app",
                ]
            );
        }

        #[test]
        fn a_server_has_one_vote() {
            for url in [
                "redlock://a:1,b:2,a:1",
                "redlock://",
                "redlock://a,,b",
                "redlock:a",
            ] {
                let error = members(url).unwrap_err();
                assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{url}");
            }
        }
    }
}
