//! [`Hand`]: the two scripts of our fair lock, enter and release, sent by hand: what the protocol costs without anything of ours.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::LockManager;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, Value};
use tokio::sync::oneshot;

use crate::raw;
use crate::server::RedisServer;

const TOKENS: &str = include_str!("../../src/store/redis/scripts/tokens.lua");
const QUEUE: &str = include_str!("../../src/store/redis/scripts/queue.lua");
const ENTER: &str = include_str!("../../src/store/redis/scripts/enter.lua");
const RELEASE: &str = include_str!("../../src/store/redis/scripts/release.lua");
const HAND_ON: &str = include_str!("../../src/store/redis/scripts/hand_on.lua");
const COUNTERS: &str = "{leasehold}:tokens";
const KEY: &str = "by-hand";
const BESIDE: &str = "{by-hand}:";
const CHANNEL: &str = "{by-hand}:free";
/// In milliseconds.
const TTL: u32 = 10_000;
const HANDOVER: u32 = 1_000;
/// The last digits of an owner, which its process chooses.
const MARK: usize = 24;

/// Claims of this process that wait, by their owners.
type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

#[derive(Clone)]
pub(crate) struct Hand {
    connection: MultiplexedConnection,
    waiting: Waiting,
    counter: String,
    enter: String,
    release: String,
    /// Alike for all owners of this process.
    mark: String,
}

/// Lets a manager arm the counter of tokens that the scripts need.
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
        let fields = redis::cmd("HKEYS")
            .arg(COUNTERS)
            .query_async(&mut connection)
            .await;
        let fields: Vec<String> = fields.expect("fields");
        let counter = fields.into_iter().find(|field| field.contains(':'));
        let counter = counter.expect("a counter that a manager armed");
        let incarnation = counter.split(':').next().unwrap_or_default();
        let enter = format!("local INCARNATION = '{incarnation}'\n{TOKENS}{QUEUE}{ENTER}");
        let release = format!(
            "local INCARNATION, is_other = '{incarnation}', false\n{RELEASE}{TOKENS}{QUEUE}{HAND_ON}"
        );
        let (enter, release) = (
            raw::load(&mut connection, &enter).await,
            raw::load(&mut connection, &release).await,
        );
        let mark = format!("{:08x}", std::process::id());
        let waiting = Waiting::default();
        listen(port, &mark, Arc::clone(&waiting)).await;
        Self {
            connection,
            waiting,
            counter,
            enter,
            release,
            mark,
        }
    }

    /// Returns with the lock, and the owner under which it is held.
    pub(crate) async fn enter(&self, number: u64) -> String {
        let owner = format!("{number:0MARK$x}{}", self.mark);
        let (called, call) = oneshot::channel();
        self.waiting
            .lock()
            .expect("no panic")
            .insert(owner.clone(), called);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time");
        let mut enter = redis::cmd("EVALSHA");
        enter.arg(&self.enter).arg(9).arg(KEY).arg(COUNTERS);
        for what in [
            "queue", "alone", "places", "readers", "grants", "gap", "offers",
        ] {
            enter.arg(format!("{BESIDE}{what}"));
        }
        enter.arg(&owner).arg(TTL);
        enter.arg(format!("x a-host:4242 @{}", now.as_millis()));
        enter
            .arg(&self.counter)
            .arg(TTL)
            .arg(CHANNEL)
            .arg(HANDOVER)
            .arg(1);
        match self.ask(&enter).await {
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
        release.arg(&self.release).arg(1).arg(KEY).arg(owner);
        release.arg(CHANNEL).arg(BESIDE).arg(HANDOVER);
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

/// Wakes each claim whose message arrives, over a connection of its own.
async fn listen(port: u16, mark: &str, waiting: Waiting) {
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
    let channel = format!("{CHANNEL}:{mark}");
    connection.subscribe(channel).await.expect("a subscription");
    // It hears as long as this process lives.
    std::mem::forget(connection);
}
