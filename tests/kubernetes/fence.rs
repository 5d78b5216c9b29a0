//! The fence around an object, in guarded runs.

use std::sync::Arc;

use k8s_openapi::serde_json::{Value, json};
use leasehold::FencingToken;
use leasehold::LockManager;
use leasehold::fence::Fence;
use leasehold::kubernetes::K8sFence;
use leasehold::run::{Applied, CommitPermit, EffectError};

use crate::kubernetes::fake::{FakeApiServer, Fault};
use crate::kubernetes::raw;

/// Any object: the fake server knows Leases only.
const ALL: &str = "/apis/coordination.k8s.io/v1/namespaces/shop/leases";
const LOCK: &str = "prices-lock";

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
    price: &'static str,
    faults: impl IntoIterator<Item = Fault>,
) -> Result<(), leasehold::RunError<()>> {
    let of_commit = fence.clone();
    let commit = move |permit, object| of_commit.apply(permit, set(object, price));
    run_with(server, fence, faults, commit).await
}

fn set(mut object: Value, price: &str) -> Value {
    object["data"]["tea"] = price.into();
    object
}

/// A run with this commit call, which is given what the run has read.
async fn run_with<F>(
    server: &FakeApiServer,
    fence: &K8sFence,
    faults: impl IntoIterator<Item = Fault>,
    commit: impl FnOnce(CommitPermit, Value) -> F + Send + 'static,
) -> Result<(), leasehold::RunError<()>>
where
    F: Future<Output = Result<Applied, EffectError>> + Send + 'static,
{
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let lock = locks.lock(LOCK).fence(fence.clone());
    let guard = lock.acquire().await.unwrap();
    let executor = guard.executor();
    let done = executor.guarded_async(async |tx| {
        let object = fence.read().await?;
        for fault in faults {
            server.next("update", fault);
        }
        tx.commit_with(move |permit| commit(permit, object));
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
async fn a_void_that_was_not_answered_is_found_by_its_name() {
    let (server, fence) = world().await;
    let faults = [Fault::Refuse(500, None), Fault::Swallow];
    let failed = run(&server, &fence, "2", faults).await;
    assert!(
        matches!(failed, Err(leasehold::RunError::RolledBack { .. })),
        "{failed:?}"
    );
    assert_eq!(server.lease("prices").unwrap()["data"]["tea"], "1");
}

#[tokio::test]
async fn what_is_applied_is_not_rolled_back_by_a_second_use_of_its_permit() {
    for (is_read_again, is_raised) in [(false, false), (false, true), (true, false), (true, true)] {
        let (server, fence) = world().await;
        let of_commit = fence.clone();
        let twice = async move |permit: CommitPermit, object: Value| {
            let fence = of_commit;
            let first = set(object, "2");
            fence.apply(permit.clone(), first.clone()).await?;
            if is_raised {
                let newer = permit.locks()[0].token.number() + 1;
                let newer = FencingToken::new(newer).unwrap();
                fence.raise(&LOCK.parse().unwrap(), newer).await?;
            }
            let second = if is_read_again {
                fence.read().await?
            } else {
                first
            };
            fence.apply(permit, set(second, "3")).await
        };
        let done = run_with(&server, &fence, None, twice).await;
        // Nor is the change that is nowhere reported as committed.
        assert!(
            matches!(done, Err(leasehold::RunError::InDoubt { .. })),
            "{is_read_again} {is_raised}: {done:?}"
        );
        assert_eq!(server.lease("prices").unwrap()["data"]["tea"], "2");
    }
}

#[tokio::test]
async fn a_second_use_of_a_permit_is_asked_about_until_the_object_is_read() {
    let (server, fence) = world().await;
    let server = Arc::new(server);
    let (of_commit, faults) = (fence.clone(), Arc::clone(&server));
    let twice = async move |permit: CommitPermit, object: Value| {
        let object = set(object, "2");
        of_commit.apply(permit.clone(), object.clone()).await?;
        faults.next("get", Fault::Refuse(500, None));
        of_commit.apply(permit, object).await
    };
    run_with(&server, &fence, None, twice).await.unwrap();
    assert_eq!(server.lease("prices").unwrap()["data"]["tea"], "2");
}

#[tokio::test]
async fn a_commit_that_was_made_void_is_not_applied_by_a_second_use_of_its_permit() {
    let (server, fence) = world().await;
    let of_commit = fence.clone();
    let twice = async move |permit: CommitPermit, object: Value| {
        let first = of_commit.apply(permit.clone(), set(object, "2")).await;
        assert!(
            matches!(first, Err(EffectError::NotApplied(_))),
            "{first:?}"
        );
        let object = of_commit.read().await?;
        of_commit.apply(permit, set(object, "3")).await
    };
    let failed = run_with(&server, &fence, [Fault::Refuse(500, None)], twice).await;
    assert!(
        matches!(failed, Err(leasehold::RunError::RolledBack { .. })),
        "{failed:?}"
    );
    assert_eq!(server.lease("prices").unwrap()["data"]["tea"], "1");
}

#[tokio::test]
async fn of_two_changes_at_once_under_one_permit_only_the_one_that_is_stored_is_applied() {
    let (server, fence) = world().await;
    let of_commit = fence.clone();
    let both = async move |permit: CommitPermit, object: Value| {
        let first = of_commit.apply(permit.clone(), set(object.clone(), "2"));
        let second = of_commit.apply(permit, set(object, "3"));
        let (first, second) = tokio::join!(first, second);
        let stored = of_commit.read().await?;
        for (answer, price) in [(&first, "2"), (&second, "3")] {
            let is_stored = stored["data"]["tea"] == price;
            assert_eq!(answer.is_ok(), is_stored, "{price}: {answer:?}");
            let is_known = !matches!(answer, Err(EffectError::Unknown(_)));
            assert_eq!(is_known, is_stored, "{price}: {answer:?}");
        }
        first.and(second)
    };
    let done = run_with(&server, &fence, None, both).await;
    assert!(
        matches!(done, Err(leasehold::RunError::InDoubt { .. })),
        "{done:?}"
    );
}

#[tokio::test]
async fn a_void_that_the_server_does_not_keep_proves_nothing() {
    let (server, fence) = world().await;
    let faults = [Fault::Refuse(500, None), Fault::Strip];
    let failed = run(&server, &fence, "2", faults).await;
    assert!(
        matches!(failed, Err(leasehold::RunError::InDoubt { .. })),
        "{failed:?}"
    );
}

#[tokio::test]
async fn a_commit_without_an_answer_is_not_applied_if_somebody_else_changed_what_it_had_read() {
    let (server, fence) = world().await;
    let server = Arc::new(server);
    let (of_commit, faults) = (fence.clone(), Arc::clone(&server));
    let commit = async move |permit: CommitPermit, object: Value| {
        let client = raw::client(&faults.folder().join("kubeconfig")).await;
        let other = set(object.clone(), "7");
        raw::send(&client, "PUT", &format!("{ALL}/prices"), Some(other)).await;
        faults.next("update", Fault::Refuse(500, None));
        of_commit.apply(permit, set(object, "2")).await
    };
    let failed = run_with(&server, &fence, None, commit).await;
    assert!(
        matches!(failed, Err(leasehold::RunError::RolledBack { .. })),
        "{failed:?}"
    );
    assert_eq!(server.lease("prices").unwrap()["data"]["tea"], "7");
}

/// The command of the error leaves the other keys behind their fences.
#[tokio::test]
async fn a_store_with_smaller_tokens_gets_the_command_that_forgets_one_key() {
    let (_server, fence) = world().await;
    let key = |name: &str| name.parse().unwrap();
    let token = |number| FencingToken::new(number).unwrap();
    fence.raise(&key("a"), token(9)).await.unwrap();
    fence.raise(&key("b"), token(5)).await.unwrap();
    for seen in [9, 1 << 50] {
        fence.raise(&key("a"), token(seen)).await.unwrap();
        let error = fence.raise(&key("a"), token(3)).await.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("kubectl annotate --overwrite --resource-version=")
        );
        let command = " -n shop leases.coordination.k8s.io prices leasehold/fence='{\"b\":5}'";
        assert!(error.to_string().ends_with(command), "{error}");
    }
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

/// A balancer repeats an update that was not answered, and only the second copy is answered.
#[tokio::test]
async fn a_conflict_proves_nothing_if_many_commits_followed() {
    let newer = json!({"leasehold/commit": "other", "leasehold/fence": "{\"prices-lock\":9007199254740991}"});
    for others in [newer, json!({"leasehold/commit": "other"})] {
        let (server, fence) = world().await;
        let failed = run(&server, &fence, "2", Some(Fault::Repeat(others.clone()))).await;
        assert!(
            matches!(failed, Err(leasehold::RunError::InDoubt { .. })),
            "{failed:?}"
        );
        assert_eq!(server.lease("prices").unwrap()["data"]["tea"], "2");

        let (server, fence) = world().await;
        let (key, token) = (LOCK.parse().unwrap(), FencingToken::new(3).unwrap());
        fence.raise(&key, token).await.unwrap();
        let object = set(fence.read().await.unwrap(), "2");
        server.next("update", Fault::Repeat(others));
        let failed = fence.write(&key, token, object).await;
        assert!(matches!(failed, Err(EffectError::Unknown(_))), "{failed:?}");
    }
}

#[tokio::test]
async fn a_conflict_with_an_own_copy_is_applied() {
    for others in [json!({}), json!({"leasehold/commit": "other *"})] {
        let (server, fence) = world().await;
        run(&server, &fence, "2", Some(Fault::Repeat(others.clone())))
            .await
            .unwrap();
        let (key, token) = ("a".parse().unwrap(), FencingToken::new(3).unwrap());
        fence.raise(&key, token).await.unwrap();
        let object = set(fence.read().await.unwrap(), "3");
        server.next("update", Fault::Repeat(others));
        fence.write(&key, token, object).await.unwrap();
        assert_eq!(server.lease("prices").unwrap()["data"]["tea"], "3");
    }
}

/// Somebody without the fence changed the object.
#[tokio::test]
async fn a_conflict_without_another_commit_is_not_applied() {
    let (server, fence) = world().await;
    let (key, token) = ("a".parse().unwrap(), FencingToken::new(3).unwrap());
    fence.raise(&key, token).await.unwrap();
    let object = set(fence.read().await.unwrap(), "2");
    let client = raw::client(&server.folder().join("kubeconfig")).await;
    let other = set(server.lease("prices").unwrap(), "7");
    raw::send(&client, "PUT", &format!("{ALL}/prices"), Some(other)).await;
    let failed = fence.write(&key, token, object.clone()).await;
    assert!(
        matches!(failed, Err(EffectError::NotApplied(_))),
        "{failed:?}"
    );
    fence
        .raise(&key, FencingToken::new(4).unwrap())
        .await
        .unwrap();
    let next = FencingToken::new(4).unwrap();
    let newer = set(fence.read().await.unwrap(), "8");
    fence.write(&key, next, newer).await.unwrap();
    let failed = fence.write(&key, token, object).await;
    assert!(
        matches!(failed, Err(EffectError::Fenced { .. })),
        "{failed:?}"
    );
}

#[tokio::test]
async fn a_field_that_the_server_would_drop_is_refused() {
    let (server, fence) = world().await;
    let of_commit = fence.clone();
    let commit = async move |permit: CommitPermit, mut object: Value| {
        object["unknown"] = "2".into();
        of_commit.apply(permit, object).await
    };
    let failed = run_with(&server, &fence, None, commit).await;
    assert!(
        matches!(failed, Err(leasehold::RunError::RolledBack { .. })),
        "{failed:?}"
    );
}

#[tokio::test]
async fn a_fence_that_the_server_does_not_keep_is_not_raised() {
    let (server, fence) = world().await;
    let (key, token) = ("a".parse().unwrap(), FencingToken::new(3).unwrap());
    server.next("update", Fault::Strip);
    let error = fence.raise(&key, token).await.unwrap_err();
    assert!(error.to_string().contains("did not keep"), "{error}");
    fence.raise(&key, token).await.unwrap();
    let object = fence.read().await.unwrap();
    server.next("update", Fault::Strip);
    let failed = fence.write(&key, token, object).await;
    assert!(matches!(failed, Err(EffectError::Unknown(_))), "{failed:?}");
}

#[tokio::test]
async fn a_path_that_is_not_that_of_an_object_is_refused() {
    let server = FakeApiServer::start().await;
    for path in [
        "/api/v1/namespaces/shop/configmaps",
        "/apis/example.com/v1/namespaces/shop/things/a/status",
        "/apis/example.com/v1/things/a/status",
        "/api/v1/namespaces/shop/finalize",
        "/apis/apps/v1/namespaces/shop/deployments/a/scale",
        "/api/v1/namespaces/shop/configmaps/prices/",
    ] {
        let error = K8sFence::connect(&server.url(), path).await.unwrap_err();
        assert_eq!(error.kind(), leasehold::ErrorKind::Invalid, "{path}");
    }
    for path in ["/api/v1/namespaces/shop", "/apis/example.com/v1/things/a"] {
        K8sFence::connect(&server.url(), path).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_is_silent_does_not_stop_the_work() {
    let (server, fence) = world().await;
    server.next("get", Fault::Silence);
    let clock = leasehold::clock::Clock::system().unwrap();
    let read = clock.timeout(std::time::Duration::from_secs(300), fence.read());
    let error = read.await.expect("an answer").unwrap_err();
    assert_eq!(error.kind(), leasehold::ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_fence_of_too_many_keys_says_what_to_do() {
    let (server, fence) = world().await;
    let token = FencingToken::new(3).unwrap();
    let mut object = fence.read().await.unwrap();
    object["metadata"]["annotations"]["other"] = "x".repeat(262_144 - 1_150).into();
    let (first, second) = ("a".parse().unwrap(), "b".repeat(90).parse().unwrap());
    let client = raw::client(&server.folder().join("kubeconfig")).await;
    raw::send(&client, "PUT", &format!("{ALL}/prices"), Some(object)).await;
    fence.raise(&first, token).await.unwrap();
    let error = fence.raise(&second, token).await.unwrap_err();
    assert!(error.to_string().contains("leasehold/fence"), "{error}");
    assert!(error.to_string().contains("262144"), "{error}");
    // The names of commits take what a new key has left to them.
    for price in ["2", "3", "4", "5", "6", "7", "8", "9"] {
        let object = set(fence.read().await.unwrap(), price);
        fence.write(&first, token, object).await.unwrap();
    }
    let newer = FencingToken::new(4).unwrap();
    fence.raise(&first, newer).await.unwrap();
}
