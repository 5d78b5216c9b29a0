//! Revocations on ZooKeeper whose processes are gone: everybody gets in afterwards.

use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::store::Store;
use zookeeper_client::{Acls, CreateMode};

use crate::command::{TOOL, code, leasehold};
use crate::zookeeper::{Server, claim, granted, line, open, options, raw, until};

/// The holder, the revoking tool and every job are processes of their own, and none of them lives
/// for long.
#[tokio::test]
async fn a_job_that_does_not_wait_gets_in_after_a_revocation_whose_processes_are_gone() {
    let server = Server::shared();
    let client = raw(&server).await;
    let url = format!(
        "zookeeper://{}/bar-cron?session_timeout=2s&tick_time=500ms",
        server.address()
    );
    let mut holder = Command::new(TOOL)
        .args(["run", "--store", &url, "--lock", "k", "--", "sleep", "3600"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    until("the holder holds", || async {
        !line(&client, "/bar-cron/k").await.is_empty()
    })
    .await;
    assert_eq!(code(&leasehold(&["revoke", "--store", &url, "k"])), 0);
    holder.wait().unwrap();

    let (clock, mut refused) = (Clock::system().unwrap(), 0);
    let start = clock.stamp();
    let job = [
        "run", "--store", &url, "--lock", "k", "--wait", "0s", "--", "true",
    ];
    while code(&leasehold(&job)) == 75 {
        refused += 1;
        let waited = clock.stamp().since(&start);
        assert!(
            waited < Duration::from_secs(20),
            "refused {refused} times in {waited:?}"
        );
    }
}

/// Only processes of another library wait, and nobody of ours is left to delete anything.
#[tokio::test]
async fn a_client_of_another_library_gets_in_after_a_revocation_whose_processes_are_gone() {
    let server = Server::shared();
    let client = raw(&server).await;
    let url = format!(
        "zookeeper://{}/bar-java?session_timeout=2s&tick_time=500ms",
        server.address()
    );
    let sequential = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let held = open({
        let mut options = options(&server.address(), "/bar-java");
        options.session_timeout = Duration::from_secs(2);
        options
    })
    .await;
    let _grant = granted(&held, &claim("k")).await;
    client
        .create("/bar-java/k/_c_java-lock-", b"", &sequential)
        .await
        .unwrap();
    assert_eq!(code(&leasehold(&["revoke", "--store", &url, "k"])), 0);
    held.close().await.unwrap();
    drop(held);
    until("the other client is first", || async {
        line(&client, "/bar-java/k").await[0].starts_with("_c_java")
    })
    .await;
}
