//! Attempts to get two holders of one key, a token that goes back, or a store that hangs.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::FutureExt;
use rustix::fs::{AtFlags, CWD, FlockOperation, Timespec, Timestamps};

use super::directory::is_local;
use super::tests::{Temporary, claim, granted, is_busy, refused};
use super::*;
use crate::clock::{Clock, ManualClock};
use crate::model::error::ErrorKind;
use crate::model::key::Key;
use crate::store::{Acquired, Asked, Grant, Released, Renewed, Store};

async fn renewed(store: &FileStore, grant: &Grant) -> Renewed {
    store.renew(std::slice::from_ref(grant)).await.remove(0)
}

/// Between the look and the making of a file, another process holds the key and releases it, which
/// leaves no file.
#[tokio::test]
async fn a_token_is_larger_than_that_of_a_hold_that_came_and_went_meanwhile() {
    let directory = Temporary::new();
    let clock = ManualClock::new();
    let open =
        || FileStore::open_with_clock(&directory.options(), Clock::from(clock.clone())).unwrap();
    let (slow, fast) = (open(), open());
    let ours = claim("a");
    let mut meanwhile = None;
    let inner = slow.inner();
    let step = inner.attempt(&ours.key, &mut |line, now, token| {
        let (claim, origin) = (&ours, inner.process.origin);
        let acquired = line.acquire(Asked { claim, origin, now }, token);
        if meanwhile.is_none() {
            clock.advance(Duration::from_secs(1));
            let grant = granted(&fast, &claim_of_another()).now_or_never().unwrap();
            // Later than its token, which a file would remember otherwise.
            clock.advance(Duration::from_secs(1));
            let released = fast.release(&grant).now_or_never().unwrap();
            assert!(matches!(released, Released::Released));
            meanwhile = Some(grant);
        }
        acquired
    });
    let (acquired, _) = step.unwrap().unwrap();
    let Acquired::Granted(ours) = acquired else {
        panic!("{acquired:?}")
    };
    let theirs = meanwhile.unwrap();
    assert!(
        ours.token > theirs.token,
        "{} after {}",
        ours.token,
        theirs.token
    );
    assert!(is_busy(&fast, "a").await);
    let Renewed::Extended(_) = renewed(&slow, &ours).await else {
        panic!("it does not hold")
    };
}

fn claim_of_another() -> crate::store::Claim {
    claim("a")
}

/// As in a container that has a boot id of its own on the same machine.
#[tokio::test]
async fn another_boot_id_is_refused_while_a_process_of_this_one_lives() {
    let directory = Temporary::new();
    let with_boot = |boot: &str| {
        let mut options = directory.options();
        options.boot = Some(boot.to_owned());
        options
    };
    let ours = FileStore::open(&with_boot("1111")).unwrap();
    let grant = granted(&ours, &claim("a")).await;
    assert_eq!(refused(&with_boot("2222")), ErrorKind::Unsupported);
    assert!(matches!(renewed(&ours, &grant).await, Renewed::Extended(_)));
    let sibling = FileStore::open(&with_boot("1111")).unwrap();
    assert!(is_busy(&sibling, "a").await);
    drop((ours, sibling));
    let theirs = FileStore::open(&with_boot("2222")).unwrap();
    assert!(granted(&theirs, &claim("a")).await.token > grant.token);
}

#[tokio::test]
async fn a_directory_that_was_moved_grants_nothing_and_ends_its_holds() {
    let directory = Temporary::new();
    let elsewhere = Temporary::new();
    let moved = directory.store();
    let grant = granted(&moved, &claim("a")).await;
    std::fs::rename(&directory.0, &elsewhere.0).unwrap();
    for replaced in [false, true] {
        let here = replaced.then(|| directory.store());
        let error = moved.acquire(&claim("b")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("moved"), "{error}");
        assert!(matches!(renewed(&moved, &grant).await, Renewed::Gone));
        if let Some(here) = here {
            drop(granted(&here, &claim("a")).await);
        }
    }
    std::fs::remove_dir_all(&directory.0).unwrap();
    // Back in its place, all is as it was.
    std::fs::rename(&elsewhere.0, &directory.0).unwrap();
    assert!(matches!(
        renewed(&moved, &grant).await,
        Renewed::Extended(_)
    ));
    // Where it is does not matter to a release.
    std::fs::rename(&directory.0, &elsewhere.0).unwrap();
    let released = moved.release(&grant).await;
    assert!(matches!(released, Released::Released), "{released:?}");
    std::fs::rename(&elsewhere.0, &directory.0).unwrap();
    let grant = granted(&moved, &claim("a")).await;
    std::fs::remove_dir_all(&directory.0).unwrap();
    assert!(matches!(renewed(&moved, &grant).await, Renewed::Gone));
}

/// `cp -al` and some backups make such names. The deletion of one name would leave the file to
/// whoever had opened it.
#[tokio::test]
async fn a_file_with_two_names_is_corrupt() {
    let directory = Temporary::new();
    let store = directory.store();
    let grant = granted(&store, &claim("a")).await;
    let file = directory.files().remove(0);
    for second in [directory.0.join("backup"), file.with_file_name("b")] {
        std::fs::hard_link(&file, &second).unwrap();
        let keys: &[&str] = if second.ends_with("b") {
            &["a", "b"]
        } else {
            &["a"]
        };
        for key in keys {
            let error = store.acquire(&claim(key)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{key}");
        }
        assert!(matches!(store.release(&grant).await, Released::Unknown(_)));
        std::fs::remove_file(&second).unwrap();
    }
    assert!(matches!(store.release(&grant).await, Released::Released));
}

#[test]
fn a_link_is_not_followed_because_of_what_is_at_its_end() {
    let directory = Temporary::new();
    drop(directory.store());
    let link = Temporary::new();
    symlink(&directory.0, &link.0).unwrap();
    for end in ["/", "/.", "//", "/./"] {
        let path = format!("{}{end}", link.0.display());
        let refused = refused(&FileOptions::new(path));
        assert_eq!(refused, ErrorKind::Denied, "{end}");
    }
    std::fs::remove_file(&link.0).unwrap();
}

#[tokio::test]
async fn every_spelling_of_a_path_is_the_same_directory() {
    let directory = Temporary::new();
    let store = directory.store();
    let _held = granted(&store, &claim("a")).await;
    let path = directory.0.display().to_string();
    let (above, name) = path.rsplit_once('/').unwrap();
    let link = Temporary::new();
    symlink(above, &link.0).unwrap();
    for spelling in [
        format!("{path}/"),
        format!("{above}//{name}/."),
        format!("{above}/{name}/../{name}"),
        format!("{}/{name}", link.0.display()),
    ] {
        let other = FileStore::open(&FileOptions::new(&spelling)).unwrap();
        assert!(is_busy(&other, "a").await, "{spelling}");
    }
    std::fs::remove_file(&link.0).unwrap();
}

/// No two keys share a file, whatever bytes they have.
#[tokio::test]
async fn keys_that_look_alike_are_different_locks() {
    let directory = Temporary::new();
    let (one, other) = (directory.store(), directory.store());
    let longest = "x".repeat(Key::MAX_LEN);
    let segments = format!("{}x", "x/".repeat((Key::MAX_LEN - 1) / 2));
    let keys = [
        "a",
        "A",
        "a/b",
        "a:b",
        "a.b",
        "a-b",
        "a_b",
        "a/b/c",
        "a/b:c",
        "...",
        "..a",
        "-",
        "--all",
        "leasehold",
        "k",
        "w",
        "p",
        &longest,
        &segments,
    ];
    for key in keys {
        drop(granted(&one, &claim(key)).await);
    }
    let listed = other.list("").await.unwrap();
    let listed: BTreeSet<String> = listed.iter().map(|info| info.key.to_string()).collect();
    assert_eq!(listed, keys.iter().map(|&key| key.to_owned()).collect());
    for key in keys {
        assert!(is_busy(&other, key).await, "{key}");
    }
    assert_eq!(other.list("a/b").await.unwrap().len(), 3);
}

/// A process that is stopped while it holds the lock of the file of tokens.
#[tokio::test]
async fn a_request_does_not_wait_for_ever_for_the_file_of_tokens() {
    let directory = Temporary::new();
    let clock = ManualClock::new();
    let store = FileStore::open_with_clock(&directory.options(), Clock::from(clock.clone()));
    let store = store.unwrap();
    let grant = granted(&store, &claim("a")).await;
    let stopped = File::open(directory.0.join("leasehold")).unwrap();
    rustix::fs::flock(stopped.as_fd(), FlockOperation::LockExclusive).unwrap();
    // The mark has to be moved, once an hour.
    clock.advance(Duration::from_secs(7200));
    let error = store.acquire(&claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    drop(stopped);
    assert!(granted(&store, &claim("b")).await.token > grant.token);
}

/// Killed between the making of a folder and its rights, a process leaves it empty, and its own.
#[tokio::test]
async fn a_folder_that_was_half_made_for_a_group_is_finished() {
    let directory = Temporary::new();
    let mut options = directory.options();
    let group = rustix::process::getegid().as_raw();
    options.group = Some(group.to_string());
    for half in [None, Some("k"), Some("w"), Some("p")] {
        let path = half.map_or_else(|| directory.0.clone(), |name| directory.0.join(name));
        if half.is_some() {
            std::fs::remove_dir_all(&path).unwrap();
        }
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        drop(FileStore::open(&options).unwrap());
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.mode() & 0o7777, 0o2770, "{half:?}");
        assert_eq!(found.gid(), group);
    }
    // A directory in use is opened to nobody.
    let private = Temporary::new();
    drop(private.store());
    let mut options = private.options();
    options.group = Some(group.to_string());
    assert_eq!(mode(&private.0), 0o700);
    let _ = FileStore::open(&options);
    assert_eq!(mode(&private.0), 0o700);
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

fn made_two_days_ago(path: &Path) {
    let old = Timespec {
        tv_sec: std::fs::metadata(path).unwrap().mtime() - 172_800,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: old,
        last_modification: old,
    };
    // Not through an open file: a socket has none.
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[tokio::test]
async fn what_dead_processes_left_is_deleted_and_what_is_in_use_stays() {
    let directory = Temporary::new();
    let mut options = directory.options();
    options.on_death = OnDeath::Now;
    let live = FileStore::open(&options).unwrap();
    let held = granted(&live, &claim("a")).await;
    let waiting = claim("a");
    let _busy = live.acquire(&waiting).await.unwrap();
    let _hint = live.subscribe(&waiting).await.unwrap();
    let named = |folder: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory.0.join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    for in_use in [named("p").remove(0), named("w").remove(0)] {
        made_two_days_ago(&in_use);
    }
    let boot = named("k").remove(0);
    let (unfinished, life) = (boot.join("~7.0"), directory.0.join("p/0000000000000007"));
    let [old, young] = [7, 8].map(|number| directory.0.join(format!("w/000000000000000{number}")));
    for stale in [&unfinished, &life] {
        File::create(stale).unwrap();
    }
    for socket in [&old, &young] {
        drop(UnixDatagram::bind(socket).unwrap());
    }
    let just_begun = boot.join("~8.0");
    File::create(&just_begun).unwrap();
    for stale in [&unfinished, &life, &old] {
        made_two_days_ago(stale);
    }
    drop(directory.store());
    for stale in [&unfinished, &life, &old] {
        assert!(!stale.exists(), "{}", stale.display());
    }
    assert!(young.exists() && just_begun.exists(), "they may be in use");
    assert_eq!((named("p").len(), named("w").len()), (1, 2));
    assert!(matches!(renewed(&live, &held).await, Renewed::Extended(_)));
}

/// By the magic numbers of Linux. virtiofs and sshfs are FUSE.
#[test]
fn no_file_system_of_a_network_counts_as_local() {
    let of_networks = [
        (0x6969, "NFS"),
        (0x517B, "SMB"),
        (0xFF53_4D42, "CIFS"),
        (0xFE53_4D42, "SMB 2"),
        (0x6573_5546, "FUSE"),
        (0x0102_1997, "9p"),
        (0x00C3_6400, "Ceph"),
        (0x5346_414F, "AFS"),
        (0x7375_7245, "Coda"),
        (0x0116_1970, "GFS2"),
        (0x7461_636F, "OCFS2"),
        (0x0BD0_0BD0, "Lustre"),
    ];
    for (kind, name) in of_networks {
        assert!(!is_local(kind), "{name}");
    }
    assert!(is_local(0xEF53), "ext");
}
