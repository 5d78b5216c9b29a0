//! The access log goes to its own file, everything else to the terminal.
//!
//! `cargo run --example access_log [FILE]`

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold::handler::{ACCESS_LOG_TARGET, AccessLog};
use leasehold::store::{Label, MemoryStore};
use leasehold::{LockManager, Settings};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).map_or_else(
        || std::env::temp_dir().join("leasehold-access.log"),
        PathBuf::from,
    );
    start_logging(OpenOptions::new().create(true).append(true).open(&path)?);

    let store = MemoryStore::new()?;
    let mut settings = Settings::default();
    settings.ttl = Duration::from_secs(2);
    let manager = |label: &str| -> Result<LockManager, leasehold::Error> {
        LockManager::builder(store.clone())
            .settings(settings.clone())
            .label(Label::parse(label)?)
            .observer(AccessLog::new())
            .build()
    };
    let (ours, theirs) = (manager("orders-1")?, manager("orders-2")?);

    let guard = ours.lock("orders/7").acquire().await?;
    let busy = theirs.lock("orders/7").try_acquire().await?;
    tracing::info!(
        is_busy = busy.is_none(),
        "the second manager tried to acquire"
    );
    guard.release().await?;
    let _ = theirs.lock("orders/7").guarded(|_| Ok(())).await?;
    // A mistake of an operator: the store loses its locks.
    let guard = ours.lock("orders/8").acquire().await?;
    store.forget();
    let reason = guard.lost().await;
    tracing::info!(%reason, "lost");
    drop(guard);
    ours.shutdown().await;
    theirs.shutdown().await;

    println!("\n{}:\n{}", path.display(), std::fs::read_to_string(&path)?);
    Ok(())
}

/// Two layers: one for the access log, the other for everything else.
fn start_logging(file: File) {
    let access = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_target(false)
        .with_writer(Arc::new(file))
        .with_filter(Targets::new().with_target(ACCESS_LOG_TARGET, LevelFilter::INFO));
    let rest = tracing_subscriber::fmt::layer().with_filter(
        Targets::new()
            .with_default(LevelFilter::INFO)
            .with_target(ACCESS_LOG_TARGET, LevelFilter::OFF),
    );
    tracing_subscriber::registry()
        .with(access)
        .with(rest)
        .init();
}
