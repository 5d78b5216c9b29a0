//! `resolve`: what became of a commit in doubt.

use leasehold::LockManager;
use leasehold::fence::PgFence;

use crate::command::{code, leasehold, lines, told};
use crate::postgres::PgServer;

#[tokio::test]
async fn a_commit_in_doubt_is_resolved_and_a_name_that_was_free_stays_void() {
    let server = PgServer::start();
    let url = server.url();
    let fence = PgFence::connect(&url).await.unwrap();
    fence.create_schema().await.unwrap();
    let locks = LockManager::connect("memory:").await.unwrap();
    let done = locks
        .lock("a")
        .commit(fence.transaction(async |t| t.done(())))
        .await
        .unwrap();
    let token = done.token.to_string();
    let txn_id = server.psql("SELECT replace(txn_id::text, '-', '') FROM leasehold.txn");
    let resolve = |txn_id: &str| {
        leasehold(&[
            "resolve", "--json", "--store", &url, "a", txn_id, "--token", &token,
        ])
    };
    let applied = resolve(&txn_id);
    assert_eq!(
        (code(&applied), &lines(&applied.stdout)[0]["is_applied"]),
        (0, &true.into())
    );
    for _ in 0..2 {
        let void = resolve("00000000000000000000000000000001");
        assert_eq!(
            (code(&void), &lines(&void.stdout)[0]["is_applied"]),
            (1, &false.into())
        );
    }
    assert_eq!(
        server.psql("SELECT count(*) FROM leasehold.txn WHERE NOT applied"),
        "1"
    );
}

#[test]
fn what_is_no_commit_in_postgresql_is_a_wrong_call() {
    let txn_id = "00000000000000000000000000000001";
    for (store, txn_id, token) in [
        ("redis://127.0.0.1:1", txn_id, "1"),
        ("postgres://127.0.0.1:1/a", "1", "1"),
        ("postgres://127.0.0.1:1/a", txn_id, "x"),
    ] {
        let output = leasehold(&["resolve", "--store", store, "a", txn_id, "--token", token]);
        assert_eq!(code(&output), 64, "{}", told(&output));
    }
}
