//! Data in the ensemble under a fence: whose time is over is refused, in both modes.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use crate::proxy::Proxy;
use crate::zookeeper::{
    PATIENCE, Server, again, children, claim, granted, open, options, raw, signal, simple_store,
    store, until, wait_for,
};
use leasehold::clock::Clock;
use leasehold::fence::{AlreadyApplied, Fence};
use leasehold::run::{CommitProof, EffectError};
use leasehold::store::{Released, Store};
use leasehold::testing::TestHold;
use leasehold::zookeeper::{DriverKind, ZkBatch, ZkFence, ZooKeeperMode, ZooKeeperStore};
use leasehold::{ErrorKind, FencingToken, LockManager, RunError, Settings};
use zookeeper_client::{Acls, Client, CreateMode};

pub(crate) async fn data(client: &Client, path: &str) -> String {
    String::from_utf8(client.get_data(path).await.unwrap().0).unwrap()
}

pub(crate) async fn with_data(server: &Server, path: &str) -> Client {
    let client = raw(server).await;
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.mkdir(path, &persistent).await.unwrap();
    client
}

#[tokio::test]
async fn a_batch_is_committed_under_the_fence_as_a_whole() {
    let server = Server::shared();
    let client = with_data(&server, "/fence-data/a").await;
    let store = store(&server, "/fence").await;
    let fence = ZkFence::new(&store);
    let locks = LockManager::new(store).unwrap();
    let guard = locks
        .lock("k")
        .fence(fence.clone())
        .acquire()
        .await
        .unwrap();
    assert_eq!(
        data(&client, "/fence/k/~fence").await,
        guard.token().to_string()
    );
    let commit = fence.clone();
    let done = guard
        .executor()
        .guarded_async(async |tx| {
            let fence = commit.clone();
            let batch = ZkBatch::new()
                .set("/fence-data/a", "90")
                .create("/fence-data/b", "10");
            tx.commit_with(move |permit| fence.apply(permit, batch));
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(done.proof, CommitProof::Fenced);
    assert_eq!(data(&client, "/fence-data/a").await, "90");
    assert_eq!(data(&client, "/fence-data/b").await, "10");

    // One change of a batch is refused, and so is the whole.
    let outcome = guard
        .executor()
        .guarded_async(async |tx| {
            let fence = commit.clone();
            let batch = ZkBatch::new()
                .set("/fence-data/a", "80")
                .create("/fence-data/b", "20");
            tx.commit_with(move |permit| fence.apply(permit, batch));
            Ok(())
        })
        .await;
    assert!(
        matches!(outcome, Err(RunError::RolledBack { .. })),
        "{outcome:?}"
    );
    assert_eq!(data(&client, "/fence-data/a").await, "90");
}

/// A fence that is lowered lets a former holder in, and a name that is deleted makes an applied
/// commit void.
#[tokio::test]
async fn a_batch_that_names_a_node_of_the_fence_or_of_the_hold_is_refused() {
    let server = Server::shared();
    let client = with_data(&server, "/own-fence-data").await;
    let store = store(&server, "/own-fence").await;
    let fence = ZkFence::new(&store);
    let mine = claim("k");
    let held = granted(&store, &mine).await;
    fence.raise(&mine.key, held.token).await.unwrap();
    let children = client.list_children("/own-fence/k").await.unwrap();
    let hold = children.iter().find(|name| *name != "~fence").unwrap();
    let change = || ZkBatch::new().set("/own-fence-data", "changed");
    for batch in [
        change().set("/own-fence/k/~fence", "1"),
        change().delete("/own-fence/k/~fence"),
        change().create("/own-fence/k/~fence/name", "applied"),
        change().delete(format!("/own-fence/k/{hold}")),
    ] {
        let refused = fence.write(&mine.key, held.token, &batch).await;
        let Err(EffectError::NotApplied(why)) = refused else {
            panic!("{refused:?}");
        };
        assert!(why.to_string().contains("number 1"), "{why}");
    }
    let beside = ZkBatch::new().create("/own-fence/k/~fences", "mine");
    fence.write(&mine.key, held.token, &beside).await.unwrap();
    let record = data(&client, "/own-fence/k/~fence").await;
    assert_eq!(record, held.token.to_string());
    assert_eq!(data(&client, "/own-fence-data").await, "");
}

async fn a_zombie_is_fenced(mode: ZooKeeperMode, chroot: &str) {
    let server = Server::shared();
    let client = with_data(&server, &format!("{chroot}-data")).await;
    let path = format!("{chroot}-data");
    let proxy = Proxy::to(server.port);
    let open_at = |port: u16, session: u64| {
        let mut options = options(&format!("127.0.0.1:{port}"), chroot);
        options.session_timeout = Duration::from_secs(session);
        options.mode = mode;
        open(options)
    };
    let (ours, theirs): (ZooKeeperStore, ZooKeeperStore) =
        (open_at(proxy.port, 2).await, open_at(server.port, 10).await);
    let (our_fence, their_fence) = (ZkFence::new(&ours), ZkFence::new(&theirs));
    let mine = claim("k");
    let old = granted(&ours, &mine).await;
    our_fence.raise(&mine.key, old.token).await.unwrap();
    let write = ZkBatch::new().set(path.clone(), "first");
    assert!(our_fence.write(&mine.key, old.token, &write).await.is_ok());

    proxy.stall();
    let next = claim("k");
    let new = wait_for(&theirs, &next).await;
    their_fence.raise(&next.key, new.token).await.unwrap();
    proxy.resume();
    proxy.reset();

    // Before the new holder's first write.
    let zombie = our_fence
        .write(
            &mine.key,
            old.token,
            &ZkBatch::new().set(path.clone(), "zombie"),
        )
        .await;
    assert!(
        matches!(zombie, Err(EffectError::Fenced { seen: Some(seen) }) if seen == new.token),
        "{zombie:?}"
    );
    let again = our_fence.raise(&mine.key, old.token).await.unwrap_err();
    assert!(matches!(again.kind(), ErrorKind::Lost(_)), "{again}");
    assert_eq!(data(&client, &path).await, "first");
    let write = ZkBatch::new().set(path.clone(), "second");
    assert!(
        their_fence
            .write(&next.key, new.token, &write)
            .await
            .is_ok()
    );
    assert_eq!(data(&client, &path).await, "second");
}

#[tokio::test]
async fn a_zombie_of_the_queue_is_fenced() {
    a_zombie_is_fenced(ZooKeeperMode::Queue, "/zombie").await;
}

#[tokio::test]
async fn a_zombie_of_a_simple_lock_is_fenced_although_the_path_is_used_again() {
    a_zombie_is_fenced(ZooKeeperMode::Simple, "/zombie-simple").await;
}

const CHILD: &str = "LEASEHOLD_TEST_ZOOKEEPER_ZOMBIE";
/// Four ticks: the shortest.
const SHORT: Duration = Duration::from_secs(2);

async fn manager(address: &str, mode: ZooKeeperMode, chroot: &str) -> (LockManager, ZkFence) {
    let mut options = options(address, chroot);
    options.session_timeout = SHORT;
    options.mode = mode;
    let store = open(options).await;
    let fence = ZkFence::new(&store);
    (LockManager::new(store).unwrap(), fence)
}

/// The client that the test stops in the middle of a commit, in a process of its own: its lease was
/// found live, and its batch is not yet on its way.
async fn commit_on_request(address: &str, mode: ZooKeeperMode, chroot: &str, keys: &[&str]) {
    let (locks, fence) = manager(address, mode, chroot).await;
    let lock = locks.lock_all(keys.iter().copied()).fence(fence.clone());
    let guard = lock.acquire().await.unwrap();
    let batch = ZkBatch::new().set(format!("{chroot}-data"), "zombie");
    let executor = guard.executor();
    let run = executor.guarded_async(async |tx| {
        tx.commit_with(move |permit| {
            println!("committing");
            std::io::stdin().read_line(&mut String::new()).unwrap();
            fence.apply(permit, batch)
        });
        Ok(())
    });
    match run.await {
        Ok(done) => println!("outcome committed {:?}", done.proof),
        Err(RunError::Fenced { seen, .. }) => println!("outcome fenced {}", seen.unwrap()),
        Err(other) => println!("outcome {other:?}"),
    }
}

async fn a_stopped_commit_is_fenced(test: &str, mode: ZooKeeperMode, chroot: &str, keys: &[&str]) {
    if let Ok(address) = std::env::var(CHILD) {
        return commit_on_request(&address, mode, chroot, keys).await;
    }
    let server = Server::shared();
    let path = format!("{chroot}-data");
    let client = with_data(&server, &path).await;
    let mut child = again(module_path!(), test, CHILD, &server.address())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert!(lines.any(|line| line.contains("committing")));
    signal(child.id(), "STOP");
    let (locks, fence) = manager(&server.address(), mode, chroot).await;
    let taken = keys[keys.len() - 1];
    let lock = locks.lock(taken).fence(fence.clone());
    let ours_now = lock.acquire().await.unwrap();
    // Under one lock the fence is raised, and nothing is written yet.
    let mut expected = "";
    if keys.len() > 1 {
        expected = "ours";
        let batch = ZkBatch::new().set(path.clone(), expected);
        let written = fence.write(ours_now.key(), ours_now.token(), &batch).await;
        written.unwrap();
    }
    // The child finds this line when it continues.
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    signal(child.id(), "CONT");
    let outcome = lines.find_map(|line| line.strip_prefix("outcome ").map(str::to_owned));
    assert!(child.wait().unwrap().success());
    assert_eq!(outcome, Some(format!("fenced {}", ours_now.token())));
    assert_eq!(data(&client, &path).await, expected);
    assert!(ours_now.lease().is_live());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_stopped_past_its_session_in_a_fenced_commit_is_fenced() {
    let own_name = "a_client_stopped_past_its_session_in_a_fenced_commit_is_fenced";
    a_stopped_commit_is_fenced(own_name, ZooKeeperMode::Queue, "/stopped", &["k"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_the_simple_lock_stopped_in_a_fenced_commit_is_fenced() {
    let own_name = "a_client_of_the_simple_lock_stopped_in_a_fenced_commit_is_fenced";
    a_stopped_commit_is_fenced(own_name, ZooKeeperMode::Simple, "/stopped-simple", &["k"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_stopped_under_two_locks_is_fenced_by_the_next_holder_of_one() {
    let own_name = "a_client_stopped_under_two_locks_is_fenced_by_the_next_holder_of_one";
    let keys = ["row/a", "row/b"];
    a_stopped_commit_is_fenced(own_name, ZooKeeperMode::Queue, "/stopped-two", &keys).await;
}

/// The lease is live here, so only the comparison of both tokens refuses the batch.
#[tokio::test]
async fn a_live_run_under_two_locks_is_fenced_by_a_newer_token_of_either() {
    let server = Server::shared();
    let client = with_data(&server, "/two-live-data").await;
    let store = store(&server, "/two-live").await;
    let fence = ZkFence::new(&store);
    let locks = LockManager::new(store).unwrap();
    for (a, b) in [("a", "b"), ("d", "c")] {
        let all = locks.lock_all([a, b]).fence(fence.clone());
        let guard = all.acquire().await.unwrap();
        let executor = guard.executor();
        let commit = || {
            let fence = fence.clone();
            executor.guarded_async(async move |tx| {
                let batch = ZkBatch::new().set("/two-live-data", "written");
                tx.commit_with(move |permit| fence.apply(permit, batch));
                Ok(())
            })
        };
        assert_eq!(commit().await.unwrap().proof, CommitProof::Fenced);
        client.set_data("/two-live-data", b"", None).await.unwrap();
        let newer = guard.token(b).unwrap().number() + 1;
        let newer = leasehold::FencingToken::new(newer).unwrap();
        // As the next holder of one of the two does.
        let key: leasehold::Key = b.parse().unwrap();
        fence.raise(&key, newer).await.unwrap();
        let outcome = commit().await;
        assert!(
            matches!(outcome, Err(RunError::Fenced { .. })),
            "{outcome:?}"
        );
        assert_eq!(data(&client, "/two-live-data").await, "");
        assert!(guard.remaining() > Duration::ZERO);
    }
}

#[tokio::test]
async fn a_hold_whose_node_is_gone_is_refused_before_anybody_raised_the_fence() {
    let server = Server::shared();
    let client = with_data(&server, "/gone-data").await;
    for store in [
        store(&server, "/gone").await,
        simple_store(&server, "/gone-simple").await,
    ] {
        let fence = ZkFence::new(&store);
        let mine = claim("k");
        let grant = granted(&store, &mine).await;
        fence.raise(&mine.key, grant.token).await.unwrap();
        assert!(matches!(store.release(&grant).await, Released::Released));
        let late = fence
            .write(
                &mine.key,
                grant.token,
                &ZkBatch::new().set("/gone-data", "late"),
            )
            .await;
        assert!(matches!(late, Err(EffectError::Fenced { .. })), "{late:?}");
    }
    assert_eq!(data(&client, "/gone-data").await, "");
}

#[tokio::test]
async fn the_second_driver_refuses_to_write_under_a_fence() {
    let server = Server::shared();
    let mut options = options(&server.address(), "/fence-boxed");
    options.driver = DriverKind::Async;
    let store = open(options).await;
    let mine = claim("k");
    let grant = granted(&store, &mine).await;
    let error = ZkFence::new(&store)
        .raise(&mine.key, grant.token)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_fence_with_a_session_of_its_own_shuts_out_who_is_older() {
    let server = Server::shared();
    let _client = with_data(&server, "/apart-data").await;
    let url = format!(
        "zookeeper://{}/apart?session_timeout=10s&tick_time=500ms",
        server.address()
    );
    let ours = ZkFence::connect(&url).await.unwrap();
    let theirs = ZkFence::connect(&url).await.unwrap();
    let locks = LockManager::connect(&url).await.unwrap();
    let write = |data: &str| ZkBatch::new().set("/apart-data", data);

    let first = locks.lock("k").fence(ours.clone()).acquire().await.unwrap();
    let (key, old) = (first.key().clone(), first.token());
    ours.write(&key, old, &write("first")).await.unwrap();
    assert!(matches!(first.release().await, Ok(Released::Released)));

    let second = locks
        .lock("k")
        .fence(theirs.clone())
        .acquire()
        .await
        .unwrap();
    let zombie = ours.write(&key, old, &write("zombie")).await;
    assert!(
        matches!(zombie, Err(EffectError::Fenced { seen: Some(seen) }) if seen == second.token()),
        "{zombie:?}"
    );
    let stands = theirs.read("/apart-data").await.unwrap();
    assert_eq!(stands.as_deref(), Some(&b"first"[..]));
    assert_eq!(theirs.read("/apart-none").await.unwrap(), None);
}

/// Transactions of one ensemble are fewer than the microseconds by which other stores count.
#[tokio::test]
async fn a_lock_that_was_moved_to_a_store_that_counts_otherwise_is_told_what_moves_its_fence() {
    const THEIRS: u64 = 1 << 50;
    let server = Server::shared();
    let client = with_data(&server, "/moved-data").await;
    let store = store(&server, "/moved").await;
    let commit = async |fence: &ZkFence, number: u64| {
        let (clock, token) = (Clock::system().unwrap(), FencingToken::new(number).unwrap());
        let key = "a/b".parse().unwrap();
        let hold = TestHold::new(clock, &Settings::default(), key, token, PATIENCE);
        let executor = hold.executor();
        let run = executor.guarded_async(async |tx| {
            let fence = fence.clone();
            let batch = ZkBatch::new().set("/moved-data", number.to_string());
            tx.commit_with(move |permit| fence.apply(permit, batch));
            Ok(())
        });
        run.await.map(|done| done.proof)
    };
    commit(&ZkFence::new(&store), THEIRS).await.unwrap();
    assert_eq!(data(&client, "/moved-data").await, THEIRS.to_string());

    // Another process.
    let fence = ZkFence::new(&store);
    let (key, token) = ("a/b".parse().unwrap(), FencingToken::new(2).unwrap());
    let refused = fence.raise(&key, token).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(!refused.is_retryable());
    let text = refused.to_string();
    let (_, forget) = text.split_once("forget the key: ").unwrap();
    server.cli(forget);

    fence.raise(&key, token).await.unwrap();
    let proof = commit(&fence, 2).await.unwrap();
    assert_eq!(proof, CommitProof::Fenced);
    let zombie = commit(&ZkFence::new(&store), 1).await;
    assert!(matches!(zombie, Err(RunError::Fenced { .. })), "{zombie:?}");
    assert_eq!(data(&client, "/moved-data").await, "2");
}

#[tokio::test]
async fn what_a_batch_does_once_is_done_once_for_as_long_as_its_name_is_kept() {
    const LONG: Duration = Duration::from_secs(3_600);
    const SHORT: Duration = Duration::from_millis(1);
    let server = Server::shared();
    let client = with_data(&server, "/once-data").await;
    let store = store(&server, "/once").await;
    let (mine, fence) = (claim("k"), ZkFence::new(&store));
    let held = granted(&store, &mine).await;
    let write = async |fence: &ZkFence, name: &str, keep: Duration, data: &str| {
        let batch = ZkBatch::new().once(name, keep).set("/once-data", data);
        fence.write(&mine.key, held.token, &batch).await.map(drop)
    };
    let is_done = |written: Result<(), EffectError>| match written {
        Err(EffectError::NotApplied(why)) => why.is::<AlreadyApplied>(),
        other => panic!("{other:?}"),
    };
    let name = "report/2026-11-28T03:00 ü";
    write(&fence, name, LONG, "first").await.unwrap();
    for fence in [&fence, &ZkFence::new(&store)] {
        let again = write(fence, name, LONG, "again").await;
        assert!(is_done(again));
    }
    assert_eq!(data(&client, "/once-data").await, "first");
    // With a change that is refused the name is not claimed.
    let batch = ZkBatch::new().once("other", LONG).create("/once-data", "");
    let refused = fence.write(&mine.key, held.token, &batch).await;
    assert!(!is_done(refused.map(drop)));
    write(&fence, "other", LONG, "second").await.unwrap();
    assert!(is_done(write(&fence, "other", LONG, "again").await));
    let empty = write(&fence, "", LONG, "again").await;
    assert!(!is_done(empty));

    // A name that is over is free again.
    write(&fence, "short", SHORT, "third").await.unwrap();
    until("it is over", async || {
        write(&fence, "short", LONG, "fourth").await.is_ok()
    })
    .await;
    assert!(is_done(write(&fence, "short", LONG, "again").await));
    assert_eq!(data(&client, "/once-data").await, "fourth");

    // And deleted by the next that uses the fence.
    write(&fence, "swept", SHORT, "fifth").await.unwrap();
    let names = async || children(&client, "/once/k/~fence").await.len();
    assert_eq!(names().await, 4);
    until("it is deleted", async || {
        let raised = ZkFence::new(&store).raise(&mine.key, held.token).await;
        raised.unwrap();
        names().await == 3
    })
    .await;
}
