//! The file store's own clauses, in directories of the tests' own.

use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::FlockOperation;

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::model::error::ErrorKind;
use crate::model::holder::{Label, OwnerToken};
use crate::model::key::Key;
use crate::store::{Acquired, Claim, Grant, Released, Renewed, Store};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);

/// A directory that is deleted with the test.
pub(super) struct Temporary(pub(super) PathBuf);

impl Temporary {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("leasehold-file-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub(super) fn options(&self) -> FileOptions {
        FileOptions::new(&self.0)
    }

    pub(super) fn store(&self) -> FileStore {
        FileStore::open(&self.options()).unwrap()
    }

    /// The files of all locks.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let boots = std::fs::read_dir(self.0.join("k")).unwrap();
        let folders = boots.map(|boot| std::fs::read_dir(boot.unwrap().path()).unwrap());
        folders.flatten().map(|file| file.unwrap().path()).collect()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn claim(key: &str) -> Claim {
    let owner = OwnerToken::generate().unwrap();
    let label = Label::parse("test").unwrap();
    Claim::new(Key::parse(key).unwrap(), owner, label, TTL)
}

pub(super) async fn granted(store: &FileStore, claim: &Claim) -> Grant {
    match store.acquire(claim).await.unwrap() {
        Acquired::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn is_busy(store: &FileStore, key: &str) -> bool {
    let mut once = claim(key);
    once.place_ttl = Duration::ZERO;
    matches!(store.acquire(&once).await.unwrap(), Acquired::Busy { .. })
}

pub(super) fn refused(options: &FileOptions) -> ErrorKind {
    FileStore::open(options).unwrap_err().kind()
}

#[tokio::test]
async fn a_lock_that_is_free_leaves_no_file() {
    let directory = Temporary::new();
    let store = directory.store();
    let grants = [
        granted(&store, &claim("a")).await,
        granted(&store, &claim("a/b")).await,
    ];
    assert_eq!(directory.files().len(), 2);
    for grant in &grants {
        assert!(matches!(store.release(grant).await, Released::Released));
    }
    assert_eq!(directory.files(), [] as [PathBuf; 0]);
}

/// Who takes a lock again and again does not make and delete its file each time.
#[tokio::test]
async fn a_process_leaves_one_file_of_a_free_lock_until_it_ends() {
    let directory = Temporary::new();
    let nothing = [] as [PathBuf; 0];
    let take_twice = async |store: &FileStore, key: &str| {
        for _ in 0..2 {
            let grant = granted(store, &claim(key)).await;
            assert!(matches!(store.release(&grant).await, Released::Released));
        }
        assert_eq!(directory.files().len(), 1);
    };
    let (store, other) = (directory.store(), directory.store());
    take_twice(&store, "a").await;
    take_twice(&store, "b").await;
    assert!(store.list("").await.unwrap().is_empty());
    assert_eq!(directory.files(), nothing, "deleted by whoever looks");
    take_twice(&store, "b").await;
    let free = std::fs::read(directory.files().remove(0)).unwrap();
    store.close().await.unwrap();
    assert_eq!(directory.files(), nothing);
    take_twice(&store, "b").await;
    drop(store);
    assert_eq!(directory.files(), nothing);
    // One that a killed process left is used as any other.
    let keys = std::fs::read_dir(directory.0.join("k")).unwrap().next();
    std::fs::write(keys.unwrap().unwrap().path().join("b"), free).unwrap();
    let grant = granted(&other, &claim("b")).await;
    assert!(is_busy(&directory.store(), "b").await);
    assert!(matches!(other.release(&grant).await, Released::Released));
    assert_eq!(directory.files(), nothing);
}

#[tokio::test]
async fn a_process_that_ends_deletes_no_file_that_others_use() {
    for ends in [true, false] {
        let directory = Temporary::new();
        let (store, other) = (directory.store(), directory.store());
        for _ in 0..2 {
            let grant = granted(&store, &claim("a")).await;
            let _ = store.release(&grant).await;
        }
        let held = granted(&other, &claim("a")).await;
        if ends {
            drop(store);
        } else {
            let grant = granted(&store, &claim("b")).await;
            let _ = store.release(&grant).await;
        }
        assert!(is_busy(&directory.store(), "a").await);
        assert!(matches!(other.release(&held).await, Released::Released));
    }
}

#[tokio::test]
async fn two_stores_of_one_directory_exclude_each_other() {
    let directory = Temporary::new();
    let (one, other) = (directory.store(), directory.store());
    let first = granted(&one, &claim("a")).await;
    assert!(is_busy(&other, "a").await);
    let _ = one.release(&first).await;
    let second = granted(&other, &claim("a")).await;
    assert!(second.token > first.token);
}

#[tokio::test]
async fn a_removed_file_ends_its_hold_for_its_holder_too() {
    let directory = Temporary::new();
    let store = directory.store();
    let grant = granted(&store, &claim("a")).await;
    for file in directory.files() {
        std::fs::remove_file(file).unwrap();
    }
    let renewed = store.renew(std::slice::from_ref(&grant)).await;
    assert!(matches!(renewed[..], [Renewed::Gone]), "{renewed:?}");
    assert!(matches!(store.release(&grant).await, Released::AlreadyGone));
}

/// However a file is damaged, nobody gets the lock, and the file stays as it is.
#[tokio::test]
async fn a_damaged_file_is_corrupt_and_is_not_touched() {
    let damage: [fn(&Path); 4] = [
        |file| std::fs::write(file, "").unwrap(),
        |file| std::fs::write(file, "12345\n").unwrap(),
        |file| std::fs::write(file, vec![0xA5; 70_000]).unwrap(),
        |file| {
            let mut bytes = std::fs::read(file).unwrap();
            bytes[40] ^= 1;
            std::fs::write(file, bytes).unwrap();
        },
    ];
    for damage in damage {
        let directory = Temporary::new();
        let store = directory.store();
        let grant = granted(&store, &claim("a")).await;
        let file = directory.files().remove(0);
        damage(&file);
        let before = std::fs::read(&file).unwrap();
        let error = store.acquire(&claim("a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(
            store.inspect(&grant.claim.key).await.unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        let renewed = store.renew(std::slice::from_ref(&grant)).await;
        assert!(matches!(renewed[..], [Renewed::Unknown(_)]), "{renewed:?}");
        assert!(matches!(store.release(&grant).await, Released::Unknown(_)));
        assert_eq!(std::fs::read(&file).unwrap(), before);
    }
}

#[tokio::test]
async fn another_boot_frees_every_lock_and_its_tokens_are_larger() {
    let directory = Temporary::new();
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000));
    let booted = |boot: &str, clock: &ManualClock| {
        let mut options = directory.options();
        options.boot = Some(boot.to_owned());
        FileStore::open_with_clock(&options, Clock::from(clock.clone())).unwrap()
    };
    let before = booted("1111", &clock);
    let grant = granted(&before, &claim("a")).await;
    // No process outlives its boot.
    drop(before);
    // The boot clock starts again, and the wall clock of a manual clock goes back with it.
    let restarted = ManualClock::new();
    let after = booted("2222", &restarted);
    let next = granted(&after, &claim("a")).await;
    assert!(
        next.token > grant.token,
        "{} then {}",
        grant.token,
        next.token
    );
    assert_eq!(directory.files().len(), 1);
    drop(after);
    // And so on, although less than an hour passes each time.
    let again = booted("3333", &ManualClock::new());
    assert!(granted(&again, &claim("a")).await.token > next.token);
}

#[tokio::test]
async fn a_link_in_the_place_of_a_file_is_not_followed() {
    let directory = Temporary::new();
    let store = directory.store();
    let grant = granted(&store, &claim("a")).await;
    let file = directory.files().remove(0);
    let elsewhere = directory.0.join("elsewhere");
    std::fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    let error = store.acquire(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(matches!(store.release(&grant).await, Released::Unknown(_)));
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let directory = Temporary::new();
    drop(directory.store());
    for mode in [0o777, 0o770] {
        std::fs::set_permissions(&directory.0, PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!(refused(&directory.options()), ErrorKind::Denied, "{mode:o}");
    }
}

#[test]
fn a_link_in_the_place_of_the_directory_is_refused() {
    let directory = Temporary::new();
    drop(directory.store());
    let link = Temporary::new();
    symlink(&directory.0, &link.0).unwrap();
    assert_eq!(refused(&link.options()), ErrorKind::Denied);
    std::fs::remove_file(&link.0).unwrap();
}

#[test]
fn a_directory_is_for_its_user_alone() {
    let directory = Temporary::new();
    drop(directory.store());
    for folder in ["", "k", "w", "p"] {
        let mode = std::fs::metadata(directory.0.join(folder))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o700, "{folder}");
    }
}

#[test]
fn a_file_system_that_is_no_disk_of_this_machine_is_refused() {
    let error = FileStore::open(&FileOptions::new("/proc/sys")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("tmpfs"), "{error}");
}

#[test]
fn a_file_of_tokens_that_is_not_ours_is_corrupt() {
    let directory = Temporary::new();
    drop(directory.store());
    std::fs::write(directory.0.join("leasehold"), "something else").unwrap();
    assert_eq!(refused(&directory.options()), ErrorKind::Corrupt);
}

/// The records of keys differ between versions: a process of one version takes no part where
/// another one was.
#[test]
fn a_directory_of_another_version_is_refused_with_what_to_do() {
    let directory = Temporary::new();
    drop(directory.store());
    let path = directory.0.join("leasehold");
    let mut files = std::fs::OpenOptions::new();
    let file = files.read(true).write(true).open(&path).unwrap();
    let former = b"leasehold-1\nboot\n0\n1\n1\n";
    for sequence in [100, 101] {
        slots::write(file.as_fd(), sequence, &[0; 16], former, &path).unwrap();
    }
    let error = FileStore::open(&directory.options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("only this version"), "{error}");
}

/// A process that is stopped inside a request keeps the file locked.
#[tokio::test]
async fn a_request_does_not_wait_for_ever_for_a_process_that_is_stopped_in_its_own() {
    let directory = Temporary::new();
    let mut options = directory.options();
    options.request_timeout = Duration::from_millis(20);
    let store = FileStore::open(&options).unwrap();
    let grant = granted(&store, &claim("a")).await;
    let stopped = std::fs::File::open(directory.files().remove(0)).unwrap();
    rustix::fs::flock(stopped.as_fd(), FlockOperation::LockExclusive).unwrap();
    let error = store.acquire(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    drop(stopped);
    assert!(matches!(store.release(&grant).await, Released::Released));
}

#[tokio::test]
async fn ten_thousand_locks_are_held_listed_renewed_and_released() {
    let directory = Temporary::new();
    let store = directory.store();
    let mut grants = Vec::new();
    for number in 0..10_000 {
        let mut long = claim(&format!("many/{number}"));
        // However slow the machine is.
        long.ttl = TTL * 100;
        grants.push(granted(&store, &long).await);
    }
    assert_eq!(store.list("many/").await.unwrap().len(), grants.len());
    let renewed = store.renew(&grants).await;
    assert!(
        renewed
            .iter()
            .all(|renewed| matches!(renewed, Renewed::Extended(_)))
    );
    for grant in &grants {
        assert!(matches!(store.release(grant).await, Released::Released));
    }
    assert_eq!(directory.files(), [] as [PathBuf; 0]);
}

/// The socket of a process that died stays in the directory; nobody reads it.
#[tokio::test]
async fn a_waiter_whose_process_died_is_skipped_at_once() {
    let directory = Temporary::new();
    let (holder, live) = (directory.store(), directory.store());
    let grant = granted(&holder, &claim("a")).await;
    let dead = directory.store();
    let first = claim("a");
    let _busy = dead.acquire(&first).await.unwrap();
    let mut names = std::fs::read_dir(directory.0.join("w")).unwrap();
    assert!(
        names.next().is_none(),
        "only waiters that subscribe have a socket"
    );
    drop(dead.subscribe(&first).await.unwrap());
    let socket = std::fs::read_dir(directory.0.join("w"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    drop(dead);
    // As a killed process would leave it: bound, and closed without being deleted.
    drop(std::os::unix::net::UnixDatagram::bind(&socket).unwrap());
    let second = claim("a");
    let _busy = live.acquire(&second).await.unwrap();
    let hint = live.subscribe(&second).await.unwrap();
    assert!(matches!(holder.release(&grant).await, Released::Released));
    hint.await;
    let served = granted(&live, &second).await;
    assert!(served.token > grant.token);
}

#[tokio::test]
async fn a_message_wakes_a_waiter_of_another_store() {
    let directory = Temporary::new();
    let (one, other) = (directory.store(), directory.store());
    let grant = granted(&one, &claim("a")).await;
    let next = claim("a");
    let _busy = other.acquire(&next).await.unwrap();
    let hint = other.subscribe(&next).await.unwrap();
    let _ = one.release(&grant).await;
    hint.await;
    assert!(granted(&other, &next).await.token > grant.token);
}

/// Its message comes although it has not looked at the file.
#[tokio::test]
async fn a_waiter_that_listens_before_it_asks_is_woken() {
    let directory = Temporary::new();
    let (one, other) = (directory.store(), directory.store());
    let grant = granted(&one, &claim("a")).await;
    let next = claim("a");
    assert!(other.listen(&next).is_none(), "messages do not arrive yet");
    drop(other.subscribe(&claim("b")).await.unwrap());
    let hint = other.listen(&next).unwrap();
    let _busy = other.acquire(&next).await.unwrap();
    let _ = one.release(&grant).await;
    hint.await;
    assert!(granted(&other, &next).await.token > grant.token);
}

/// Nobody sends a message then.
#[tokio::test]
async fn a_waiter_that_listens_sees_the_death_of_the_holder() {
    let directory = Temporary::new();
    let mut options = directory.options();
    options.on_death = OnDeath::Now;
    let (one, other) = (FileStore::open(&options).unwrap(), directory.store());
    let mut long = claim("a");
    long.ttl = TTL * 100;
    let grant = granted(&one, &long).await;
    drop(other.subscribe(&claim("b")).await.unwrap());
    let mut next = claim("a");
    next.place_ttl = long.ttl;
    let hint = other.listen(&next).unwrap();
    let _busy = other.acquire(&next).await.unwrap();
    end_life(&directory);
    let clock = Clock::system().unwrap();
    let woken = clock.timeout(Duration::from_secs(60), hint).await;
    assert!(woken.is_some(), "it waits for its message");
    assert!(granted(&other, &next).await.token > grant.token);
}

/// The only life file is as that of a killed process: there, and not locked.
fn end_life(directory: &Temporary) {
    let mut lives = std::fs::read_dir(directory.0.join("p")).unwrap();
    let life = lives.next().unwrap().unwrap().path();
    let unlocked = directory.0.join("unlocked");
    std::fs::write(&unlocked, "").unwrap();
    std::fs::rename(&unlocked, &life).unwrap();
}

/// One of them watches for both.
#[tokio::test]
async fn a_waiter_sees_the_death_of_the_holder_although_nobody_polls_the_other() {
    let directory = Temporary::new();
    let mut options = directory.options();
    options.on_death = OnDeath::Now;
    let clock = ManualClock::new();
    let open = |options: &FileOptions| {
        FileStore::open_with_clock(options, Clock::from(clock.clone())).unwrap()
    };
    let (one, other) = (open(&options), open(&directory.options()));
    let grant = granted(&one, &claim("a")).await;
    let [next, last] = [claim("a"), claim("a")];
    let _busy = other.acquire(&next).await.unwrap();
    let _busy = other.acquire(&last).await.unwrap();
    let mut waits = Box::pin(other.subscribe(&next).await.unwrap());
    let mut unpolled = Box::pin(other.subscribe(&last).await.unwrap());
    assert!(futures_util::poll!(unpolled.as_mut()).is_pending());
    assert!(futures_util::poll!(waits.as_mut()).is_pending());
    end_life(&directory);
    clock.advance(Duration::from_millis(100));
    // It checks, hands the key over to itself, and gets the message.
    assert!(futures_util::poll!(waits.as_mut()).is_pending());
    assert!(
        futures_util::poll!(waits.as_mut()).is_ready(),
        "nobody checks"
    );
    assert!(granted(&other, &next).await.token > grant.token);
}

#[tokio::test]
async fn the_lock_of_a_process_that_is_alive_stays_although_it_would_end_with_it() {
    let directory = Temporary::new();
    let mut options = directory.options();
    options.on_death = OnDeath::Now;
    let (one, other) = (FileStore::open(&options).unwrap(), directory.store());
    let _held = granted(&one, &claim("a")).await;
    assert!(is_busy(&other, "a").await);
}
