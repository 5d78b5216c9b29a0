//! A controller that goes on after the next holder has begun: what it writes with the fence, and in
//! the way of client-go.

use k8s_openapi::serde_json::{Value, json};
use leasehold::FencingToken;
use leasehold::fence::Fence;
use leasehold::kubernetes::K8sFence;
use leasehold::run::EffectError;
use leasehold::{ErrorKind, Key};

use crate::kubernetes::api_server::{ApiServer, NAMESPACE};

const TRIALS: u64 = 200;
const PATH: &str = "/api/v1/namespaces/shop/configmaps/prices";

async fn world() -> (ApiServer, K8sFence, Key) {
    let server = ApiServer::start().await;
    let all = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let object = json!({"metadata": {"name": "prices"}, "data": {"by": "nobody"}});
    let (code, body) = server.send("POST", &all, Some(object)).await;
    assert_eq!(code, 201, "{body}");
    let fence = K8sFence::connect(&server.url(), PATH).await.unwrap();
    (server, fence, Key::parse("prices").unwrap())
}

fn changed(mut object: Value, by: &str) -> Value {
    object["data"]["by"] = by.into();
    object
}

#[tokio::test]
async fn a_controller_that_goes_on_late_writes_nothing() {
    let (server, fence, key) = world().await;
    let (mut ours, mut of_client_go, mut after_a_get) = (0, 0, 0);
    for trial in 0..TRIALS {
        let [old, new] = [1, 2].map(|n| FencingToken::new(2 * trial + n).unwrap());
        fence.raise(&key, old).await.unwrap();
        let read = fence.read().await.unwrap();
        // Here it is frozen for longer than its lease. The next holder begins, and writes.
        fence.raise(&key, new).await.unwrap();
        let next = changed(fence.read().await.unwrap(), "the next holder");
        fence.write(&key, new, next.clone()).await.unwrap();
        // It goes on.
        match fence.write(&key, old, changed(read, "the late one")).await {
            Err(EffectError::Fenced { seen }) => assert_eq!(seen, Some(new)),
            other => panic!("{other:?}"),
        }
        let fresh = changed(fence.read().await.unwrap(), "the late one");
        if fence.write(&key, old, fresh.clone()).await.is_ok() {
            after_a_get += 1;
        }
        let now = fence.read().await.unwrap();
        ours += u64::from(now["data"]["by"] == "the late one");
        // The way of client-go: a conflict is retried with a fresh object.
        let (code, _) = server.send("PUT", PATH, Some(fresh)).await;
        of_client_go += u64::from(code == 200);
    }
    println!("| way | late writes of {TRIALS} |\n|---|---|");
    println!("| `K8sFence` | {ours} |\n| `get` and `update` | {of_client_go} |");
    assert_eq!((ours, after_a_get), (0, 0));
    assert_eq!(of_client_go, TRIALS);
}

#[tokio::test]
async fn an_older_holder_cannot_raise_the_fence() {
    let (_server, fence, key) = world().await;
    let [old, new] = [7, 8].map(|n| FencingToken::new(n).unwrap());
    fence.raise(&key, new).await.unwrap();
    fence.raise(&key, new).await.unwrap();
    let error = fence.raise(&key, old).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost(_)), "{error}");
}

#[tokio::test]
async fn a_change_of_somebody_without_the_fence_is_a_conflict() {
    let (server, fence, key) = world().await;
    let token = FencingToken::new(7).unwrap();
    fence.raise(&key, token).await.unwrap();
    let read = fence.read().await.unwrap();
    let (code, _) = server
        .send("PUT", PATH, Some(changed(read.clone(), "somebody")))
        .await;
    assert_eq!(code, 200);
    let refused = fence
        .write(&key, token, changed(read, "us"))
        .await
        .unwrap_err();
    assert!(matches!(refused, EffectError::NotApplied(_)), "{refused:?}");
}
