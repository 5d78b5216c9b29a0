//! One directory, seen through other mounts: it is one set of locks, or it is refused.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::{Acquired, FileOptions, FileStore, Released, Store};

use crate::place::{Place, claim, is_held, open, shell_that_mounts, try_once, wait};

const LONG: Duration = Duration::from_secs(1000);

fn run(script: &str, words: &[&str]) {
    let Some(mut command) = shell_that_mounts(script) else {
        return;
    };
    let status = command.args(words).status().unwrap();
    assert!(status.success(), "{script}: {status}");
}

pub(crate) fn one_directory_is_one_set_of_locks_on_every_mount() {
    let place = Place::new();
    let path = |name: &str| place.path(name);
    for name in ["memory", "lower", "upper", "work", "merged", "bound"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    // The lower layer of the overlay has a directory of locks already, as an image may have.
    drop(open(&format!("file://{}/locks", path("lower"))));
    run(
        "mount -t tmpfs none \"$1\"; mount --bind \"$1\" \"$2\"; exec \"$0\" worker mounted \"$1\" \"$2\"",
        &[&path("memory"), &path("bound")],
    );
    // Upper and work are in memory: an overlay cannot be their file system itself.
    run(
        "mount -t tmpfs none \"$1\"; mkdir \"$1/upper\" \"$1/work\"
        mount -t overlay overlay -o \"lowerdir=$2,upperdir=$1/upper,workdir=$1/work\" \"$3\"
        mount --bind \"$3\" \"$4\"; exec \"$0\" worker mounted \"$3\" \"$4\"",
        &[
            &path("memory"),
            &path("lower"),
            &path("merged"),
            &path("bound"),
        ],
    );
}

/// Two paths to one directory.
pub(crate) fn exclude(one: &str, other: &str) {
    let url = |path: &str| format!("file://{path}/locks?on_death=now");
    let (ours, theirs) = (open(&url(one)), open(&url(other)));
    let mut last = 0;
    for _ in 0..100 {
        let grant = try_once(&ours, "a", LONG).expect("a free lock");
        assert!(grant.token.number() > last);
        last = grant.token.number();
        let next = claim("a", LONG);
        let queued = wait(theirs.acquire(&next)).unwrap();
        assert!(matches!(queued, Acquired::Busy { .. }), "{queued:?}");
        assert!(is_held(&ours, &grant));
        let released = wait(ours.release(&grant));
        assert!(matches!(released, Released::Released), "{released:?}");
        let Acquired::Granted(grant) = wait(theirs.acquire(&next)).unwrap() else {
            panic!("not handed over")
        };
        let released = wait(theirs.release(&grant));
        assert!(matches!(released, Released::Released), "{released:?}");
    }
}

pub(crate) fn a_read_only_directory_is_refused() {
    let place = Place::new();
    let script = "mount -t tmpfs none \"$1\"; exec \"$0\" worker read-only \"$1\"";
    run(script, &[&place.path("")]);
}

pub(crate) fn open_read_only(directory: &str) {
    let options = FileOptions::new(format!("{directory}/locks"));
    let store = FileStore::open(&options).unwrap();
    let held = try_once(&store, "a", LONG).unwrap();
    let remount = |how: &str| {
        let words = ["-o", &format!("remount,{how}"), directory];
        let status = std::process::Command::new("mount").args(words).status();
        assert!(status.unwrap().success());
    };
    remount("ro");
    let refused = FileStore::open(&options).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    let refused = wait(store.acquire(&claim("b", LONG))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert!(!is_held(&store, &held), "a renewal that was not written");
    remount("rw");
    assert!(is_held(&store, &held), "and nobody else got it");
    assert!(try_once(&store, "a", LONG).is_none());
}
