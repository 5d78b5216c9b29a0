//! From a URL to a store, and to a manager over it: the type of that store, [`UrlStore`].
//!
//! The functions are [`LockManager::connect`] and [`LockManager::builder_for_url`]. Both read the
//! URL and the settings as a whole before they connect, and report a value that is set in two
//! places differently.

// All that knows every store is in `plan.rs`.

// A link to an item of a feature is checked where the feature is on, as for the published pages.
#![cfg_attr(not(feature = "redis"), allow(rustdoc::broken_intra_doc_links))]

mod misplaced;
mod plan;
mod url_store;

pub(crate) use plan::Plan;
pub use url_store::UrlStore;

use crate::manager::{LockManager, LockManagerBuilder};
use crate::model::error::Error;
use crate::settings::Settings;

/// The options of every URL that this build of leasehold reads, in lines for the help of a program
/// that takes such a URL.
#[must_use]
pub fn url_options() -> String {
    plan::options()
}

impl LockManager {
    /// A manager over the store of a URL, with the default settings.
    ///
    /// [The guide](crate::docs::stores) has the URL of every store with its options, and the
    /// feature that it needs. `memory:name` is one store for each name in this process.
    /// `redlock://` and `redlocks://` connect to their servers at the first use, not here.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::LockManager;
    ///
    /// let locks = LockManager::connect("memory:").await?;
    /// let guard = locks.lock("accounts/7").acquire().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` if the URL is malformed or no store has its scheme, and outside of a tokio runtime
    /// for the URLs of Redis and PostgreSQL. `Unsupported` if its store is in a feature that is
    /// switched off. Otherwise the store's error. No message contains the URL, which may have a
    /// password.
    ///
    /// A thread without a runtime connects once in any tokio runtime, which may end afterwards: see
    /// [`block_on`](Self::block_on).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped connect leaves at most, on Redis and PostgreSQL, an attempt to
    /// connect that ends by itself.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder_for_url(url, Settings::default())
            .await?
            .build()
    }

    /// A manager over the store of a URL, to be set up further.
    ///
    /// Some settings belong to the store too (the `max_ttl` of Redis and PostgreSQL, the session
    /// time-out of ZooKeeper, which is its `ttl`). For these the URL and `settings` must agree: a
    /// setting at its default takes the URL's value, and a URL without the option takes the
    /// setting. A `ttl` that is left at its default is at most the URL's `max_ttl`, and a
    /// `request_timeout` that is left at its default is then at most a quarter of the `ttl`. With
    /// `file:`, a `server_drift_ppm` and a `margin` that are left at their defaults become 0 and 1
    /// ms, because all processes read one clock.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and `Invalid` if the URL and the settings contradict each
    /// other.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn builder_for_url(
        url: &str,
        settings: Settings,
    ) -> Result<LockManagerBuilder, Error> {
        Plan::of(url, settings)?.builder().await
    }
}
