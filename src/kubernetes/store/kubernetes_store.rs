//! [`KubernetesStore`]: how it is opened.

use super::link::Link;
use super::options::KubernetesOptions;
use super::register::KubernetesRegister;
use crate::clock::Clock;
use crate::model::error::Error;
use crate::store::ObservedStore;

/// Locks in Leases of a Kubernetes API server, one object for each key (feature `kubernetes`).
///
/// The connections have a thread of their own, and end with the store. A hold that was not released
/// keeps the others out for its TTL.
pub type KubernetesStore = ObservedStore<KubernetesRegister>;

impl ObservedStore<KubernetesRegister> {
    /// Connects to the API server of a [URL](KubernetesOptions::parse), and counts by the machine's
    /// clocks.
    ///
    /// # Errors
    ///
    /// `Invalid` for a URL that breaks a rule, and if no API server is configured; `Denied` if it
    /// does not accept the credentials; `Unavailable` if it does not answer within ten seconds.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped call ends its connection.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::open(KubernetesOptions::parse(url)?, Clock::system()?).await
    }

    /// Connects to an API server. `clock` has to be that of the store's user.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn open(options: KubernetesOptions, clock: impl Into<Clock>) -> Result<Self, Error> {
        let clock = clock.into();
        let link = Link::open(options, clock.clone()).await?;
        Ok(Self::with_clock(KubernetesRegister::over(link), clock))
    }
}
