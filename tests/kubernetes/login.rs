//! Kubeconfigs that cannot be used, and plugins for credentials.

use std::error::Error as _;
use std::fs;

use leasehold::kubernetes::KubernetesStore;
use leasehold::store::Store;
use leasehold::{Error, ErrorKind, Key};

use crate::kubernetes::fake::{FakeApiServer, Fault};
use crate::kubernetes::kubeconfig;

const SECRET: &str = "s3cret";

/// Writes the user into the kubeconfig of a server.
fn set_user(server: &FakeApiServer, user: &str) {
    let path = server.folder().join("kubeconfig");
    let address = fs::read_to_string(&path).unwrap();
    let address = address.split('"').nth(1).unwrap().to_owned();
    kubeconfig::write(server.folder(), &address, None, user);
}

/// The error for the user of a kubeconfig.
async fn refused(user: &str) -> Error {
    let server = FakeApiServer::start().await;
    set_user(&server, user);
    KubernetesStore::connect(&server.url()).await.unwrap_err()
}

fn shown(error: &Error) -> String {
    let mut shown = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        shown += &format!(" {error} {error:?}");
        cause = error.source();
    }
    shown
}

fn plugin(command: &str, args: &str) -> String {
    format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, \
         command: {command}, args: {args}, env: [{{name: A, value: {SECRET}}}]}}"
    )
}

#[tokio::test]
async fn an_error_of_a_kubeconfig_or_its_plugin_shows_no_secret() {
    let cases = [
        (format!("token: {SECRET}, username: [x]"), "line=7"),
        (
            plugin("sh", &format!("[-c, 'echo {SECRET} >&2; exit 3']")),
            "exit status: 3",
        ),
        (
            plugin("echo", &format!("['{{\"status\": [\"{SECRET}\"]}}']")),
            "printed none",
        ),
        (plugin("no-such-plugin", "[]"), "cannot be started"),
    ];
    for (user, says) in cases {
        let error = refused(&user).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        let shown = shown(&error);
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(shown.contains(says), "{shown}");
    }
}

#[tokio::test]
async fn a_plugin_that_hangs_is_not_waited_for() {
    let error = refused(&plugin("sleep", "['60']")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

#[tokio::test]
async fn one_login_serves_all_whose_credentials_were_refused() {
    let server = FakeApiServer::start().await;
    let runs = server.folder().join("runs");
    let script = format!(
        "echo x >> {}; echo '{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \
         \"kind\": \"ExecCredential\", \"status\": {{\"token\": \"t\"}}}}'",
        runs.display()
    );
    let path = server.folder().join("plugin");
    fs::write(&path, script).unwrap();
    set_user(
        &server,
        &plugin("sh", &format!("[{:?}]", path.to_str().unwrap())),
    );
    let store = KubernetesStore::connect(&server.url()).await.unwrap();
    let before = fs::read_to_string(&runs).unwrap().len();
    for _ in 0..8 {
        server.next("get", Fault::Refuse(401, None));
    }
    let keys: Vec<Key> = (0..8).map(|n| format!("k{n}").parse().unwrap()).collect();
    let asked = keys.iter().map(|key| store.inspect(key));
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!(answer.unwrap(), None);
    }
    assert_eq!(fs::read_to_string(&runs).unwrap().len(), 2 * before);
}
