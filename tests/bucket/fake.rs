//! A fake S3 that serves objects of one bucket, for faults that no real one makes at will. A test
//! of real servers is in `tests/bucket_server`.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use leasehold::bucket::{BucketOptions, BucketStore, ObjectService};
use leasehold::clock::Clock;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::canary::{self, CANARY};

/// The prefix of the locks.
pub(crate) const PREFIX: &str = "app/locks";

/// A server on the runtime of its test.
pub(crate) struct FakeS3 {
    state: Arc<Mutex<State>>,
    port: u16,
    delivered: Arc<Notify>,
}

/// What the next request gets instead of its answer.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// This code with this name, and perhaps when to come again. Nothing is done.
    Refuse(u16, &'static str, Option<u32>),
    /// It is executed, and the connection is closed.
    Swallow,
    /// It is executed, and this code is the answer.
    FailAfter(u16),
    /// It is executed once it is [delivered](FakeS3::deliver).
    Late,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, String>,
    /// For the next requests of this method.
    faults: VecDeque<(&'static str, Fault)>,
    requests: Vec<(String, String)>,
    ignores_create: bool,
    ignores_update: bool,
}

struct Request {
    method: String,
    name: String,
    query: String,
    if_match: Option<String>,
    if_none_match: bool,
    body: String,
}

impl FakeS3 {
    pub(crate) async fn start() -> Self {
        canary::watch();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<Mutex<State>>::default();
        let delivered = Arc::<Notify>::default();
        let shared = (Arc::clone(&state), Arc::clone(&delivered));
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, shared.0.clone(), shared.1.clone()));
            }
        });
        Self {
            state,
            port,
            delivered,
        }
    }

    /// A service that writes without these comparisons.
    pub(crate) async fn careless(ignores_create: bool, ignores_update: bool) -> Self {
        let server = Self::start().await;
        {
            let mut state = server.state.lock().unwrap();
            state.ignores_create = ignores_create;
            state.ignores_update = ignores_update;
        }
        server
    }

    pub(crate) fn options(&self) -> BucketOptions {
        let mut options = BucketOptions::new(ObjectService::S3, "shop");
        options.prefix = PREFIX.to_owned();
        options.endpoint = Some(format!("http://127.0.0.1:{}", self.port));
        (options.set("aws_access_key_id", "me"))
            .set("aws_secret_access_key", CANARY)
            .set("aws_session_token", CANARY)
    }

    pub(crate) async fn client(&self) -> BucketStore {
        let clock = Clock::system().unwrap();
        BucketStore::open(self.options(), clock).await.unwrap()
    }

    pub(crate) fn next(&self, method: &'static str, fault: Fault) {
        (self.state.lock().unwrap().faults).push_back((method, fault));
    }

    /// The late request arrives.
    pub(crate) fn deliver(&self) {
        self.delivered.notify_one();
    }

    /// How many requests of this method came for locks.
    pub(crate) fn requests(&self, method: &str) -> usize {
        let state = self.state.lock().unwrap();
        let of_locks = (state.requests.iter()).filter(|(of, name)| of == method && !is_probe(name));
        of_locks.count()
    }

    /// The object of a key under the prefix.
    pub(crate) fn object(&self, name: &str) -> Option<String> {
        let name = format!("{PREFIX}/{name}");
        self.state.lock().unwrap().objects.get(&name).cloned()
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        let name = format!("{PREFIX}/{name}");
        (self.state.lock().unwrap().objects).insert(name, text.to_owned());
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state.objects.keys().cloned().collect()
    }
}

fn is_probe(name: &str) -> bool {
    name.contains(",probe-")
}

async fn serve(connection: TcpStream, state: Arc<Mutex<State>>, delivered: Arc<Notify>) {
    let (read, mut write) = connection.into_split();
    let mut read = BufReader::new(read);
    while let Some(request) = read_request(&mut read).await {
        let fault = {
            let mut state = state.lock().unwrap();
            (state.requests).push((request.method.clone(), request.name.clone()));
            let is_next = (state.faults.front()).is_some_and(|(of, _)| *of == request.method);
            is_next.then(|| state.faults.pop_front().unwrap().1)
        };
        let answer = match &fault {
            // As real ones do, it repeats the token that it was sent.
            Some(Fault::Refuse(code, name, later)) => {
                let later = later.map_or_else(String::new, |s| format!("Retry-After: {s}\r\n"));
                let body = format!(
                    "<Error><Code>{name}</Code><Message>injected</Message><Token-0>{CANARY}</Token-0></Error>"
                );
                (*code, later, body)
            }
            Some(Fault::Late) => {
                delivered.notified().await;
                state.lock().unwrap().answer(&request)
            }
            _ => state.lock().unwrap().answer(&request),
        };
        let (code, head, body) = match fault {
            Some(Fault::Swallow) => return,
            Some(Fault::FailAfter(code)) => (code, String::new(), String::new()),
            _ => answer,
        };
        let length = body.len();
        let text = format!("HTTP/1.1 {code} X\r\n{head}Content-Length: {length}\r\n\r\n{body}");
        if write.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_request(read: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Request> {
    let mut line = String::new();
    let read_line = read.read_line(&mut line).await;
    read_line.ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let name = decoded(path.strip_prefix("/shop")?.trim_start_matches('/'));
    let query = decoded(query);
    let (mut length, mut if_match, mut if_none_match) = (0, None, false);
    loop {
        let mut header = String::new();
        read.read_line(&mut header).await.ok()?;
        let Some((name, value)) = header.trim().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "if-match" => if_match = Some(value.trim().to_owned()),
            "if-none-match" => if_none_match = true,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    read.read_exact(&mut body).await.ok()?;
    Some(Request {
        method,
        name,
        query,
        if_match,
        if_none_match,
        body: String::from_utf8(body).ok()?,
    })
}

/// Equal content has an equal ETag, as in S3.
fn e_tag(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

impl State {
    /// The code, lines of the head, and the body.
    fn answer(&mut self, request: &Request) -> (u16, String, String) {
        let found = self.objects.get(&request.name).cloned();
        let nothing = |code| (code, String::new(), String::new());
        match (request.method.as_str(), found) {
            ("GET", _) if request.name.is_empty() => {
                (200, String::new(), self.list(&request.query))
            }
            ("GET", Some(text)) => (200, head(&text), text),
            ("GET", None) => nothing(404),
            ("PUT", found) => {
                let is_there = found.is_some();
                if request.if_none_match && is_there && !self.ignores_create {
                    return nothing(412);
                }
                let compared = request.if_match.as_ref().filter(|_| !self.ignores_update);
                match (compared, found) {
                    (Some(_), None) => return nothing(404),
                    (Some(expected), Some(text)) if *expected != e_tag(&text) => {
                        return nothing(412);
                    }
                    _ => {}
                }
                let head = head(&request.body);
                (self.objects).insert(request.name.clone(), request.body.clone());
                (200, head, String::new())
            }
            ("DELETE", _) => {
                self.objects.remove(&request.name);
                nothing(204)
            }
            _ => nothing(400),
        }
    }

    fn list(&self, query: &str) -> String {
        let prefix = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("prefix="));
        let names = self.objects.iter();
        let names = names.filter(|(name, _)| name.starts_with(prefix.unwrap_or_default()));
        let contents: String = names
            .map(|(name, text)| {
                format!(
                    "<Contents><Key>{name}</Key><Size>{}</Size><ETag>{}</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>",
                    text.len(),
                    e_tag(text)
                )
            })
            .collect();
        format!("<ListBucketResult>{contents}</ListBucketResult>")
    }
}

fn head(text: &str) -> String {
    let e_tag = e_tag(text);
    format!("ETag: {e_tag}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n")
}
