//! A transfer in PostgreSQL that commits only while its lease is the newest:
//! `DATABASE_URL=... transfer_postgres`.

use leasehold::postgres::PgFence;
use leasehold::{BoxError, LockManager};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // The locks are in the database of the data.
    let url = std::env::var("DATABASE_URL")?;
    let locks = LockManager::connect(&format!("{url}?create=auto")).await?;
    let fence = PgFence::connect(&url).await?;
    fence.create_schema().await?; // once, as the owner of the data

    // One lock for all rows. Row locks would do for these two statements: the lease protects the
    // work before them.
    let lock = locks.lock("accounts").fence(fence.clone());
    let transfer = lock.commit(fence.transaction(async |t| {
        let take = "UPDATE account SET cents = cents - $1 WHERE id = 7 RETURNING cents";
        let left: i64 = t.query_one(take, &[&10_i64]).await?.get(0);
        if left < 0 {
            return t.refuse("not enough money"); // rolled back, and comes out of the run as it is
        }
        let give = "UPDATE account SET cents = cents + $1 WHERE id = 8";
        t.execute(give, &[&10_i64]).await?;
        t.done(left) // committed, and comes out of the run
    }));
    let done = transfer.await?;
    println!("{} cents are left ({:?})", done.value, done.proof);
    locks.shutdown().await;
    Ok(())
}
