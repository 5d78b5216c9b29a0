//! How many requests a hand-off between two processes costs, and the end of many readers, counted on
//! the wire.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use leasehold::postgres::PostgresStore;
use leasehold::store::{LockMode, Released, Store};

use crate::claims::{grant, is_busy, queued, release};
use crate::store_world::{Locks, manager};

/// How often the scene is played: a machine that stands still adds a poll or a renewal.
const SCENES: usize = 20;

/// The statements that were sent through a proxy. Each is one round trip: the driver sends what
/// belongs to it together.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<String>>>);

impl Sent {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn count(&self, call: &str) -> usize {
        let sent = self.0.lock().unwrap();
        sent.iter().filter(|one| *one == call).count()
    }

    /// A proxy in front of a server, which counts. Its threads end with the test's process.
    fn before(&self, server: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let sent = self.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let sent = sent.clone();
                thread::spawn(move || {
                    // An error is the end of the connection.
                    let _ = sent.carry(client, server);
                });
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        });
        port
    }

    /// Message by message: a byte that says which, and the length of the rest. The first one has no
    /// such byte.
    fn carry(&self, mut client: TcpStream, mut server: TcpStream) -> io::Result<()> {
        let mut statement = String::new();
        let mut is_first = true;
        loop {
            let mut head = vec![0; if is_first { 4 } else { 5 }];
            client.read_exact(&mut head)?;
            let kind = if is_first { 0 } else { head[0] };
            let length = u32::from_be_bytes(head[head.len() - 4..].try_into().unwrap());
            let mut body = vec![0; usize::try_from(length).unwrap() - 4];
            client.read_exact(&mut body)?;
            // Noted before it can be answered.
            match kind {
                b'P' => statement = text(&body),
                b'Q' => self.0.lock().unwrap().push(text(&body)),
                b'S' => self.0.lock().unwrap().push(std::mem::take(&mut statement)),
                _ => {}
            }
            server.write_all(&head)?;
            server.write_all(&body)?;
            is_first = false;
        }
    }
}

/// What a statement calls.
fn text(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let called = text.split("leasehold.").nth(1).unwrap_or(&text);
    called.split('(').next().unwrap().to_owned()
}

/// The release, whose commit sends the message, and the attempt of the waiter that got it.
#[tokio::test]
async fn a_hand_off_between_processes_takes_two_requests() {
    let locks = Locks::open().await;
    let sent = Sent::default();
    let url = locks.url_at(sent.before(locks.server().port()), "");
    let patient = |settings: &mut leasehold::Settings| {
        settings.ttl = Duration::from_secs(30);
        settings.max_poll_interval = Duration::from_secs(60);
        settings.wait = Duration::from_secs(60);
    };
    let ours = manager(&url, patient).await;
    let theirs = manager(&url, patient).await;
    let mut seen = Vec::new();
    for _ in 0..SCENES {
        let held = ours.lock("a").acquire().await.unwrap();
        sent.take();
        let waiter = theirs.clone();
        let waiting = tokio::spawn(async move { waiter.lock("a").acquire().await.unwrap() });
        // It asks, and is sent a message as whoever has a place.
        crate::world::until("it waits", || sent.count("ask") >= 1).await;
        let asks = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%leasehold.ask(%' AND pid <> pg_backend_pid()";
        crate::world::until("it was answered", || locks.psql(asks) == "0").await;
        sent.take();
        let _ = held.release().await;
        let next = waiting.await.unwrap();
        let calls = sent.take();
        let _ = next.release().await;
        if calls == ["leave", "ask"] {
            return;
        }
        seen.push(calls);
    }
    panic!("{seen:?}");
}

/// The first is sent alone, and the others wait for it: a hundred go together.
#[tokio::test]
async fn readers_that_leave_a_key_at_once_are_sent_together() {
    let locks = Locks::empty();
    let sent = Sent::default();
    let port = sent.before(locks.server().port());
    let query = "create=auto&max_ttl=10m&timeout_millis=20000";
    let url = locks.url_at(port, query);
    let store = PostgresStore::connect(&url).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut reader = queued("a", LockMode::Read);
        // The last one is granted before the first one is over, on a busy machine too.
        reader.ttl = Duration::from_secs(600);
        held.push(grant(&store, &reader).await);
    }
    let next = queued("a", LockMode::Write);
    assert!(is_busy(&store, &next).await);
    sent.take();
    let releases = held.iter().map(|held| store.release(held));
    for released in futures_util::future::join_all(releases).await {
        assert!(matches!(released, Released::Released), "{released:?}");
    }
    assert_eq!(sent.count("leave"), 3, "{:?}", sent.take());
    assert!(matches!(
        store.release(&held[0]).await,
        Released::AlreadyGone
    ));
    let next = grant(&store, &next).await;
    release(&store, &next).await;
}

/// The one that sends the others along may not wait for the answer.
#[tokio::test]
async fn a_reader_that_gives_up_takes_no_answer_of_another_along() {
    let locks = Locks::empty();
    let store = locks.store("create=auto").await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(grant(&store, &queued("a", LockMode::Read)).await);
    }
    let mut ends: Vec<_> = (held.iter().map(|held| Box::pin(store.release(held)))).collect();
    for end in &mut ends {
        assert!(futures_util::poll!(end).is_pending());
    }
    // The first is answered, and the second sends itself and the third.
    assert!(matches!(ends.remove(0).await, Released::Released));
    assert!(futures_util::poll!(&mut ends[0]).is_pending());
    drop(ends.remove(0));
    assert!(matches!(ends.remove(0).await, Released::Released));
}
