//! A process that has no descriptors left, and a disk that is full at each page of an operation.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use leasehold::store::{Acquired, FileOptions, FileStore, Released, Store};
use leasehold::{Error, ErrorKind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::place::{Place, claim, is_held, shell_that_mounts, try_once, wait};

const LONG: Duration = Duration::from_secs(1000);

fn with_descriptors<T>(limit: u64, work: impl FnOnce() -> T) -> T {
    within(Resource::Nofile, limit, work)
}

fn within<T>(resource: Resource, limit: u64, work: impl FnOnce() -> T) -> T {
    let before = getrlimit(resource);
    let low = Rlimit {
        current: Some(limit),
        ..before
    };
    setrlimit(resource, low).unwrap();
    let done = work();
    setrlimit(resource, before).unwrap();
    done
}

/// A larger write would end it (`SIGXFSZ`).
pub(crate) fn a_process_that_may_not_write_files_as_large_as_the_stores_is_refused() {
    /// Two states of 64 KiB.
    const LARGEST: u64 = 2 * 64 * 1024;
    let place = Place::new();
    let options = FileOptions::parse(&place.url("")).unwrap();
    let open = |limit| within(Resource::Fsize, limit, || FileStore::open(&options));
    for limit in [0, 1, LARGEST / 2, LARGEST - 1] {
        let refused = open(limit).expect_err("it is killed by its first long queue");
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
        assert!(refused.to_string().contains("ulimit -f"), "{refused}");
        assert!(!place.0.join("locks").exists());
    }
    let store = open(LARGEST).unwrap();
    within(Resource::Fsize, LARGEST, || {
        let held = try_once(&store, "a", LONG).unwrap();
        let mut queued = 0;
        let full = loop {
            match wait(store.acquire(&claim("a", LONG))) {
                Ok(_) => queued += 1,
                Err(full) => break full,
            }
        };
        assert_eq!(full.kind(), ErrorKind::Contended, "{queued}: {full}");
        assert!(is_held(&store, &held));
    });
}

/// `EMFILE` at the first descriptor, the second, and so on: this program has one thread.
pub(crate) fn a_process_without_descriptors_gets_an_error_and_no_lock() {
    let place = Place::new();
    let (store, other) = (place.store(), place.store());
    let free = u64::try_from(
        File::open("/dev/null")
            .map(|file| number_of(&file))
            .unwrap(),
    )
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut refused = 0;
    for more in 0..4 {
        let ours = claim("a", LONG);
        let acquired = with_descriptors(free + more, || runtime.block_on(store.acquire(&ours)));
        match acquired {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                refused += 1;
                let taken = try_once(&other, "a", LONG).expect("nobody holds it");
                let _ = wait(other.release(&taken));
            }
            Ok(Acquired::Granted(grant)) => {
                assert!(try_once(&other, "a", LONG).is_none());
                let released = with_descriptors(free, || runtime.block_on(store.release(&grant)));
                assert!(matches!(released, Released::Unknown(_)), "{released:?}");
                assert!(is_held(&store, &grant), "it was not released");
                let _ = wait(store.release(&grant));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((1..4).contains(&refused), "{refused}");
    let listed = with_descriptors(free, || runtime.block_on(store.list("")));
    let error = listed.expect_err("locks that it could not read");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// `EMFILE` at each descriptor that the opening takes. Whether the other boot id is in use is not
/// known then, and nothing is changed.
pub(crate) fn another_boot_id_is_refused_by_a_process_without_descriptors() {
    let place = Place::new();
    std::fs::write(place.path("boot"), "22222222-2222-2222-2222-222222222222").unwrap();
    let store = place.store();
    let held = try_once(&store, "a", LONG).unwrap();
    let script = "mount --bind \"$1/boot\" /proc/sys/kernel/random/boot_id
        exec \"$0\" worker other-boot \"$1\"";
    let Some(mut command) = shell_that_mounts(script) else {
        return;
    };
    let status = command.arg(&place.0).status().unwrap();
    assert!(status.success());
    assert!(is_held(&store, &held));
}

/// Under another boot id than the process that holds.
pub(crate) fn open_with_few_descriptors(directory: &str) {
    let options = FileOptions::new(format!("{directory}/locks"));
    let file = format!("{directory}/locks/leasehold");
    let before = std::fs::read(&file).unwrap();
    let free = number_of(&File::open("/dev/null").unwrap()) as u64;
    let mut without = 0;
    for more in 0..20 {
        let opened = with_descriptors(free + more, || FileStore::open(&options));
        let refused = opened.expect_err("another boot id is let in");
        assert_eq!(std::fs::read(&file).unwrap(), before, "{more}: {refused}");
        match refused.kind() {
            ErrorKind::Unavailable => without += 1,
            kind => assert_eq!(kind, ErrorKind::Unsupported, "{more}: {refused}"),
        }
    }
    assert!((7..20).contains(&without), "{without}");
}

fn number_of(file: &File) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(file)
}

pub(crate) fn a_disk_that_is_full_at_any_page_refuses_and_keeps_every_hold() {
    let place = Place::new();
    let script = "mount -t tmpfs -o size=2m none \"$1\"; exec \"$0\" worker full \"$1\"";
    let Some(mut command) = shell_that_mounts(script) else {
        return;
    };
    let status = command.arg(&place.0).status().unwrap();
    assert!(status.success());
}

/// In a small file system of its own: pages are taken until only `left` are free, for each `left`.
pub(crate) fn fill(directory: &str) {
    let url = format!("file://{directory}/locks");
    let (store, other) = (crate::place::open(&url), crate::place::open(&url));
    let held = try_once(&store, "held", LONG).unwrap();
    let (mut granted, mut refused) = (0, 0);
    for left in 0..12 {
        let filler = format!("{directory}/filler");
        let pages = fill_up(&filler);
        File::options()
            .write(true)
            .open(&filler)
            .unwrap()
            .set_len((pages - left) * 4096)
            .unwrap();
        let ours = claim("a", LONG);
        match wait(store.acquire(&ours)) {
            Ok(Acquired::Granted(grant)) => {
                granted += 1;
                assert!(try_once(&other, "a", LONG).is_none());
                // Whatever the queue needs: the hold stays, and can be renewed and released.
                let _queued = wait(other.acquire(&claim("a", LONG)));
                assert!(is_held(&store, &grant));
                let released = wait(store.release(&grant));
                assert!(matches!(released, Released::Released), "{released:?}");
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                refused += 1;
                is_about_space(&error);
            }
        }
        assert!(is_held(&store, &held), "{left} pages left");
        std::fs::remove_file(&filler).unwrap();
        // Whoever got a place after the release, and did not ask again, is skipped after a second.
        // So a new key.
        let fresh: FileStore = crate::place::open(&url);
        assert!(try_once(&fresh, &format!("fresh/{left}"), LONG).is_some());
        let _ = wait(store.revoke(&ours.key, leasehold::store::Revoke::Now));
        crate::place::until("a free key", || {
            let Some(grant) = try_once(&other, "a", LONG) else {
                return false;
            };
            let _ = wait(other.release(&grant));
            true
        });
    }
    assert!(
        granted > 0 && refused > 0,
        "{granted} granted, {refused} refused"
    );
}

/// How many pages were free.
fn fill_up(path: &str) -> u64 {
    let mut file = File::create(path).unwrap();
    let mut pages = 0;
    while file.write_all(&[1; 4096]).is_ok() {
        pages += 1;
    }
    assert!(file.write_all_at(&[1], pages * 4096).is_err());
    pages
}

fn is_about_space(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("space"), "{error}");
}
