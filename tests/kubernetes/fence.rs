//! The fence around an object, in guarded runs.

use k8s_openapi::serde_json::json;
use leasehold::FencingToken;
use leasehold::LockManager;
use leasehold::fence::Fence;
use leasehold::kubernetes::K8sFence;
use leasehold::run::EffectError;

use crate::kubernetes::fake::{FakeApiServer, Fault};
use crate::kubernetes::raw;

/// Any object: the fake server knows Leases only.
const ALL: &str = "/apis/coordination.k8s.io/v1/namespaces/shop/leases";

async fn world() -> (FakeApiServer, K8sFence) {
    let server = FakeApiServer::start().await;
    let client = raw::client(&server.folder().join("kubeconfig")).await;
    let object = json!({"metadata": {"name": "prices"}, "data": {"tea": "1"}});
    raw::send(&client, "POST", ALL, Some(object)).await.unwrap();
    let fence = K8sFence::connect(&server.url(), &format!("{ALL}/prices")).await;
    (server, fence.unwrap())
}

/// A run that sets the price of tea.
async fn run(
    server: &FakeApiServer,
    fence: &K8sFence,
    price: &str,
    fault: Option<Fault>,
) -> Result<(), leasehold::RunError<()>> {
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let lock = locks.lock("prices-lock").fence(fence.clone());
    let guard = lock.acquire().await.unwrap();
    let executor = guard.executor();
    let done = executor.guarded_async(async |tx| {
        let fence = fence.clone();
        let mut object = fence.read().await?;
        object["data"]["tea"] = price.into();
        if let Some(fault) = fault {
            server.next("update", fault);
        }
        tx.commit_with(move |permit| fence.apply(permit, object));
        Ok(())
    });
    let done = done.await.map(drop);
    guard.release().await.unwrap();
    done
}

#[tokio::test]
async fn a_run_commits_an_object() {
    let (server, fence) = world().await;
    for price in ["2", "3"] {
        run(&server, &fence, price, None).await.unwrap();
        assert_eq!(server.lease("prices").unwrap()["data"]["tea"], price);
    }
}

#[tokio::test]
async fn a_commit_without_an_answer_is_found_by_its_name() {
    let (server, fence) = world().await;
    run(&server, &fence, "2", Some(Fault::Swallow))
        .await
        .unwrap();
    assert_eq!(server.lease("prices").unwrap()["data"]["tea"], "2");
}

#[tokio::test]
async fn a_commit_that_the_server_failed_at_is_made_void() {
    let (server, fence) = world().await;
    let failed = run(&server, &fence, "2", Some(Fault::Refuse(500, None))).await;
    assert!(
        matches!(failed, Err(leasehold::RunError::RolledBack { .. })),
        "{failed:?}"
    );
    let object = server.lease("prices").unwrap();
    assert_eq!(object["data"]["tea"], "1");
    let name = object["metadata"]["annotations"]["leasehold/commit"]
        .as_str()
        .unwrap();
    assert!(name.starts_with("void:"), "{name}");
}

#[tokio::test]
async fn an_object_that_was_read_before_the_fence_was_raised_is_refused() {
    let (_server, fence) = world().await;
    let read = fence.read().await.unwrap();
    let (key, token) = ("a".parse().unwrap(), FencingToken::new(3).unwrap());
    fence.raise(&key, token).await.unwrap();
    let refused = fence.write(&key, token, read).await.unwrap_err();
    let EffectError::NotApplied(why) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        why.to_string().contains("before its fence was raised"),
        "{why}"
    );
}
