//! From `--store` to a manager.

use std::time::Duration;

use leasehold::{LockManager, Settings};

use crate::args::StoreArgs;
use crate::exit::Failure;

impl StoreArgs {
    /// The URL of a store that other processes see too.
    pub(crate) fn shared(&self) -> Result<&str, Failure> {
        if self.store.starts_with("memory:") {
            return Err(Failure::usage(
                "a memory: store lives in one process, and no other would see the lock; use a store that is shared, such as redis://host:6379",
            ));
        }
        Ok(&self.store)
    }

    /// A manager that only inspects.
    pub(crate) async fn looker(&self) -> Result<LockManager, Failure> {
        Ok(LockManager::connect(self.shared()?).await?)
    }
}

/// The default settings, with the spans that were given.
pub(crate) fn settings(ttl: Option<Duration>, wait: Option<Duration>) -> Settings {
    let mut settings = Settings::default();
    if let Some(ttl) = ttl {
        settings.ttl = ttl;
        // A renewal that takes as long as the lease is none.
        settings.request_timeout = settings.request_timeout.min(ttl / 4);
    }
    if let Some(wait) = wait {
        settings.wait = wait;
    }
    settings
}
