//! One line in the code; everything else is in `examples/leasehold.toml`.
//!
//! Run it from the folder of the crate: `cargo run --features config --example starter`.

use leasehold::{GuardedCell, LockManager};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = LockManager::from_config("examples/leasehold.toml").await?;

    let counter = GuardedCell::new(0);
    for _ in 0..3 {
        let lock = locks.lock("starter/counter");
        let done = lock.guarded(|tx| {
            let mut counter = tx.write(&counter);
            *counter += 1;
            Ok(*counter)
        });
        println!("counted to {}", done.await?.value);
    }
    println!("under a ttl of {:?}", locks.settings().ttl);
    Ok(())
}
