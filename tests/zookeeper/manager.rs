//! The lock manager over a real ZooKeeper.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::proxy::Proxy;
use crate::zookeeper::{Server, again, open, options, pause, raw, rest, signal, until};
use futures_util::future::join_all;
use leasehold::store::{Label, Released, Revoke, Revoked};
use leasehold::{Abort, LockManager, RunError, Settings};

/// Four ticks: the shortest.
const SHORT: Duration = Duration::from_secs(2);

async fn manager(address: &str, chroot: &str) -> LockManager {
    let mut options = options(address, chroot);
    options.session_timeout = SHORT;
    LockManager::new(open(options).await).unwrap()
}

async fn children(server: &Server, path: &str) -> Vec<String> {
    raw(server).await.list_children(path).await.unwrap()
}

#[tokio::test]
async fn a_hold_outlives_many_session_time_outs() {
    let server = Server::shared();
    let locks = manager(&server.address(), "/manager-long").await;
    let guard = locks.lock("k").acquire().await.unwrap();
    for _ in 0..40 {
        assert!(guard.lease().is_live());
        // What is proven by a real server takes real time.
        rest(SHORT / 10).await;
    }
    assert!(matches!(guard.release().await, Ok(Released::Released)));
    assert_eq!(children(&server, "/manager-long/k").await, [""; 0]);
}

#[tokio::test]
async fn a_wait_in_vain_says_who_holds_and_how_long_ago_it_asked() {
    let server = Server::shared();
    let address = server.address();
    let store = open(options(&address, "/manager-busy")).await;
    let holder = LockManager::builder(store).label(Label::parse("web-3:4502").unwrap());
    let holder = holder.build().unwrap();
    let guard = holder.lock("k").acquire().await.unwrap();
    let store = open(options(&address, "/manager-busy")).await;
    let mut settings = Settings::default();
    settings.wait = Duration::ZERO;
    let locks = LockManager::builder(store).settings(settings);
    let locks = locks.build().unwrap();
    let error = locks.lock("k").acquire().await.unwrap_err();
    let text = error.to_string();
    let words = "key=k; held by web-3:4502, which asked for it ";
    let (_, ago) = text.split_once(words).unwrap_or_else(|| panic!("{text}"));
    let (seconds, rest) = ago.split_once(" s ago").unwrap();
    assert!(seconds.parse::<f64>().unwrap() < 600.0, "{text}");
    assert!(rest.starts_with("; try later"), "{text}");
    let _ = guard.release().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_three_managers_hold_one_at_a_time_and_all_get_their_turn() {
    let server = Server::shared();
    let address = server.address();
    let managers = join_all((0..3).map(|_| manager(&address, "/manager-turns"))).await;
    let is_held = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(AtomicUsize::new(0));
    let callers = managers
        .iter()
        .flat_map(|locks| (0..5).map(move |_| locks.lock("k")))
        .map(|lock| {
            let (is_held, turns) = (Arc::clone(&is_held), Arc::clone(&turns));
            tokio::spawn(async move {
                for _ in 0..4 {
                    let guard = lock.acquire().await.unwrap();
                    assert!(!is_held.swap(true, Ordering::SeqCst), "two held at once");
                    tokio::task::yield_now().await;
                    turns.fetch_add(1, Ordering::SeqCst);
                    assert!(is_held.swap(false, Ordering::SeqCst));
                    let _ = guard.release().await;
                }
            })
        });
    for caller in join_all(callers).await {
        caller.unwrap();
    }
    assert_eq!(turns.load(Ordering::SeqCst), 60);
    for locks in &managers {
        locks.settled().await;
    }
    assert_eq!(children(&server, "/manager-turns/k").await, [""; 0]);
}

/// Who is in: readers in steps of one, writers in steps of a thousand.
struct Room(AtomicUsize);

impl Room {
    const WRITER: usize = 1_000;

    fn enter(&self, step: usize) {
        let there = self.0.fetch_add(step, Ordering::SeqCst);
        let others = if step == Self::WRITER {
            there
        } else {
            there / Self::WRITER
        };
        assert_eq!(others, 0, "{step} came in while {there} were there");
    }

    fn leave(&self, step: usize) {
        self.0.fetch_sub(step, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_three_managers_hold_together_and_writers_alone_and_nobody_starves() {
    let server = Server::shared();
    let address = server.address();
    let managers = join_all((0..3).map(|_| manager(&address, "/manager-rw"))).await;
    let room = Arc::new(Room(AtomicUsize::new(0)));
    let tasks = (0..12).map(|n| {
        let (lock, room) = (managers[n % 3].read_write("k"), Arc::clone(&room));
        tokio::spawn(async move {
            for turn in 0..4 {
                if n % 4 == 0 {
                    let writer = lock.write().await.unwrap();
                    room.enter(Room::WRITER);
                    tokio::task::yield_now().await;
                    room.leave(Room::WRITER);
                    if turn % 2 == 0 {
                        let reader = writer.downgrade().await.unwrap();
                        room.enter(1);
                        tokio::task::yield_now().await;
                        room.leave(1);
                        let _ = reader.release().await;
                    } else {
                        let _ = writer.release().await;
                    }
                } else {
                    let reader = lock.read().await.unwrap();
                    room.enter(1);
                    tokio::task::yield_now().await;
                    room.leave(1);
                    let _ = reader.release().await;
                }
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    for locks in &managers {
        locks.settled().await;
    }
    assert_eq!(children(&server, "/manager-rw/k").await, [""; 0]);
}

#[tokio::test]
async fn a_lock_taken_by_force_is_entered_only_after_the_old_lease_ended() {
    let server = Server::shared();
    let (ours, theirs) = (
        manager(&server.address(), "/manager-force").await,
        manager(&server.address(), "/manager-force").await,
    );
    let guard = ours.lock("k").acquire().await.unwrap();
    let revoked = theirs.revoke("k", Revoke::AfterTtl).await.unwrap();
    assert!(matches!(revoked, Revoked::Revoked { free_in } if free_in == SHORT));
    let next = theirs.lock("k").acquire().await.unwrap();
    assert!(!guard.lease().is_live());
    assert!(next.token() > guard.token());
}

#[tokio::test]
async fn cancelled_and_timed_out_acquires_of_a_manager_leave_no_node() {
    let server = Server::shared();
    let (ours, theirs) = (
        manager(&server.address(), "/manager-cancel").await,
        manager(&server.address(), "/manager-cancel").await,
    );
    let guard = theirs.lock("k").acquire().await.unwrap();
    for n in 0..100_u32 {
        let lock = ours.lock("k");
        if n % 10 == 0 {
            let waited = lock.acquire_within(Duration::from_millis(5)).await;
            assert!(!matches!(waited, Ok(Some(_))));
            continue;
        }
        let mut acquire = Box::pin(lock.acquire());
        let mut polls = 0;
        std::future::poll_fn(|cx| {
            polls += 1;
            assert!(acquire.as_mut().poll(cx).is_pending());
            if polls > n % 6 {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }
    until("only the holder's node is left", || async {
        children(&server, "/manager-cancel/k").await.len() == 1
    })
    .await;
    assert!(matches!(guard.release().await, Ok(Released::Released)));
}

#[tokio::test]
async fn a_lease_is_over_before_another_manager_holds_and_the_manager_goes_on() {
    let server = Server::shared();
    let proxy = Proxy::to(server.port);
    let ours = manager(&format!("127.0.0.1:{}", proxy.port), "/manager-cut").await;
    let theirs = manager(&server.address(), "/manager-cut").await;
    let guard = ours.lock("k").acquire().await.unwrap();
    proxy.stall();
    let taken = theirs.lock("k").acquire().await.unwrap();
    assert!(!guard.lease().is_live());
    assert!(taken.token() > guard.token());
    assert!(taken.lease().is_live());
    proxy.resume();
    proxy.reset();
    let again = tokio::spawn(async move {
        let lock = ours.lock("k");
        (lock.acquire().await.unwrap(), ours)
    });
    rest(SHORT / 2).await;
    assert!(matches!(taken.release().await, Ok(Released::Released)));
    let (again, _ours) = again.await.unwrap();
    assert!(again.lease().is_live());
    assert!(!guard.lease().is_live());
}

const CHILD: &str = "LEASEHOLD_TEST_ZOOKEEPER_STOPPED";

/// The client that the test stops in the middle of a guarded run, in a process of its own.
async fn run_until_the_file_is_there(reported: &str) {
    let (address, go) = reported.split_once(' ').unwrap();
    let locks = manager(address, "/manager-stopped").await;
    let guard = locks.lock("k").acquire().await.unwrap();
    let is_undone = Arc::new(AtomicBool::new(false));
    let (go, undone) = (go.to_owned(), Arc::clone(&is_undone));
    let executor = guard.executor();
    let outcome = tokio::task::spawn_blocking(move || {
        executor.guarded(move |tx| {
            tx.undo(move || undone.store(true, Ordering::SeqCst));
            println!("inside the run");
            while !Path::new(&go).exists() {
                pause(Duration::from_millis(1));
            }
            Ok::<_, Abort>(())
        })
    });
    let word = match outcome.await.unwrap() {
        Ok(_) => "committed",
        Err(RunError::RolledBack { .. }) => "rolled back",
        Err(other) => panic!("{other:?}"),
    };
    println!("outcome {word} undone={}", is_undone.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_stopped_past_its_session_in_a_guarded_run_does_not_commit() {
    if let Ok(reported) = std::env::var(CHILD) {
        return run_until_the_file_is_there(&reported).await;
    }
    let server = Server::shared();
    let go = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("go-{}", server.port));
    let _ = std::fs::remove_file(&go);
    let own_name = "a_client_stopped_past_its_session_in_a_guarded_run_does_not_commit";
    let reported = format!("{} {}", server.address(), go.display());
    let mut child = again(module_path!(), own_name, CHILD, &reported)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert!(lines.any(|line| line.contains("inside the run")));
    signal(child.id(), "STOP");
    let locks = manager(&server.address(), "/manager-stopped").await;
    let _ours_now = locks.lock("k").acquire().await.unwrap();
    std::fs::write(&go, "").unwrap();
    signal(child.id(), "CONT");
    let outcome = lines.find_map(|line| line.strip_prefix("outcome ").map(str::to_owned));
    assert!(child.wait().unwrap().success());
    std::fs::remove_file(&go).unwrap();
    assert_eq!(outcome.as_deref(), Some("rolled back undone=true"));
}

#[tokio::test]
async fn a_lock_and_an_office_pass_on() {
    let server = Server::shared();
    let manager =
        async || LockManager::new(open(options(&server.address(), "/office")).await).unwrap();
    let (ours, theirs) = (manager().await, manager().await);
    crate::passing_on::a_lock_and_an_office_pass_on(&ours, &theirs).await;
}
