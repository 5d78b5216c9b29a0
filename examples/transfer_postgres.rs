//! A transfer between two accounts in PostgreSQL that commits only while its lease is the newest: `transfer_postgres URL`.

use std::error::Error;

use leasehold::{LockManager, fence::PgFence};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args()
        .nth(1)
        .ok_or("usage: transfer_postgres URL")?;
    let locks = LockManager::connect("memory:").await?; // "redis://..." where several processes transfer
    let fence = PgFence::connect(&url).await?;
    fence.create_schema().await?; // once, as the owner of the data

    let lock = locks.lock("accounts/7").fence(fence.clone());
    let transfer = lock.commit(fence.transaction(async |t| {
        let take = "UPDATE account SET cents = cents - $1 WHERE id = 7 RETURNING cents";
        let left: i64 = t.query_one(take, &[&10_i64]).await?.get(0);
        if left < 0 {
            return t.refuse("not enough money"); // rolled back, and comes out of the run as it is
        }
        t.execute(
            "UPDATE account SET cents = cents + $1 WHERE id = 8",
            &[&10_i64],
        )
        .await?;
        t.done(left) // committed, and comes out of the run
    }));
    let done = transfer.await?;
    println!("{} cents are left ({:?})", done.value, done.proof);
    Ok(())
}
