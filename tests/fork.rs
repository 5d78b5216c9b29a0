//! A forked child holds nothing: it finds its parent's leases lost at its first look, and the
//! parent goes on (I9).

#![cfg(unix)]
#![allow(unsafe_code, reason = "there is no fork without it")]
#![allow(clippy::unwrap_used, reason = "a failing test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use leasehold::store::MemoryStore;
use leasehold::{Ended, Lease, LeaseError, LockManager};

/// What a child finds, reported by its exit code: the harness that would print a panic is not in
/// it.
const LOST_BY_THE_FORK: i32 = 0;
const STILL_LIVE: i32 = 1;
const LOST_OTHERWISE: i32 = 2;
const PANICKED: i32 = 3;

/// Runs `child` in a fork of this process and returns its exit code.
fn in_a_fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child looks at a lease, which takes no lock that another thread of the parent may
    // hold for good, and leaves by `_exit`: nothing of the parent is unwound, flushed or dropped
    // twice.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(catch_unwind(AssertUnwindSafe(child)).unwrap_or(PANICKED)),
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            id => {
                let mut status = 0;
                assert_eq!(libc::waitpid(id, &raw mut status, 0), id);
                assert!(libc::WIFEXITED(status), "the child died: {status}");
                libc::WEXITSTATUS(status)
            }
        }
    }
}

fn first_look(lease: &Lease) -> i32 {
    match lease.ensure(Duration::ZERO) {
        Ok(_) => STILL_LIVE,
        Err(LeaseError::Lost(Ended::Forked)) => LOST_BY_THE_FORK,
        Err(_) => LOST_OTHERWISE,
    }
}

#[test]
fn a_fork_ends_the_hold_in_the_child_and_not_in_the_parent() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let locks = LockManager::new(MemoryStore::new().unwrap()).unwrap();
        let guard = locks.lock("accounts/7").acquire().await.unwrap();

        assert_eq!(in_a_fork(|| first_look(guard.lease())), LOST_BY_THE_FORK);
        let live_by_the_fast_clock = in_a_fork(|| i32::from(guard.lease().is_live()));
        assert_eq!(live_by_the_fast_clock, 0);

        assert_eq!(guard.lease().lost_reason(), None);
        assert!(guard.lease().is_live(), "the parent goes on");
        let other = locks.lock("accounts/7").try_acquire().await.unwrap();
        assert!(
            other.is_none(),
            "the child's end released the parent's lock"
        );
    });
}

/// The socket and the life file stay: they are the parent's.
#[cfg(target_os = "linux")]
#[test]
fn a_child_that_drops_a_store_of_files_deletes_nothing_of_its_parent() {
    use leasehold::store::{FileOptions, FileStore, OnDeath, Store};

    let name = format!("leasehold-fork-{}", std::process::id());
    let mut options = FileOptions::new(std::env::temp_dir().join(name));
    options.on_death = OnDeath::Now;
    let files = || {
        let folders = ["p", "w"].map(|folder| options.directory.join(folder));
        folders.map(|folder| std::fs::read_dir(folder).unwrap().count())
    };
    let mut store = Some(FileStore::open(&options).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    // Whoever subscribes has a socket.
    let claim = leasehold::store::Claim::new(
        "a".parse().unwrap(),
        leasehold::store::OwnerToken::generate().unwrap(),
        leasehold::store::Label::parse("test").unwrap(),
        Duration::from_secs(10),
    );
    drop(runtime.block_on(store.as_ref().unwrap().subscribe(&claim)));
    assert_eq!(files(), [1, 1]);
    let child = in_a_fork(|| {
        store.take();
        0
    });
    assert_eq!((child, files()), (0, [1, 1]));
    store.take();
    assert_eq!(files(), [0, 0]);
    std::fs::remove_dir_all(&options.directory).unwrap();
}
