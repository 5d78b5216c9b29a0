//! [`BucketStore`]: how it is opened.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;

use super::client;
use super::options::BucketOptions;
use super::register::BucketRegister;
use crate::clock::Clock;
use crate::model::error::Error;
use crate::store::ObservedStore;

/// How long the first requests may take together.
const OPENING: Duration = Duration::from_secs(20);

/// Locks in a bucket of an object storage, one object for each key (feature `object-store`).
///
/// The connections have a thread of their own, and end with the store. A hold that was not released
/// keeps the others out for its TTL.
pub type BucketStore = ObservedStore<BucketRegister>;

impl ObservedStore<BucketRegister> {
    /// Connects to the bucket of a [URL](BucketOptions::parse) with the credentials of the
    /// environment, and counts by the machine's clocks. Checks that the service compares versions:
    /// seven requests.
    ///
    /// # Errors
    ///
    /// `Invalid` for a URL that breaks a rule, and if there is no such bucket; `Denied` if the
    /// service does not accept the credentials, or forbids a request; `Unsupported` if it writes
    /// without comparing versions; `Unavailable` if it does not answer within twenty seconds.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may leave the small object of the check.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::open(BucketOptions::parse(url)?, Clock::system()?).await
    }

    /// Connects to a bucket. `clock` has to be that of the store's user.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn open(options: BucketOptions, clock: impl Into<Clock>) -> Result<Self, Error> {
        let clock = clock.into();
        let prefix = options.prefix.clone();
        let limit = clock.clone();
        let opened = limit.timeout(OPENING, async {
            let objects = client::open(options, clock.clone()).await?;
            Self::over(objects, &prefix, clock).await
        });
        opened.await.unwrap_or_else(|| {
            Err(Error::unavailable(
                "the object storage does not answer; check its address, its state and the credentials",
            ))
        })
    }

    /// Keeps the locks under `prefix` with a client of your own: another service, other
    /// credentials, or [memory](object_store::memory::InMemory) in a test. Makes the same check.
    ///
    /// The client should repeat nothing (`max_retries: 0`). A manager repeats by itself.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the service writes without comparing versions; `Denied` if it refuses the
    /// caller; `Invalid` if the prefix is empty or no path; `Unavailable` if it does not answer.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn over(
        objects: Arc<dyn ObjectStore>,
        prefix: &str,
        clock: impl Into<Clock>,
    ) -> Result<Self, Error> {
        let register = BucketRegister::over(objects, prefix)?;
        register.check().await?;
        Ok(Self::with_clock(register, clock))
    }
}
