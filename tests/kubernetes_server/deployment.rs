//! The manifest of `examples/kubernetes`, applied as it is, and its pods as processes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use k8s_openapi::serde_json::{Value, from_slice, json};

use crate::kubernetes::api_server::ApiServer;
use crate::kubernetes::pod::Account;
use crate::kubernetes::process::{free_port, until};

/// The namespace, and the name of all that is in it.
pub(crate) const NAME: &str = "pod-report";
const MANIFEST: &str = "examples/kubernetes/deployment.yaml";
/// A program that prints the documents of a YAML file as one of JSON.
const AS_JSON: &str = "import json, sys, yaml
print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";

/// The objects of the manifest.
pub(crate) struct Deployment {
    objects: Vec<Value>,
    account: Account,
    program: PathBuf,
}

/// A pod, and the process that is in it.
pub(crate) struct Pod {
    pub(crate) name: String,
    process: Child,
    probes: u16,
}

impl Deployment {
    /// Creates each object of the manifest.
    pub(crate) async fn apply(server: &ApiServer) -> Self {
        let objects = objects();
        for object in &objects {
            let (code, made) = server
                .send("POST", &path(object), Some(object.clone()))
                .await;
            assert_eq!(code, 201, "{made}");
            is_kept(object, &made);
        }
        Self {
            objects,
            account: Account::mounted(server, NAME, NAME).await,
            program: built("pod_report"),
        }
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    pub(crate) fn object(&self, kind: &str) -> &Value {
        let mut all = self.objects.iter();
        all.find(|object| object["kind"] == kind).unwrap()
    }

    /// A pod of the Deployment's template, once it is ready.
    pub(crate) async fn start(&self, server: &ApiServer, name: &str) -> Pod {
        let template = &self.object("Deployment")["spec"]["template"];
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]});
        pod["metadata"] = template["metadata"].clone();
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["namespace"] = NAME.into();
        let (code, made) = server.send("POST", &path(&pod), Some(pod)).await;
        assert_eq!(code, 201, "{made}");
        let probes = free_port();
        let process = (self.account.command(&self.program))
            .env("POD_NAME", name)
            .env("ADDRESS", format!("127.0.0.1:{probes}"))
            .spawn()
            .unwrap();
        let pod = Pod {
            name: name.to_owned(),
            process,
            probes,
        };
        until("the pod is ready", async || pod.is(200, "/readyz")).await;
        assert!(pod.is(200, "/healthz"));
        pod
    }
}

impl Pod {
    /// Whether a probe is answered with this code.
    pub(crate) fn is(&self, code: u16, path: &str) -> bool {
        self.probe(path).starts_with(&format!("HTTP/1.1 {code} "))
    }

    pub(crate) fn leads(&self) -> bool {
        self.probe("/readyz").ends_with("leads=true\n")
    }

    fn probe(&self, path: &str) -> String {
        let mut text = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.probes)) {
            let asked = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(asked.as_bytes());
            let _ = stream.read_to_string(&mut text);
        }
        text
    }

    /// Ends the process as the kubelet does at first.
    pub(crate) fn terminate(&self) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for its end, and deletes the pod.
    pub(crate) async fn ended(mut self, server: &ApiServer) -> ExitStatus {
        let process = std::cell::RefCell::new(&mut self.process);
        let ended = || process.borrow_mut().try_wait().unwrap();
        until("the process ends", async || ended().is_some()).await;
        let path = format!("/api/v1/namespaces/{NAME}/pods/{}", self.name);
        let (code, gone) = server
            .send("DELETE", &path, Some(json!({"gracePeriodSeconds": 0})))
            .await;
        assert_eq!(code, 200, "{gone}");
        let status = ended();
        status.unwrap()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program that is built beside this test program.
pub(crate) fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().and_then(Path::parent).unwrap().join(name);
    assert!(
        program.exists(),
        "{} is missing: cargo build -p leasehold-cli, and \
         CARGO_TARGET_DIR=target cargo build --manifest-path examples/kubernetes/Cargo.toml",
        program.display()
    );
    program
}

fn objects() -> Vec<Value> {
    let of_repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = Command::new(of_repository.join(".venv/bin/python"))
        .args(["-c", AS_JSON])
        .arg(of_repository.join(MANIFEST))
        .output()
        .expect(".venv/bin/python, which tests/run.sh makes");
    assert!(read.status.success(), "{read:?}");
    let mut objects: Vec<Value> = from_slice(&read.stdout).unwrap();
    for object in &mut objects {
        // The oldest server that has `policy/v1` is 1.21. Both have the fields that are used.
        if object["apiVersion"] == "policy/v1" {
            object["apiVersion"] = "policy/v1beta1".into();
        }
    }
    objects
}

/// Where an object is created.
fn path(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { "apis" } else { "api" };
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{kind}s"),
        None => format!("/{root}/{version}/{kind}s"),
    }
}

/// All that was sent is in what was made: the server drops a field that it does not know.
fn is_kept(sent: &Value, made: &Value) {
    match (sent, made) {
        (Value::Object(sent), Value::Object(made)) => {
            for (name, value) in sent {
                let kept = made.get(name).unwrap_or(&Value::Null);
                assert!(!kept.is_null(), "the server does not know the field {name}");
                is_kept(value, kept);
            }
        }
        (Value::Array(sent), Value::Array(made)) => {
            assert_eq!(sent.len(), made.len());
            sent.iter()
                .zip(made)
                .for_each(|(sent, made)| is_kept(sent, made));
        }
        _ => assert_eq!(sent, made),
    }
}
