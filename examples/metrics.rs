//! A few locks, and their metrics as Prometheus text.
//!
//! `cargo run --example metrics`

#[path = "support/prometheus.rs"]
mod prometheus;

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::handler::Metrics;
use leasehold::run::EffectError;
use leasehold::store::MemoryStore;
use leasehold::testing::{Faulty, Operation};
use leasehold::{LockManager, Settings};
use prometheus::Prometheus;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let recorder = Prometheus::default();
    // Before the observer is made: it registers with the recorder that is installed then.
    metrics::set_global_recorder(recorder.clone())?;

    let store = Faulty::new(MemoryStore::new()?, Clock::system()?, 1);
    let network = store.clone();
    let mut settings = Settings::default();
    settings.ttl = Duration::from_millis(500);
    let locks = LockManager::builder(store)
        .settings(settings)
        .observer(Metrics::new().near_miss(Duration::from_millis(300)))
        .build()?;

    for round in 0..100 {
        let lock = locks.lock(format!("orders/{}", round % 7));
        let _ = lock.guarded(|tx| Ok(tx.check()?)).await?;
    }
    // A commit whose answer is lost.
    let in_doubt = locks
        .lock("orders/7")
        .guarded(|tx| {
            tx.commit_with(|_| Err::<(), _>(EffectError::unknown("the connection broke")));
            Ok(())
        })
        .await;
    println!(
        "# {}",
        in_doubt.map_or_else(|e| e.to_string(), |_| "done".to_owned())
    );
    // Heartbeats no longer arrive: a commit has little of the lease left, and then the lease is
    // lost.
    let guard = locks.lock("orders/8").acquire().await?;
    network.block(Operation::Renew);
    let clock = Clock::system()?;
    while guard.remaining() > Duration::from_millis(250) {
        clock.sleep(Duration::from_millis(10)).await;
    }
    let _ = guard.guarded(|_| Ok(()));
    guard.lost().await;
    drop(guard);
    locks.shutdown().await;

    print!("{}", recorder.dump());
    Ok(())
}
