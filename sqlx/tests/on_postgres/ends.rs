//! Work that ends its transaction, changes something, and then ends in any way: it is in doubt.

use std::time::Duration;

use leasehold::{BoxError, RunError};
use sqlx::{Executor, Postgres, Transaction};

use crate::kit::{Bank, LONG, hold, stop};
use crate::{PgBank, TAKE};

/// How the work goes on.
#[derive(Clone, Copy, Debug)]
enum Then {
    Hangs,
    IsStopped,
    IsBusy,
    Fails,
    FailsInAnother,
    SwallowsInAnother,
    DropsWhatFails,
    LosesItsConnection,
}

const SHORT: Duration = Duration::from_secs(2);
/// After nine tenths of it there is more time than the fence waits for a busy connection.
const BUSY: Duration = Duration::from_secs(7);

async fn goes_on(tx: &mut Transaction<'_, Postgres>, then: Then) -> Result<i64, BoxError> {
    match then {
        Then::Hangs => std::future::pending::<()>().await,
        Then::IsStopped => stop(2_000),
        Then::IsBusy => {
            tx.execute("SELECT pg_sleep(60)").await?;
        }
        Then::Fails => {
            tx.execute("SELECT 1 / 0").await?;
        }
        Then::FailsInAnother => {
            tx.execute("BEGIN").await?;
            tx.execute("SELECT 1 / 0").await?;
        }
        Then::SwallowsInAnother => {
            tx.execute("BEGIN").await?;
            let _ = tx.execute("SELECT 1 / 0").await;
        }
        Then::DropsWhatFails => {
            {
                let failing = tx.execute("SELECT 1 / 0 FROM pg_sleep(0.1)");
                futures_util::pin_mut!(failing);
                // It is sent.
                let _ = futures_util::poll!(failing);
            }
            return Err("refused".into());
        }
        Then::LosesItsConnection => {
            let end = "SELECT pg_terminate_backend(pg_backend_pid())";
            tx.execute(end).await?;
        }
    }
    Ok(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_the_end_of_its_transaction_is_in_doubt_however_the_work_ends() {
    let bank = PgBank::open(2).await;
    for (then, ttl) in [
        (Then::Hangs, SHORT),
        (Then::IsStopped, SHORT),
        (Then::IsBusy, BUSY),
        (Then::Fails, LONG),
        (Then::FailsInAnother, LONG),
        (Then::SwallowsInAnother, LONG),
        (Then::DropsWhatFails, LONG),
        (Then::LosesItsConnection, LONG),
    ] {
        let before = bank.cents().await;
        let call = bank.fence.transaction::<i64, _>(move |tx| {
            Box::pin(async move {
                tx.execute("ROLLBACK").await?;
                tx.execute(TAKE).await?;
                goes_on(tx, then).await
            })
        });
        let ended = hold("a", 1, ttl).executor().commit(call).await;
        let ended = ended.map(|done| done.value);
        let is_in_doubt = matches!(ended, Err(RunError::InDoubt { .. }));
        assert!(is_in_doubt, "{then:?}: {ended:?}");
        assert_eq!(bank.cents().await, before - 10, "{then:?}");
    }
}
