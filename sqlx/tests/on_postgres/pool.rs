//! The pool of the user gets its connections back only clean.

use sqlx::Connection;

use crate::PgBank;
use crate::kit::{Bank, Work, take};

async fn session(bank: &PgBank) -> i32 {
    let session = sqlx::query_scalar("SELECT pg_backend_pid()");
    session.fetch_one(&bank.pool).await.expect("a session")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_transaction_was_answered_is_used_again() {
    let bank = PgBank::open(1).await;
    let first = session(&bank).await;
    for work in [
        Work::Take,
        Work::Refuse,
        Work::Fail {
            is_swallowed: false,
        },
    ] {
        let _ = take(&bank, "a", 1, work).await;
        assert_eq!(session(&bank).await, first, "{work:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_transaction_after_a_fenced_one_begins_and_ends_as_ever() {
    let bank = PgBank::open(1).await;
    for work in [Work::Take, Work::Refuse] {
        let before = bank.cents().await;
        let _ = take(&bank, "a", 1, work).await;
        let after = bank.cents().await;
        let mut connection = bank.pool.acquire().await.expect("a connection");
        let tx = connection.begin().await.expect("begun");
        tx.rollback().await.expect("rolled back");
        let mut tx = connection.begin().await.expect("begun");
        sqlx::query(crate::TAKE)
            .execute(&mut *tx)
            .await
            .expect("worked");
        tx.commit().await.expect("committed");
        drop(connection);
        assert_eq!(
            bank.server.psql("SELECT cents FROM account"),
            (after - 10).to_string()
        );
        assert!(before >= after);
    }
}

/// The work hangs until the run has to end: the server rolls back, and nobody gets that connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_work_did_not_end_is_closed() {
    let bank = PgBank::open(1).await;
    let first = session(&bank).await;
    let executor = crate::kit::hold("a", 1, std::time::Duration::from_secs(2)).executor();
    let call = bank.fence.transaction::<(), _>(|tx| {
        Box::pin(async move {
            sqlx::query(crate::TAKE).execute(&mut **tx).await?;
            std::future::pending().await
        })
    });
    let late = executor.commit(call).await.expect_err("it hangs");
    assert!(
        matches!(late, leasehold::RunError::RolledBack { .. }),
        "{late:?}"
    );
    assert_ne!(session(&bank).await, first);
    assert_eq!(bank.cents().await, 1000);
}
