//! Electors of other libraries take turns with our locks on one Lease.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::LockManager;
use leasehold::Settings;

use crate::kubernetes::api_server::{ApiServer, NAMESPACE};

/// Terms of each side.
const TERMS: u64 = 100;
/// As the peers have it, and longer than the test: who stops is seen at once.
const TTL: Duration = Duration::from_secs(15);

/// Reads a number, waits, and writes the next one: two at once would lose a count.
async fn count(file: &Path) {
    let number: u64 = fs::read_to_string(file).unwrap().trim().parse().unwrap();
    leasehold::clock::Clock::system()
        .unwrap()
        .sleep(Duration::from_millis(2))
        .await;
    fs::write(file, (number + 1).to_string()).unwrap();
}

/// The peer and we count to twice [`TERMS`] on one Lease.
async fn take_turns(server: &ApiServer, peer: impl FnOnce(&Path, &Path) -> Child) {
    let file = server.folder().join("counted");
    fs::write(&file, "0").unwrap();
    let mut settings = Settings::default();
    settings.ttl = TTL;
    settings.wait = Duration::from_secs(120);
    let locks = LockManager::builder_for_url(&server.url(), settings)
        .await
        .unwrap();
    let locks = locks.build().unwrap();
    let mut child = peer(&server.folder().join("kubeconfig"), &file);
    let mut tokens = Vec::new();
    for _ in 0..TERMS {
        let guard = locks.lock("my-controller").acquire().await.unwrap();
        tokens.push(guard.token());
        count(&file).await;
        guard.release().await.unwrap();
    }
    let ended = tokio::task::spawn_blocking(move || child.wait().unwrap())
        .await
        .unwrap();
    assert!(ended.success(), "{ended}");
    let counted: u64 = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    assert_eq!(counted, 2 * TERMS);
    assert!(tokens.is_sorted_by(|a, b| a < b), "tokens grow");
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/my-controller");
    let (_, lease) = server.send("GET", &path, None).await;
    println!("{} transitions", lease["spec"]["leaseTransitions"]);
}

fn of_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[tokio::test]
async fn we_take_turns_with_the_elector_of_client_go() {
    let server = ApiServer::start().await;
    take_turns(&server, |kubeconfig, file| {
        Command::new(of_repository("target/servers/elector"))
            .arg(kubeconfig)
            .args([NAMESPACE, "my-controller", "go-1", &TERMS.to_string()])
            .arg(file)
            .stderr(Stdio::null())
            .spawn()
            .expect("the elector, which tests/kubernetes_server/build-apiserver.sh builds")
    })
    .await;
}

#[tokio::test]
async fn we_take_turns_with_the_elector_of_the_python_client() {
    let server = ApiServer::start().await;
    take_turns(&server, |kubeconfig, file| {
        Command::new(of_repository(".venv/bin/python"))
            .arg(of_repository("tests/kubernetes_server/elector.py"))
            .arg(kubeconfig)
            .args([NAMESPACE, "my-controller", "python-1", &TERMS.to_string()])
            .arg(file)
            .stderr(Stdio::null())
            .spawn()
            .expect(".venv/bin/python, which tests/run.sh makes")
    })
    .await;
}
