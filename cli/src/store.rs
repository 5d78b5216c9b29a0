//! From `--store` to a manager.

use std::time::Duration;

use leasehold::{LockManager, Settings};

use crate::args::StoreArgs;
use crate::exit::Failure;

/// A command that the tool runs has this in its environment.
const INSIDE: &str = "LEASEHOLD_KEY";

impl StoreArgs {
    /// The URL that was given, here or in the environment. A variable without a value, as systemd
    /// writes it, gives none.
    pub(crate) fn given(&self) -> Result<Option<String>, Failure> {
        if self.store.is_some() {
            return Ok(self.store.clone());
        }
        let variable = std::env::var_os("LEASEHOLD_STORE").filter(|url| !url.is_empty());
        let text = variable.map(std::ffi::OsString::into_string).transpose();
        text.map_err(|_| {
            Failure::usage("LEASEHOLD_STORE is no text; write a URL: redis://host:6379")
        })
    }

    /// The URL that was given.
    pub(crate) fn named(&self) -> Result<String, Failure> {
        self.given()?.ok_or_else(|| {
            Failure::usage(
                "no store was named; write --store URL, or set LEASEHOLD_STORE: redis://host:6379",
            )
        })
    }

    /// The URL of a store that other processes see too. Without one: the directory of this user.
    pub(crate) fn shared(&self) -> Result<String, Failure> {
        let url = match self.given()? {
            Some(url) => url,
            None => default_store()?,
        };
        if url.starts_with("memory:") {
            return Err(Failure::usage(
                "a memory: store lives in one process, and no other would see the lock; use a store that is shared, such as file: or redis://host:6379",
            ));
        }
        Ok(url)
    }

    /// As [`shared`](Self::shared). Holds in files end when this process dies, and `options` says
    /// what else.
    pub(crate) fn for_holder(&self, options: &str) -> Result<String, Failure> {
        let url = self.shared()?;
        if !url.starts_with("file:") || url.contains("on_death=") {
            return Ok(url);
        }
        let separator = if url.contains('?') { '&' } else { '?' };
        Ok(format!("{url}{separator}on_death=now{options}"))
    }

    /// `; directory=...` if the locks are files, for a message.
    pub(crate) fn directory(&self) -> String {
        #[cfg(target_os = "linux")]
        {
            let options = (self.shared().ok())
                .and_then(|url| leasehold::store::FileOptions::parse(&url).ok());
            if let Some(options) = options {
                return format!("; directory={}", options.directory.display());
            }
        }
        String::new()
    }

    /// A manager that only inspects.
    pub(crate) async fn looker(&self) -> Result<LockManager, Failure> {
        Ok(LockManager::connect(&self.shared()?).await?)
    }
}

/// A command that runs under a lock of another store would be protected by nothing that the other
/// callers see.
fn default_store() -> Result<String, Failure> {
    if std::env::var_os(INSIDE).is_some() {
        return Err(Failure::usage(
            "this command runs under leasehold, which does not pass its store on; write --store URL",
        ));
    }
    if cfg!(not(target_os = "linux")) {
        return Err(Failure::usage(
            "this system has no store of its own; write --store URL, or set LEASEHOLD_STORE: redis://host:6379",
        ));
    }
    Ok("file:".to_owned())
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
