//! A fake API server that serves Leases only, for tests on every machine. A test of its own holds
//! it against a real one.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::serde_json::{self, Value, json};
use leasehold::clock::Clock;
use leasehold::store::OwnerToken;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

use super::kubeconfig;

/// A server on the runtime of its test.
pub(crate) struct FakeApiServer {
    state: Arc<Mutex<State>>,
    folder: PathBuf,
}

/// What the next request gets instead of its answer.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// This code, and perhaps when to come again.
    Refuse(u16, Option<u32>),
    /// It is executed, and the connection is closed.
    Swallow,
    /// It is not executed, and has no answer.
    Silence,
    /// Of an update: a balancer sends it twice, and only the second copy is answered. In between
    /// somebody else sets these annotations, in which `*` is what was there.
    Repeat(Value),
    /// Of an update: a webhook takes the annotations away.
    Strip,
}

struct State {
    leases: BTreeMap<String, Value>,
    version: u64,
    events: broadcast::Sender<(String, Value)>,
    /// For the next requests of this verb.
    faults: VecDeque<(&'static str, Fault)>,
    /// The verbs and names of all requests.
    requests: Vec<(&'static str, String)>,
    /// The only token that is accepted.
    token: Option<String>,
    /// How long a new connection takes to serve.
    delay: Duration,
}

struct Request {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    token: String,
    body: Value,
}

impl FakeApiServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            leases: BTreeMap::new(),
            version: 100,
            events: broadcast::channel(1_000).0,
            faults: VecDeque::new(),
            requests: Vec::new(),
            token: None,
            delay: Duration::ZERO,
        }));
        let unique = OwnerToken::generate().unwrap().expose();
        let folder = std::env::temp_dir().join(format!("leasehold-fake-k8s-{unique}"));
        std::fs::create_dir_all(&folder).unwrap();
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, Arc::clone(&shared)));
            }
        });
        kubeconfig::write(&folder, &format!("http://{address}"), None, "token: any");
        Self { state, folder }
    }

    pub(crate) fn url(&self) -> String {
        kubeconfig::url(&self.folder, "shop")
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn next(&self, verb: &'static str, fault: Fault) {
        self.state.lock().unwrap().faults.push_back((verb, fault));
    }

    /// How many requests of this verb came.
    pub(crate) fn requests(&self, verb: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.requests.iter().filter(|(of, _)| *of == verb).count()
    }

    /// Whether no request ever came.
    pub(crate) fn is_untouched(&self) -> bool {
        self.state.lock().unwrap().requests.is_empty()
    }

    /// From now on no other token is accepted.
    pub(crate) fn accept_only(&self, token: &str) {
        self.state.lock().unwrap().token = Some(token.to_owned());
    }

    /// From now on a new connection takes so long to serve.
    pub(crate) fn delay_connections(&self, delay: Duration) {
        self.state.lock().unwrap().delay = delay;
    }

    pub(crate) fn lease(&self, name: &str) -> Option<Value> {
        self.state.lock().unwrap().leases.get(name).cloned()
    }

    /// Every watch ends with the error that the server has forgotten its version.
    pub(crate) fn forget_versions(&self) {
        let gone =
            json!({"type": "ERROR", "object": failure(410, "Expired", "too old resource version")});
        let _ = self
            .state
            .lock()
            .unwrap()
            .events
            .send((String::new(), gone));
    }
}

impl Drop for FakeApiServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn serve(connection: TcpStream, state: Arc<Mutex<State>>) {
    let (read, mut write) = connection.into_split();
    let mut read = BufReader::new(read);
    let delay = state.lock().unwrap().delay;
    // Real time, as that of a handshake.
    Clock::system().unwrap().sleep(delay).await;
    while let Some(request) = read_request(&mut read).await {
        let name = request
            .path
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        let is_one = !request.path.ends_with("/leases");
        let verb = match request.method.as_str() {
            "POST" => "create",
            "PUT" => "update",
            "DELETE" => "delete",
            _ if request.query.contains_key("watch") => "watch",
            _ if request.path == "/version" => "version",
            _ if is_one => "get",
            _ => "list",
        };
        let fault = {
            let mut state = state.lock().unwrap();
            state.requests.push((verb, name.clone()));
            let is_next = state.faults.front().is_some_and(|(of, _)| *of == verb);
            let fault = is_next.then(|| state.faults.pop_front().unwrap().1);
            let is_known = state
                .token
                .as_ref()
                .is_none_or(|only| *only == request.token);
            if is_known {
                fault
            } else {
                Some(Fault::Refuse(401, None))
            }
        };
        if verb == "watch" && fault.is_none() {
            watch(&mut write, &state, &request).await;
            return;
        }
        let (code, body, retry_after) = match &fault {
            Some(Fault::Refuse(code, retry_after)) => {
                let mut body = failure(*code, "", "injected");
                if let Some(seconds) = retry_after {
                    body["details"] = json!({"retryAfterSeconds": seconds});
                }
                (*code, body, *retry_after)
            }
            Some(Fault::Silence) => return std::future::pending().await,
            Some(Fault::Repeat(others)) => {
                let mut state = state.lock().unwrap();
                state.answer(verb, &name, &request);
                state.annotate(&name, others);
                let (code, body) = state.answer(verb, &name, &request);
                (code, body, None)
            }
            Some(Fault::Strip) => {
                let mut request = request;
                request.body["metadata"]["annotations"] = json!({});
                let (code, body) = state.lock().unwrap().answer(verb, &name, &request);
                (code, body, None)
            }
            _ => {
                let (code, body) = state.lock().unwrap().answer(verb, &name, &request);
                (code, body, None)
            }
        };
        if matches!(fault, Some(Fault::Swallow)) {
            return;
        }
        let text = body.to_string();
        let later = retry_after.map_or_else(String::new, |s| format!("Retry-After: {s}\r\n"));
        let head = format!(
            "HTTP/1.1 {code} X\r\nContent-Type: application/json\r\n{later}Content-Length: {}\r\n\r\n",
            text.len()
        );
        if write.write_all((head + &text).as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_request(read: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Request> {
    let mut line = String::new();
    read.read_line(&mut line)
        .await
        .ok()
        .filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut token) = (0, String::new());
    loop {
        let mut header = String::new();
        read.read_line(&mut header).await.ok()?;
        let Some((name, value)) = header.trim().split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        } else if name.eq_ignore_ascii_case("authorization") {
            value
                .trim()
                .trim_start_matches("Bearer ")
                .clone_into(&mut token);
        }
    }
    let mut body = vec![0; length];
    read.read_exact(&mut body).await.ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = (query.split('&').filter(|pair| !pair.is_empty()))
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| {
            let value = percent_encoding::percent_decode_str(value).decode_utf8();
            (name.to_owned(), value.unwrap().into_owned())
        })
        .collect();
    Some(Request {
        method,
        path: path.to_owned(),
        query,
        token,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

async fn watch(write: &mut (impl AsyncWriteExt + Unpin), state: &Mutex<State>, request: &Request) {
    let name = request
        .query
        .get("fieldSelector")
        .map_or("", |of| of.trim_start_matches("metadata.name="));
    let (mut events, first) = {
        let state = state.lock().unwrap();
        let first = state
            .leases
            .get(name)
            .map(|lease| json!({"type": "ADDED", "object": lease}));
        (state.events.subscribe(), first)
    };
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut next = write.write_all(head.as_bytes()).await.map(|()| first);
    loop {
        match next {
            Ok(Some(event)) => {
                let line = format!("{event}\n");
                let chunk = format!("{:x}\r\n{line}\r\n", line.len());
                if write.write_all(chunk.as_bytes()).await.is_err() || event["type"] == "ERROR" {
                    return;
                }
            }
            Ok(None) => {}
            Err(_) => return,
        }
        next = match events.recv().await {
            Ok((of, event)) if of == name || of.is_empty() => Ok(Some(event)),
            Ok(_) => Ok(None),
            Err(_) => return,
        };
    }
}

impl State {
    fn answer(&mut self, verb: &str, name: &str, request: &Request) -> (u16, Value) {
        match verb {
            "version" => (200, json!({"major": "1", "minor": "20"})),
            "get" => match self.leases.get(name) {
                Some(lease) => (200, lease.clone()),
                None => missing(name),
            },
            "list" => self.list(request),
            "create" => self.create(request.body.clone()),
            "update" => {
                let mut body = request.body.clone();
                // A field that no kind has.
                let is_strict = request
                    .query
                    .get("fieldValidation")
                    .is_some_and(|of| of == "Strict");
                let unknown = body.as_object_mut().and_then(|body| body.remove("unknown"));
                if unknown.is_some() && is_strict {
                    return (400, failure(400, "BadRequest", "unknown field \"unknown\""));
                }
                self.update(name, body)
            }
            _ => match self.leases.remove(name) {
                Some(lease) => {
                    self.notify("DELETED", name, &lease);
                    (200, json!({"kind": "Status", "status": "Success"}))
                }
                None => missing(name),
            },
        }
    }

    fn annotate(&mut self, name: &str, annotations: &Value) {
        let mut lease = self.leases[name].clone();
        for (name, value) in annotations.as_object().unwrap() {
            let old = &mut lease["metadata"]["annotations"][name];
            let kept = old.as_str().unwrap_or_default();
            *old = value.as_str().unwrap().replace('*', kept).into();
        }
        self.store("MODIFIED", name, lease, 200);
    }

    fn create(&mut self, mut lease: Value) -> (u16, Value) {
        let name = lease["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if self.leases.contains_key(&name) {
            return (
                409,
                failure(
                    409,
                    "AlreadyExists",
                    &format!("leases {name:?} already exists"),
                ),
            );
        }
        if let Some(refused) = invalid(&lease) {
            return refused;
        }
        lease["metadata"]["uid"] = json!(OwnerToken::generate().unwrap().expose());
        self.store("ADDED", &name, lease, 201)
    }

    fn update(&mut self, name: &str, mut lease: Value) -> (u16, Value) {
        // A Lease is created by its first update, unless that names the one that it replaces.
        let Some(old) = self.leases.get(name) else {
            if lease["metadata"]["uid"].is_string() {
                return (409, failure(409, "Conflict", "the UID is another one"));
            }
            return self.create(lease);
        };
        let version = lease["metadata"]["resourceVersion"].clone();
        if version.as_str().unwrap_or_default().is_empty() {
            let text = "metadata.resourceVersion: must be specified for an update";
            return (422, failure(422, "Invalid", text));
        }
        if version != old["metadata"]["resourceVersion"] {
            return (
                409,
                failure(409, "Conflict", "the object has been modified"),
            );
        }
        if let Some(refused) = invalid(&lease) {
            return refused;
        }
        lease["metadata"]["uid"] = old["metadata"]["uid"].clone();
        if lease == *old {
            return (200, lease);
        }
        self.store("MODIFIED", name, lease, 200)
    }

    fn list(&self, request: &Request) -> (u16, Value) {
        let label = request.query.get("labelSelector");
        let after = request.query.get("continue");
        let limit = request
            .query
            .get("limit")
            .and_then(|limit| limit.parse().ok());
        let chosen = self.leases.iter().filter(|(name, lease)| {
            let has_label = label.is_none_or(|label| {
                (lease["metadata"]["labels"].as_object()).is_some_and(|all| all.contains_key(label))
            });
            has_label && after.is_none_or(|after| *name > after)
        });
        let all: Vec<_> = chosen.collect();
        let page = &all[..all.len().min(limit.unwrap_or(usize::MAX))];
        let next = if page.len() < all.len() {
            page[page.len() - 1].0.as_str()
        } else {
            ""
        };
        let items: Vec<_> = page.iter().map(|(_, lease)| (*lease).clone()).collect();
        let metadata = json!({"resourceVersion": self.version.to_string(), "continue": next});
        let kind = ("LeaseList", "coordination.k8s.io/v1");
        (
            200,
            json!({"kind": kind.0, "apiVersion": kind.1, "metadata": metadata, "items": items}),
        )
    }

    fn store(&mut self, event: &str, name: &str, mut lease: Value, code: u16) -> (u16, Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.leases.insert(name.to_owned(), lease.clone());
        self.notify(event, name, &lease);
        (code, lease)
    }

    fn notify(&self, event: &str, name: &str, lease: &Value) {
        let _ = self
            .events
            .send((name.to_owned(), json!({"type": event, "object": lease})));
    }
}

fn invalid(lease: &Value) -> Option<(u16, Value)> {
    let annotations = lease["metadata"]["annotations"].as_object();
    let sizes = (annotations.into_iter().flatten())
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len));
    if sizes.sum::<usize>() > 256 * 1024 {
        let text = "metadata.annotations: Too long: may not be more than 262144 bytes";
        return Some((422, failure(422, "Invalid", text)));
    }
    let seconds = lease["spec"]["leaseDurationSeconds"].as_i64();
    let text = "spec.leaseDurationSeconds: must be greater than 0";
    seconds
        .filter(|seconds| *seconds <= 0)
        .map(|_| (422, failure(422, "Invalid", text)))
}

fn missing(name: &str) -> (u16, Value) {
    (
        404,
        failure(404, "NotFound", &format!("leases {name:?} not found")),
    )
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message, "metadata": {}})
}
