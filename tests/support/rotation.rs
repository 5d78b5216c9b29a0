//! A hundred holds over a change of the password, and the file from which clients read it.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::future::{Ready, ready};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::store::Store;
use leasehold::{BoxError, Credentials, LockGuard, LockManager, Settings};

/// A file with a password. Deleted at the end.
pub(crate) struct SecretFile(PathBuf);

impl SecretFile {
    pub(crate) fn with(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("leasehold-secret-{}-{number}", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write(text);
        file
    }

    /// Replaces it as a whole, with a newline at its end.
    pub(crate) fn write(&self, text: &str) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, format!("{text}\n")).unwrap();
        std::fs::rename(new, &self.0).unwrap();
    }

    pub(crate) fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Answers with these passwords of `me` in turn, and with the last one from then on. Counts in
/// `asked`.
pub(crate) fn in_turn(
    asked: &Arc<AtomicUsize>,
    passwords: [String; 2],
) -> impl Fn() -> Ready<Result<Credentials, BoxError>> + Send + Sync + use<> {
    let asked = Arc::clone(asked);
    move || {
        let at = asked.fetch_add(1, Ordering::SeqCst).min(1);
        ready(Ok(Credentials::new("me", passwords[at].as_str())))
    }
}

pub(crate) fn manager(store: impl Store) -> LockManager {
    let mut settings = Settings::default();
    // Longer than a busy machine holds an answer up.
    settings.request_timeout = Duration::from_secs(5);
    settings.ttl = Duration::from_secs(15);
    LockManager::builder(store)
        .settings(settings)
        .build()
        .unwrap()
}

/// Locks that are held over a change.
pub(crate) struct Holds(Vec<LockGuard>);

impl Holds {
    pub(crate) async fn of(locks: &LockManager) -> Self {
        let mut all = Vec::new();
        for number in 0..100 {
            let name = format!("held/{number}");
            all.push(locks.lock(name.as_str()).acquire().await.unwrap());
        }
        Self(all)
    }

    fn remaining(&self) -> Vec<Duration> {
        self.0.iter().map(LockGuard::remaining).collect()
    }

    /// Waits until each of them was renewed since this call.
    pub(crate) async fn are_renewed(&self, breathe: impl AsyncFn()) {
        let mut last = self.remaining();
        let mut are_renewed = vec![false; last.len()];
        while !are_renewed.iter().all(|is_renewed| *is_renewed) {
            breathe().await;
            let now = self.remaining();
            for (index, now) in now.iter().enumerate() {
                assert!(!now.is_zero(), "hold {index} was lost");
                are_renewed[index] |= *now > last[index];
            }
            last = now;
        }
    }

    pub(crate) async fn release(self) {
        for guard in self.0 {
            guard.release().await.unwrap();
        }
    }
}
