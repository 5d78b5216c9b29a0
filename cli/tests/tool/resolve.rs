//! `resolve`: what became of a commit in doubt.

use leasehold::LockManager;
use leasehold::postgres::PgFence;
use leasehold::redis::{RedisBatch, RedisFence};
use leasehold::run::{Applied, CommitPermit, EffectError, TxnId};
use leasehold::zookeeper::{ZkBatch, ZkFence};

use crate::command::{code, leasehold, lines, printed, server};
use crate::postgres::PgServer;
use crate::zookeeper::Server;

#[tokio::test]
async fn a_commit_in_doubt_is_resolved_and_a_name_that_was_free_stays_void() {
    let server = PgServer::start();
    // As the store of locks in that database is called.
    let url = format!("{}?create=auto&max_ttl=30s", server.url());
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
        let void = resolve(&unused(&txn_id));
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

/// The name of another run under the same locks.
fn unused(txn_id: &str) -> String {
    let last = if txn_id.ends_with('0') { '1' } else { '0' };
    format!("{}{last}", &txn_id[..31])
}

/// The tool on the doubt of a commit that was made, and of one that never was.
fn resolves(store: &str, token: &str, applied: TxnId) {
    let resolve = |txn_id: &str| {
        let answer = leasehold(&[
            "resolve", "--json", "--store", store, "a", txn_id, "--token", token,
        ]);
        let lines = lines(&answer.stdout);
        let line = lines.first();
        let is_applied = line.and_then(|line| line["is_applied"].as_bool());
        (
            code(&answer),
            is_applied.unwrap_or_else(|| panic!("{}", printed(&answer))),
        )
    };
    assert_eq!(resolve(&applied.to_string()), (0, true));
    // A name that was free is void from then on.
    let free = unused(&applied.to_string());
    assert_eq!(resolve(&free), (1, false));
    assert_eq!(resolve(&free), (1, false));
    assert_eq!(resolve(&applied.to_string()), (0, true));
    // The name of the commit is not looked for beside another key.
    let txn_id = applied.to_string();
    let other = leasehold(&["resolve", "--store", store, "b", &txn_id, "--token", token]);
    assert_eq!(code(&other), 64, "{}", printed(&other));
}

/// Commits by what `apply` makes of the permit, and resolves.
async fn is_resolved<F>(store: String, apply: impl FnOnce(CommitPermit) -> F + Send + 'static)
where
    F: Future<Output = Result<Applied, EffectError>> + Send + 'static,
{
    let locks = LockManager::connect("memory:").await.unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    let executor = guard.executor();
    let mut apply = Some(apply);
    let run = executor.guarded_async(async |tx| {
        tx.commit_with(apply.take().ok_or("once")?);
        Ok(tx.txn_id()?)
    });
    let done = run.await.unwrap();
    let token = done.token.to_string();
    let resolved = tokio::task::spawn_blocking(move || resolves(&store, &token, done.value));
    resolved.await.unwrap();
}

#[tokio::test]
async fn a_commit_in_redis_is_resolved() {
    let (server, _) = server();
    let url = server.url("prefix=app");
    let fence = RedisFence::connect(&url).await.unwrap();
    let batch = RedisBatch::new().set("balance", "7");
    is_resolved(url, move |permit| fence.apply(permit, batch)).await;
    assert_eq!(server.cli(&["GET", "balance"]), "7");
}

#[tokio::test]
async fn a_commit_in_zookeeper_is_resolved() {
    let server = Server::shared();
    let url = format!("zookeeper://{}/resolved", server.address());
    let fence = ZkFence::connect(&url).await.unwrap();
    let batch = ZkBatch::new().create("/resolved-balance", "7");
    is_resolved(url, move |permit| fence.apply(permit, batch)).await;
}

#[test]
fn what_is_no_commit_behind_a_fence_is_a_wrong_call() {
    let txn_id = "00000000000000000000000000000001";
    for (store, txn_id, token) in [
        ("memory:", txn_id, "1"),
        ("etcd://127.0.0.1:1", txn_id, "1"),
        ("postgres://127.0.0.1:1/a", txn_id, "1,2"),
        ("postgres://127.0.0.1:1/a", "1", "1"),
        ("postgres://127.0.0.1:1/a", txn_id, "x"),
    ] {
        let output = leasehold(&["resolve", "--store", store, "a", txn_id, "--token", token]);
        assert_eq!(code(&output), 64, "{}", printed(&output));
    }
}
