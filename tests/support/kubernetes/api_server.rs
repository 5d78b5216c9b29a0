//! A real API server with its etcd: ordinary processes on free loopback ports, ended by their id.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::serde_json::{Value, json};
use leasehold::store::OwnerToken;

use super::process::{answers, free_port, until};
use super::{audit, canary, kubeconfig, raw};

/// Where `tests/kubernetes_server/build-apiserver.sh` puts it.
const BUILT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/servers/kube-apiserver");
/// The namespace of all tests.
pub(crate) const NAMESPACE: &str = "shop";

pub(crate) struct ApiServer {
    folder: PathBuf,
    port: u16,
    etcd_port: u16,
    api: Mutex<Child>,
    etcd: Mutex<Child>,
}

impl ApiServer {
    /// A server with the namespace [`NAMESPACE`], whose administrator is in a kubeconfig.
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    /// A server that keeps what it answered, for [`audit::read`](super::audit::read).
    pub(crate) async fn start_audited() -> Self {
        Self::start_with(Some(audit::POLICY)).await
    }

    async fn start_with(policy: Option<&str>) -> Self {
        canary::watch();
        let unique = OwnerToken::generate().unwrap().expose();
        let folder = std::env::temp_dir().join(format!("leasehold-k8s-{unique}"));
        fs::create_dir_all(&folder).unwrap();
        let key = Command::new("openssl")
            .args(["genrsa", "-out"])
            .arg(folder.join("sa.key"))
            .arg("2048")
            .output()
            .expect("openssl is installed");
        assert!(key.status.success(), "{key:?}");
        set_tokens(&folder, &[("admin", &admin_token(), "system:masters")]);
        if let Some(policy) = policy {
            fs::write(folder.join(audit::POLICY_FILE), policy).unwrap();
        }
        let (etcd_port, peers, port) = (free_port(), free_port(), free_port());
        let mut etcd = start_etcd(&folder, etcd_port, peers);
        let there = answers(&mut etcd, || health(etcd_port).contains("true"));
        assert!(there, "etcd does not start; see {}", folder.display());
        let mut api = start_api(&folder, port, etcd_port);
        let there = answers(&mut api, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert!(
            there,
            "kube-apiserver does not start; see {}",
            folder.display()
        );
        let server = Self {
            folder,
            port,
            etcd_port,
            api: Mutex::new(api),
            etcd: Mutex::new(etcd),
        };
        let token = format!("token: {}", admin_token());
        server.write_user(&server.folder, &token);
        server.ready().await;
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        let (code, body) = server
            .send("POST", "/api/v1/namespaces", Some(namespace))
            .await;
        assert_eq!(code, 201, "{body}");
        server
    }

    pub(crate) fn url(&self) -> String {
        kubeconfig::url(&self.folder, NAMESPACE)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The certificate by which clients know the server.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.join("certs/apiserver.crt")
    }

    /// The URL of a store of another user, by a line of a kubeconfig such as `token: abc`.
    pub(crate) fn url_of(&self, name: &str, user: &str) -> String {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        self.write_user(&folder, user);
        kubeconfig::url(&folder, NAMESPACE)
    }

    fn write_user(&self, folder: &Path, user: &str) {
        let address = format!("https://127.0.0.1:{}", self.port);
        kubeconfig::write(folder, &address, Some(&self.authority()), user);
    }

    /// Waits until the server serves, and has its first namespace.
    pub(crate) async fn ready(&self) {
        until("the API server is ready", async || {
            let ready = async |path| {
                self.try_send("GET", path, None)
                    .await
                    .is_some_and(|(code, _)| code == 200)
            };
            ready("/readyz").await && ready("/api/v1/namespaces/default").await
        })
        .await;
    }

    /// A request of the administrator: the code and the body of its answer.
    pub(crate) async fn send(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        (self.try_send(method, path, body).await).expect("an answer of the API server")
    }

    async fn try_send(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Option<(u16, Value)> {
        let client = raw::client(&self.folder.join("kubeconfig")).await;
        raw::send(&client, method, path, body).await
    }

    /// The token of a new service account that may use these verbs on Leases.
    pub(crate) async fn account(&self, name: &str, verbs: &[&str]) -> String {
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
        let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        let metadata = json!({"name": name});
        let made = async |path: &str, body: Value| {
            let (code, body) = self.send("POST", path, Some(body)).await;
            assert_eq!(code, 201, "{path}: {body}");
            body
        };
        made(&accounts, json!({"metadata": metadata})).await;
        let rule =
            json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs});
        made(
            &format!("{rbac}/roles"),
            json!({"metadata": metadata, "rules": [rule]}),
        )
        .await;
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
        let account = json!({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE});
        let binding = json!({"metadata": metadata, "roleRef": role, "subjects": [account]});
        made(&format!("{rbac}/rolebindings"), binding).await;
        self.token_of(NAMESPACE, name).await
    }

    /// A new token of a service account.
    pub(crate) async fn token_of(&self, namespace: &str, account: &str) -> String {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let asked = json!({"spec": {"expirationSeconds": 3600}});
        let (code, token) = self.send("POST", &path, Some(asked)).await;
        assert_eq!(code, 201, "{token}");
        let token = token["status"]["token"].as_str().expect("a token");
        token.to_owned()
    }

    /// Ends the API server by `kill -9`.
    pub(crate) fn kill(&self) {
        let mut api = self.api.lock().unwrap();
        api.kill().expect("SIGKILL");
        api.wait().expect("its end");
    }

    /// Starts it again, with the same data.
    pub(crate) async fn start_again(&self) {
        let mut child = start_api(&self.folder, self.port, self.etcd_port);
        let there = answers(&mut child, || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
        assert!(there, "kube-apiserver does not start again");
        *self.api.lock().unwrap() = child;
        self.ready().await;
    }

    /// Users of the next start: token, name and group. The administrator stays.
    pub(crate) fn set_tokens(&self, tokens: &[(&str, &str, &str)]) {
        let admin = admin_token();
        let mut all = vec![("admin", admin.as_str(), "system:masters")];
        all.extend_from_slice(tokens);
        set_tokens(&self.folder, &all);
    }

    pub(crate) fn stop_etcd(&self) {
        signal(&self.etcd.lock().unwrap(), "-STOP");
    }

    pub(crate) fn continue_etcd(&self) {
        signal(&self.etcd.lock().unwrap(), "-CONT");
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        for child in [&self.api, &self.etcd] {
            let mut child = child.lock().unwrap();
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn signal(child: &Child, signal: &str) {
    let done = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(done.expect("kill").success());
}

fn admin_token() -> String {
    format!("{}-admin", canary::CANARY)
}

/// Users by name, token and group.
fn set_tokens(folder: &Path, tokens: &[(&str, &str, &str)]) {
    let lines = tokens.iter().enumerate().map(|(id, (name, token, group))| {
        let group = if group.is_empty() {
            String::new()
        } else {
            format!(",\"{group}\"")
        };
        format!("{token},{name},{id}{group}\n")
    });
    fs::write(folder.join("tokens.csv"), lines.collect::<String>()).unwrap();
}

fn start_etcd(folder: &Path, port: u16, peers: u16) -> Child {
    let (client, peer) = (
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{peers}"),
    );
    logged(
        folder,
        "etcd",
        Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
                "--initial-cluster",
                &format!("default={peer}"),
                "--unsafe-no-fsync",
            ]),
    )
}

fn start_api(folder: &Path, port: u16, etcd_port: u16) -> Child {
    let program = std::env::var_os("LEASEHOLD_TEST_KUBE_APISERVER").unwrap_or_else(|| BUILT.into());
    let at = |name: &str| folder.join(name).display().to_string();
    let mut command = Command::new(program);
    command.args([
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", at("certs")),
        "--service-account-issuer=https://leasehold.test".to_owned(),
        format!("--service-account-key-file={}", at("sa.key")),
        format!("--service-account-signing-key-file={}", at("sa.key")),
        format!("--token-auth-file={}", at("tokens.csv")),
        "--authorization-mode=RBAC".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        // No controller makes the token of an account's secret.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
    ]);
    if folder.join(audit::POLICY_FILE).exists() {
        command.args([
            format!("--audit-policy-file={}", at(audit::POLICY_FILE)),
            format!("--audit-log-path={}", at(audit::LOG_FILE)),
        ]);
    }
    logged(folder, "api", &mut command)
}

fn logged(folder: &Path, name: &str, command: &mut Command) -> Child {
    let path = folder.join(format!("{name}.log"));
    let log = File::options()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    let started = command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn();
    started.unwrap_or_else(|error| {
        panic!("{name} does not start: {error}; install etcd-server, and run tests/kubernetes_server/build-apiserver.sh")
    })
}

fn health(port: u16) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        let _ = stream.write_all(b"GET /health HTTP/1.0\r\n\r\n");
        let _ = stream.read_to_string(&mut text);
    }
    text
}
