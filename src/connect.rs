//! From a URL to a store, and to a manager over it. The only file that knows every store.
//!
//! | URL | store | feature |
//! |---|---|---|
//! | `memory:`, `memory:name` | [`MemoryStore`], one for each name in this process | |

use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind};
use crate::key::Key;
use crate::manager::{Builder, LockManager};
use crate::settings::Settings;
use crate::store::{
    Acquired, AnyStore, Capability, Claim, Erased, Grant, Hint, MemoryStore, Record, Released,
    Renewed, Store, erase,
};

/// The schemes that some build of leasehold knows, and the feature that each needs.
const SCHEMES: &[(&str, &str)] = &[
    ("redis", "redis"),
    ("rediss", "redis"),
    ("unix", "redis"),
    ("redlock", "quorum"),
    ("zookeeper", "zookeeper"),
];
const EXAMPLES: &str = "memory:, redis://host:6379 or zookeeper://host:2181";

impl LockManager {
    /// A manager over the store of a URL, with the default settings.
    ///
    /// | URL | store | feature |
    /// |---|---|---|
    /// | `memory:`, `memory:name` | memory, one for each name in this process | |
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::LockManager;
    ///
    /// let locks = LockManager::connect("memory:").await?;
    /// let guard = locks.lock("accounts/7").acquire().await?;
    /// guard.release().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` if the URL is malformed or no store has its scheme; `Unsupported` if its store is in a feature that is
    /// switched off; otherwise as the store fails to connect. No message holds the URL, which may have a password.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves nothing.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder_at(url, Settings::default()).await?.build()
    }

    /// A manager over the store of a URL, to be set up further.
    ///
    /// Where the store itself has a say in a setting, the URL and `settings` must agree: one that is left at its default is
    /// taken from the URL, and the URL's is taken from `settings` if it does not say.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and `Invalid` if the URL and the settings say two things.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn builder_at(url: &str, settings: Settings) -> Result<Builder, Error> {
        let Plan { source, settings } = Plan::of(url, settings)?;
        let builder = match source {
            Source::Memory(store) => Self::builder(store),
        };
        Ok(builder.settings(settings))
    }
}

/// A store that was made from a URL, for what works on any store: the conformance suite, [`Prefix`](crate::store::Prefix).
///
/// Cloning is cheap; all clones share their connections.
#[derive(Clone)]
pub struct UrlStore(AnyStore);

impl UrlStore {
    /// Connects to the store of a URL. For the URLs see [`LockManager::connect`].
    ///
    /// # Errors
    ///
    /// As [`LockManager::connect`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves nothing.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_for(url, Settings::default()).await
    }

    /// Connects to the store of a URL, as a manager with these settings would.
    ///
    /// # Errors
    ///
    /// As [`LockManager::builder_at`].
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_for(url: &str, settings: Settings) -> Result<Self, Error> {
        Ok(Self(match Plan::of(url, settings)?.source {
            Source::Memory(store) => erase(store),
        }))
    }
}

impl fmt::Debug for UrlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UrlStore").field(&self.0).finish()
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for UrlStore {
    fn name(&self) -> &'static str {
        Erased::name(&*self.0)
    }

    fn capability(&self) -> Capability {
        Erased::capability(&*self.0)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        Erased::acquire(&*self.0, claim).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        Erased::renew(&*self.0, grants).await
    }

    async fn release(&self, grant: &Grant) -> Released {
        Erased::release(&*self.0, grant).await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        Erased::withdraw(&*self.0, claim).await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        Erased::subscribe(&*self.0, claim).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Record>, Error> {
        Erased::inspect(&*self.0, key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Record>, Error> {
        Erased::list(&*self.0, prefix).await
    }

    async fn close(&self) -> Result<(), Error> {
        Erased::close(&*self.0).await
    }
}

/// What a URL and settings come to, before anything is connected.
#[derive(Debug)]
pub(crate) struct Plan {
    source: Source,
    settings: Settings,
}

#[derive(Debug)]
enum Source {
    Memory(MemoryStore),
}

impl Plan {
    /// Reads a URL and makes it agree with the settings. Connects to nothing.
    pub(crate) fn of(url: &str, settings: Settings) -> Result<Self, Error> {
        settings.validate()?;
        let (scheme, rest) = url.split_once(':').ok_or_else(no_scheme)?;
        match scheme {
            "memory" => Ok(Self {
                source: Source::Memory(memory(rest)?),
                settings,
            }),
            _ => Err(refusal(scheme, rest)),
        }
    }
}

/// Why a scheme is not served. Only a scheme that stands before `//` is shown: anything else may be part of a password.
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

/// One store for each name in this process: whoever names the same one contends for the same locks.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> Error {
        Plan::of(url, Settings::default()).unwrap_err()
    }

    #[test]
    fn an_unknown_scheme_is_refused_by_name() {
        let error = refused("mysql://db");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("\"mysql\""), "{error}");
        assert!(error.to_string().contains("use memory:"), "{error}");
    }

    #[test]
    fn a_refusal_never_shows_a_password() {
        for url in [
            "sesame",
            "sesame:sesame@db:6379",
            "x://me:sesame@db",
            "memory:se same",
        ] {
            let error = refused(url);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            let is_name = url.starts_with("memory:");
            assert!(
                is_name || !format!("{error} {error:?}").contains("sesame"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_scheme_whose_feature_is_off_says_which_to_switch_on() {
        for (scheme, feature) in SCHEMES {
            let error = refusal(scheme, "//host");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(
                error.to_string().contains(&format!("{feature:?}")),
                "{error}"
            );
        }
    }

    #[test]
    fn settings_are_checked_before_anything_is_connected() {
        let mut settings = Settings::default();
        settings.max_waiters = 0;
        let error = Plan::of("memory:", settings).unwrap_err();
        assert!(error.to_string().contains("max_waiters=0"), "{error}");
    }

    #[tokio::test]
    async fn one_name_is_one_store_in_this_process() {
        let ours = LockManager::connect("memory:connect/one").await.unwrap();
        let theirs = LockManager::connect("memory:connect/one").await.unwrap();
        let others = LockManager::connect("memory:connect/two").await.unwrap();
        let guard = ours.lock("k").acquire().await.unwrap();
        assert!(theirs.lock("k").try_acquire().await.unwrap().is_none());
        assert!(others.lock("k").try_acquire().await.unwrap().is_some());
        let released = guard.release().await;
        assert!(matches!(released, Released::Released), "{released:?}");
    }
}
