//! [`Hand`]: the two scripts of our fair lock, acquire and release, sent by hand: what the protocol
//! costs without anything of ours.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::LockManager;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, Value};
use tokio::sync::oneshot;

use crate::raw;
use crate::server::RedisServer;

const LINE: &str = include_str!("../../src/redis/store/scripts/line.lua");
const ACQUIRE: &str = include_str!("../../src/redis/store/scripts/acquire.lua");
const RELEASE: &str = include_str!("../../src/redis/store/scripts/release.lua");
const MARKER: &str = "{leasehold}:marker";
const TOKEN: &str = "{leasehold}:token";
const KEY: &str = "by-hand";
const BESIDE: &str = "by-hand{by-hand}:";
/// In milliseconds.
const TTL: u32 = 10_000;
/// The last digits of an owner, which its process chooses.
const DIGITS: usize = 24;

/// Claims of this process that wait, by their owners.
type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

#[derive(Clone)]
pub(crate) struct Hand {
    connection: MultiplexedConnection,
    waiting: Waiting,
    /// What the server answered to whoever had it judged.
    mark: String,
    acquire: String,
    release: String,
    /// Alike for all owners of this process.
    process: String,
}

/// Lets a manager have the server judged, without which the scripts grant nothing.
pub(crate) fn prepare(server: &RedisServer) {
    crate::runtime().block_on(async {
        let locks = LockManager::connect(&server.url(""))
            .await
            .expect("a manager");
        let guard = locks.lock(KEY).acquire().await.expect("it is free");
        drop(guard.release().await);
        locks.shutdown().await;
    });
}

impl Hand {
    pub(crate) async fn connect(port: u16) -> Self {
        let mut connection = raw::connect(port).await;
        let mark = redis::cmd("GET")
            .arg(MARKER)
            .query_async(&mut connection)
            .await;
        let text = |script: &str| script.replace("--@line\n", LINE);
        let (acquire, release) = (
            raw::load(&mut connection, &text(ACQUIRE)).await,
            raw::load(&mut connection, &text(RELEASE)).await,
        );
        let process = format!("{:08x}", std::process::id());
        let waiting = Waiting::default();
        listen(port, &process, Arc::clone(&waiting)).await;
        Self {
            connection,
            waiting,
            mark: mark.expect("a manager had the server judged"),
            acquire,
            release,
            process,
        }
    }

    /// Returns with the lock, and the owner under which it is held.
    pub(crate) async fn enter(&self, number: u64) -> String {
        let owner = format!("{number:0DIGITS$x}{}", self.process);
        let (called, call) = oneshot::channel();
        self.waiting
            .lock()
            .expect("no panic")
            .insert(owner.clone(), called);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time");
        let mut acquire = redis::cmd("EVALSHA");
        acquire.arg(&self.acquire).arg(5).arg(KEY);
        acquire.arg(format!("{BESIDE}line")).arg(MARKER);
        acquire.arg(format!("{BESIDE}gone:{owner}")).arg(TOKEN);
        acquire.arg(claim(&owner)).arg(TTL).arg(&self.mark).arg(TTL);
        acquire.arg(now.as_millis().to_string());
        match self.ask(&acquire).await {
            Value::BulkString(words) if words.starts_with(b"granted") => {
                self.waiting.lock().expect("no panic").remove(&owner);
            }
            Value::BulkString(words) if words.starts_with(b"busy") => {
                call.await.expect("a message grants");
            }
            answer => panic!("{answer:?}"),
        }
        owner
    }

    pub(crate) async fn release(&self, owner: &str) {
        let mut release = redis::cmd("EVALSHA");
        release.arg(&self.release).arg(1).arg(KEY).arg(claim(owner));
        release
            .arg(&self.mark)
            .arg("0")
            .arg("0")
            .arg(MARKER)
            .arg(TOKEN);
        assert_eq!(self.ask(&release).await, Value::Int(1));
    }

    async fn ask(&self, command: &Cmd) -> Value {
        let mut connection = self.connection.clone();
        command
            .query_async(&mut connection)
            .await
            .expect("an answer")
    }
}

fn claim(owner: &str) -> String {
    format!("{owner} x a-host:4242")
}

/// Wakes each claim whose message arrives, over a connection of its own.
async fn listen(port: u16, process: &str, waiting: Waiting) {
    let hears = move |push: PushInfo| {
        if push.kind == PushKind::Message
            && let [_, Value::BulkString(text)] = push.data.as_slice()
            && let Some(owner) = text.get(..32).and_then(|owner| str::from_utf8(owner).ok())
            && let Some(called) = waiting.lock().expect("no panic").remove(owner)
        {
            // Nobody drops a claim that waits.
            let _ = called.send(());
        }
        Ok::<(), redis::RedisError>(())
    };
    let mut connection = raw::connect_to_listen(port, hears).await;
    let channel = format!("{{leasehold}}:wake:{process}");
    connection.subscribe(channel).await.expect("a subscription");
    // It hears as long as this process lives.
    std::mem::forget(connection);
}
