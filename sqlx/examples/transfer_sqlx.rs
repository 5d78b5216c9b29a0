//! A transfer over sqlx in PostgreSQL that commits only while its lease is the newest:
//! `DATABASE_URL=... transfer_sqlx`.

use leasehold::{BoxError, LockManager};
use leasehold_sqlx::SqlxFence;
use sqlx::PgPool;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    let fence = SqlxFence::new(pool)?;
    fence.create_schema().await?; // once, as the owner of the data

    // The locks are in files of this machine; the fence is in the database of the data.
    let locks = LockManager::connect("file:").await?;
    let lock = locks.lock("accounts").fence(fence.clone());
    let transfer = lock.commit(fence.transaction(|tx| {
        Box::pin(async move {
            let take = "UPDATE account SET cents = cents - $1 WHERE id = 7 RETURNING cents";
            let take = sqlx::query_scalar(take).bind(10_i64);
            let left: i64 = take.fetch_one(&mut **tx).await?;
            if left < 0 {
                return Err("not enough money".into()); // rolled back, and comes out of the run
            }
            let give = "UPDATE account SET cents = cents + $1 WHERE id = 8";
            sqlx::query(give).bind(10_i64).execute(&mut **tx).await?;
            Ok(left) // committed, and comes out of the run
        })
    }));
    let done = transfer.await?;
    println!("{} cents are left ({:?})", done.value, done.proof);
    locks.shutdown().await;
    Ok(())
}
