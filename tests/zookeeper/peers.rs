//! Who excludes whom: Curator's and kazoo's own locks beside ours on one path. What this shows is
//! the table of `coming_from.md`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::interop::python;
use crate::peer::{Peer, source};
use crate::zookeeper::{
    Server, children, claim, claim_in, granted, is_busy, raw, rest, simple_store, store, wait_for,
};
use leasehold::store::{Acquired, LockMode, Released, Store};
use leasehold::zookeeper::ZooKeeperStore;

/// For how long a peer waits for a lock that it should not get.
const KEPT_OUT: u32 = 300;
const TURNS: usize = 25;
fn kazoo(server: &Server) -> Peer {
    let mut command = Command::new(python());
    command.arg(source("peer.py")).arg(server.address());
    Peer::start(command)
}

/// Our four ways to take a key.
#[derive(Clone, Copy, Debug)]
enum Ours {
    Lock,
    Write,
    Read,
    Simple,
}

const OURS: [Ours; 4] = [Ours::Lock, Ours::Write, Ours::Read, Ours::Simple];

struct Stores {
    queue: ZooKeeperStore,
    simple: ZooKeeperStore,
}

impl Stores {
    fn store(&self, ours: Ours) -> &ZooKeeperStore {
        match ours {
            Ours::Simple => &self.simple,
            _ => &self.queue,
        }
    }

    fn claim(ours: Ours, key: &str) -> leasehold::store::Claim {
        let mode = match ours {
            Ours::Lock | Ours::Simple => LockMode::Exclusive,
            Ours::Write => LockMode::Write,
            Ours::Read => LockMode::Read,
        };
        claim_in(mode, key)
    }

    /// Whether each keeps the other out: theirs while ours holds, ours while theirs holds.
    async fn keep_out(&self, ours: Ours, peer: &mut Peer, kind: &str) -> (bool, bool) {
        let store = self.store(ours);
        let key = format!("{kind}-{ours:?}").to_lowercase();
        let path = format!("/peers/{key}");

        let held = granted(store, &Self::claim(ours, &key)).await;
        let ours_keeps_them_out = !peer.takes(kind, &path, KEPT_OUT);
        assert!(matches!(store.release(&held).await, Released::Released));
        if !ours_keeps_them_out {
            peer.free();
        }

        assert!(peer.takes(kind, &path, 10_000), "{key} is free");
        let next = Self::claim(ours, &key);
        let theirs_keeps_us_out = match store.acquire(&next).await.unwrap() {
            Acquired::Granted(grant) => {
                let _ = store.release(&grant).await;
                false
            }
            _ => {
                store.withdraw(&next).await.unwrap();
                true
            }
        };
        peer.free();
        (ours_keeps_them_out, theirs_keeps_us_out)
    }
}

/// One word for both directions.
fn verdict(kept_out: (bool, bool)) -> &'static str {
    match kept_out {
        (true, true) => "yes",
        (false, false) => "no",
        (true, false) => "only ours",
        (false, true) => "only theirs",
    }
}

async fn table(peer: &mut Peer, stores: &Stores, kinds: &[&str]) -> Vec<String> {
    let mut rows = Vec::new();
    for kind in kinds {
        let mut row = vec![(*kind).to_owned()];
        for ours in OURS {
            row.push(verdict(stores.keep_out(ours, peer, kind).await).to_owned());
        }
        rows.push(row.join(" | "));
    }
    rows
}

async fn stores(server: &Server) -> Stores {
    Stores {
        queue: store(server, "/peers").await,
        simple: simple_store(server, "/peers").await,
    }
}

/// Columns: our `lock`, `read_write` writing, `read_write` reading, `mode=simple`.
#[tokio::test]
async fn curators_locks_and_ours_exclude_each_other_as_the_table_says() {
    let server = Server::shared();
    let kinds = [
        "mutex",
        "write",
        "read",
        "semaphore_mutex",
        "semaphore",
        "latch",
    ];
    let rows = table(&mut Peer::curator(&server), &stores(&server).await, &kinds).await;
    let expected = [
        "mutex | yes | only theirs | only theirs | only theirs",
        "write | only theirs | yes | yes | only theirs",
        "read | only theirs | yes | no | only theirs",
        "semaphore_mutex | no | no | no | no",
        "semaphore | no | no | no | no",
        "latch | only theirs | only theirs | only theirs | only theirs",
    ];
    assert_eq!(rows, expected, "{rows:#?}");
}

#[tokio::test]
async fn kazoos_locks_and_ours_exclude_each_other_as_the_table_says() {
    let server = Server::shared();
    let kinds = [
        "kazoo_lock",
        "kazoo_write",
        "kazoo_read",
        "kazoo_plain_lock",
        "kazoo_plain_write",
        "kazoo_plain_read",
        "kazoo_semaphore",
    ];
    let rows = table(&mut kazoo(&server), &stores(&server).await, &kinds).await;
    let expected = [
        "kazoo_lock | yes | yes | yes | only theirs",
        "kazoo_write | yes | yes | yes | only theirs",
        "kazoo_read | yes | yes | only theirs | only theirs",
        "kazoo_plain_lock | only theirs | only theirs | only theirs | only theirs",
        "kazoo_plain_write | only theirs | only theirs | only theirs | only theirs",
        "kazoo_plain_read | only theirs | only theirs | only theirs | only theirs",
        "kazoo_semaphore | only ours | only ours | only ours | only ours",
    ];
    assert_eq!(rows, expected, "{rows:#?}");
}

/// Turns of two peers and of ours, each of which adds one to a number in a file.
async fn turns_lose_no_update(mut peers: [Peer; 2], kind: &str, mode: LockMode, server: &Server) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{kind}-{}", server.port));
    fs::write(&file, "0").unwrap();
    let store = store(server, "/turns").await;
    for peer in &mut peers {
        peer.ask(&format!(
            "turns {kind} /turns/{kind} {TURNS} {}",
            file.display()
        ));
    }
    for _ in 0..TURNS {
        let grant = wait_for(&store, &claim_in(mode, kind)).await;
        let value: usize = fs::read_to_string(&file).unwrap().parse().unwrap();
        // Work that takes a while, in which another holder would read the same number.
        rest(Duration::from_millis(5)).await;
        fs::write(&file, (value + 1).to_string()).unwrap();
        assert!(matches!(store.release(&grant).await, Released::Released));
    }
    for peer in &mut peers {
        assert_eq!(peer.answer(), "done");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), (3 * TURNS).to_string());
    fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn no_update_is_lost_between_curators_locks_and_ours() {
    let server = Server::shared();
    for (kind, mode) in [("mutex", LockMode::Exclusive), ("write", LockMode::Write)] {
        let peers = [Peer::curator(&server), Peer::curator(&server)];
        turns_lose_no_update(peers, kind, mode, &server).await;
    }
}

#[tokio::test]
async fn no_update_is_lost_between_kazoos_locks_and_ours() {
    let server = Server::shared();
    for (kind, mode) in [
        ("kazoo_lock", LockMode::Exclusive),
        ("kazoo_write", LockMode::Write),
    ] {
        let peers = [kazoo(&server), kazoo(&server)];
        turns_lose_no_update(peers, kind, mode, &server).await;
    }
}

/// The node of a nested key is a child of the outer key's node, and Curator sorts every child by
/// its name.
#[tokio::test]
async fn a_nested_key_keeps_no_curator_lock_on_the_outer_path_out() {
    let server = Server::shared();
    let store = store(&server, "/nested").await;
    let mut peer = Peer::curator(&server);
    for (n, nested) in ["0", "00", "-1", ".hidden", "1", "9", "a", "A"]
        .iter()
        .enumerate()
    {
        let outer = format!("jobs{n}");
        let held = granted(&store, &claim(&format!("{outer}/{nested}"))).await;
        for kind in ["mutex", "write", "read"] {
            let path = format!("/nested/{outer}");
            assert!(peer.takes(kind, &path, 5_000), "{kind} beside {nested:?}");
            peer.free();
        }
        assert!(matches!(store.release(&held).await, Released::Released));
        assert!(!is_busy_now(&store, &format!("{outer}/{nested}")).await);
    }
    let listed = store.list("jobs0/").await.unwrap();
    assert!(listed.is_empty());
    let held = granted(&store, &claim("jobs0/0")).await;
    let listed = store.list("jobs0/").await.unwrap();
    assert_eq!(listed[0].key, held.claim.key);
    let names = children(&raw(&server).await, "/nested/jobs0").await;
    assert_eq!(names, ["~0"]);
}

async fn is_busy_now(store: &ZooKeeperStore, key: &str) -> bool {
    let next = claim(key);
    let busy = is_busy(store, &next).await;
    store.withdraw(&next).await.unwrap();
    busy
}

/// The classic recipe of Java articles sorts whole names. Ours begin with `_c_` and sort before
/// `lock-`, whatever their numbers are: each waits for the other, and nobody holds. A client that
/// sorts the last ten digits takes turns with us.
#[tokio::test]
async fn a_client_that_sorts_whole_names_and_ours_wait_for_each_other() {
    let server = Server::shared();
    let store = store(&server, "/sorted").await;
    let mut peer = Peer::curator(&server);
    for (kind, gets_in) in [("whole_names", false), ("numbers", true)] {
        let path = format!("/sorted/{kind}");
        let held = granted(&store, &claim(kind)).await;
        peer.ask(&format!("take {kind} {path} 3000"));
        // A session of its own for each look: this thread blocks while it waits for the peer.
        while children(&raw(&server).await, &path).await.len() < 2 {
            rest(Duration::from_millis(10)).await;
        }
        let behind = claim(kind);
        assert!(is_busy(&store, &behind).await, "{kind}: we hold");
        assert!(matches!(store.release(&held).await, Released::Released));
        assert!(is_busy(&store, &behind).await, "{kind}: it is before us");
        assert_eq!(peer.answer() == "taken", gets_in, "{kind}");
        if gets_in {
            assert!(is_busy(&store, &behind).await, "{kind}: it holds");
            peer.free();
        }
        // It has left the queue, after a wait in vain or a turn.
        let next = wait_for(&store, &behind).await;
        assert!(matches!(store.release(&next).await, Released::Released));
    }
}
