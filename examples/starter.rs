//! One line in code, everything else in `examples/leasehold.toml`.
//!
//! Run it from the folder of the crate: `cargo run --features config --example starter`.

use leasehold::{Guarded, LockManager};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = LockManager::from_config("examples/leasehold.toml").await?;

    let counter = Guarded::new(0);
    for _ in 0..3 {
        let lock = locks.lock("starter/counter");
        lock.guarded(|tx| {
            *tx.write(&counter) += 1;
            Ok(())
        })
        .await?;
    }
    println!(
        "the counter is {} under a ttl of {:?}",
        counter.read(),
        locks.settings().ttl
    );
    Ok(())
}
