//! A process is killed at each system call of each operation (`strace`). Whatever happened before,
//! the store is whole and the lock can be taken.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::store::{Acquired, FileStore, LockMode, Released, Revoke, Store};

use crate::place::{Place, claim, is_held, open, try_once, until, wait, worker};

const OPERATIONS: &[&str] = &[
    "open",
    "close",
    "acquire",
    "queue",
    "renew",
    "release",
    "again",
    "release-again",
    "close-after",
    "hand-over",
    "withdraw",
    "downgrade",
    "revoke",
    "list",
];

/// Calls that do not touch the store, and whose number may change from run to run.
const OTHERS: &[&str] = &[
    "brk",
    "futex",
    "getrandom",
    "madvise",
    "mmap",
    "mprotect",
    "munmap",
    "sched_yield",
];

/// Nothing else here makes this call: it marks where an operation begins and ends.
const MARK: &str = "getppid";

/// The TTLs with which an operation is tried. Where a lock is free at its end only, the first is
/// short, for the next one waits for it; a process that is stalled for longer than that tries again
/// with the next.
fn ttls(options: &str) -> &'static [u64] {
    if options.contains("on_death=now") {
        &[1_000_000]
    } else {
        &[100, 1000, 10_000]
    }
}

/// One operation, as the process that is killed in it.
pub(crate) fn step(operation: &str, url: &str, ttl: &str) {
    let ttl = Duration::from_millis(ttl.parse().unwrap());
    if operation == "open" {
        mark();
        let store = open(url);
        mark();
        std::mem::forget(store);
        return;
    }
    let store = open(url);
    let ours = claim("k", ttl);
    if operation == "close" {
        mark();
        drop(store);
        mark();
        return;
    }
    if matches!(operation, "again" | "release-again" | "close-after") {
        // The file of the key stays after the second hold.
        for _ in 0..2 {
            let held = try_once(&store, "k", ttl).unwrap();
            let _ = wait(store.release(&held));
        }
    }
    if operation == "close-after" {
        mark();
        drop(store);
        mark();
        return;
    }
    if matches!(operation, "acquire" | "again" | "queue") {
        mark();
        let acquired = wait(store.acquire(&ours)).unwrap();
        mark();
        let is_granted = matches!(acquired, Acquired::Granted(_));
        assert_eq!(is_granted, operation != "queue", "{acquired:?}");
        std::mem::forget(store);
        return;
    }
    let mut ours = ours;
    if operation == "downgrade" {
        ours.mode = LockMode::Write;
    }
    let Acquired::Granted(grant) = wait(store.acquire(&ours)).unwrap() else {
        panic!("the lock is not free")
    };
    let next = open(url);
    if matches!(operation, "hand-over" | "downgrade") {
        let mut claim = claim("k", ttl);
        claim.mode = LockMode::Read;
        let queued = wait(next.acquire(&claim)).unwrap();
        assert!(matches!(queued, Acquired::Busy { .. }), "{queued:?}");
    }
    mark();
    match operation {
        "renew" => assert!(is_held(&store, &grant)),
        "release" | "release-again" | "hand-over" => {
            let released = wait(store.release(&grant));
            assert!(matches!(released, Released::Released), "{released:?}");
        }
        "withdraw" => wait(store.withdraw(&grant.claim)).unwrap(),
        "downgrade" => drop(wait(store.downgrade(&grant)).unwrap()),
        "revoke" => drop(wait(store.revoke(&grant.claim.key, Revoke::Now)).unwrap()),
        "list" => assert_eq!(wait(store.list("k")).unwrap().len(), 1),
        other => panic!("no such operation: {other}"),
    }
    mark();
    std::mem::forget((store, next));
}

fn mark() {
    let _ = rustix::process::getppid();
}

/// The calls of an operation, each with how often the process had made it by then. `None` if the
/// operation failed, as it does when the TTL ends before it.
pub(crate) fn calls_of(
    place: &Place,
    operation: &str,
    url: &str,
    ttl: u64,
) -> Option<Vec<(String, usize)>> {
    let trace = place.path("trace");
    let output = strace(&["-o", &trace], operation, url, ttl)
        .output()
        .unwrap();
    if !output.status.success() {
        println!("{operation} {url} with a TTL of {ttl} ms: {output:?}");
        return None;
    }
    let mut counts = HashMap::new();
    let mut marks = 0;
    let mut calls = Vec::new();
    for line in std::fs::read_to_string(&trace).unwrap().lines() {
        let Some((name, _)) = line.split_once('(') else {
            continue;
        };
        let count: &mut usize = counts.entry(name.to_owned()).or_default();
        *count += 1;
        marks += usize::from(name == MARK);
        if marks == 1 && name != MARK && !OTHERS.contains(&name) {
            calls.push((name.to_owned(), *count));
        }
    }
    assert_eq!(marks, 2, "{operation}");
    Some(calls)
}

pub(crate) fn strace(options: &[&str], operation: &str, url: &str, ttl: u64) -> Command {
    let worker = worker(&["step", operation, url, &ttl.to_string()]);
    let mut command = Command::new("strace");
    command.arg("-qq").args(options).arg(worker.get_program());
    command.args(worker.get_args());
    command
}

pub(crate) fn a_process_that_is_killed_at_any_system_call_leaves_a_whole_store() {
    let mut killed = 0;
    for options in ["?on_death=ttl", "?on_death=now"] {
        for operation in OPERATIONS {
            killed += killed_in(operation, options);
        }
    }
    println!("killed at {killed} system calls");
    assert!(killed > 100);
}

fn killed_in(operation: &str, options: &str) -> usize {
    let is_queued = operation == "queue";
    // The same directory as that in which it is killed, so that it makes the same calls.
    let calls = in_time(operation, options, |ttl| {
        let place = Place::new();
        let _before = (operation != "open").then(|| Before::new(&place, is_queued));
        calls_of(&place, operation, &place.url(options), ttl)
    });
    for (name, count) in &calls {
        let what = format!("{operation} {options} {name} {count}");
        let inject = format!("inject={name}:signal=KILL:when={count}");
        let trace = format!("trace={name}");
        let words = ["-o", "/dev/null", "-e", &trace, "-e", &inject];
        in_time(&what, options, |ttl| {
            let place = Place::new();
            let url = place.url(options);
            // The directory is made by the operation that opens it, and by nobody else.
            let before = (operation != "open").then(|| Before::new(&place, is_queued));
            let status = strace(&words, operation, &url, ttl).status().unwrap();
            if status.signal() != Some(9) {
                println!("{what} with a TTL of {ttl} ms: not killed");
                return None;
            }
            let before = before.unwrap_or_else(|| Before::new(&place, is_queued));
            before.assert_whole(&what, options, Duration::from_millis(ttl));
            Some(())
        });
    }
    calls.len()
}

/// What comes of it with the first TTL that was long enough for it. An attempt that fails before
/// its TTL is over has no excuse.
fn in_time<T>(what: &str, options: &str, attempt: impl Fn(u64) -> Option<T>) -> T {
    let clock = Clock::system().unwrap();
    for &ttl in ttls(options) {
        let begun_at = clock.stamp();
        if let Some(came) = attempt(ttl) {
            return came;
        }
        let took = clock.stamp().since(&begun_at);
        let is_late = took >= Duration::from_millis(ttl);
        assert!(
            is_late,
            "{what}: failed within its TTL: {took:?} of {ttl} ms"
        );
    }
    panic!("{what}: no TTL was long enough")
}

/// A process that was there before, and its holds.
struct Before {
    store: FileStore,
    bystander: leasehold::store::Grant,
    holder: Option<leasehold::store::Grant>,
}

fn hold(store: &FileStore, key: &str) -> leasehold::store::Grant {
    try_once(store, key, Duration::from_secs(1000)).unwrap()
}

impl Before {
    fn new(place: &Place, holds: bool) -> Self {
        let store = place.store();
        Self {
            bystander: hold(&store, "bystander"),
            holder: holds.then(|| hold(&store, "k")),
            store,
        }
    }

    fn assert_whole(self, what: &str, options: &str, ttl: Duration) {
        let store = &self.store;
        wait(store.list("")).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(is_held(store, &self.bystander), "{what}");
        if let Some(holder) = &self.holder {
            assert!(is_held(store, holder), "{what}");
            let released = wait(store.release(holder));
            assert!(matches!(released, Released::Released), "{what}");
        }
        let mut taken = try_once(store, "k", ttl);
        if options.contains("now") {
            assert!(taken.is_some(), "{what}: not free at once");
        } else {
            until(what, || {
                taken = taken.take().or_else(|| try_once(store, "k", ttl));
                taken.is_some()
            });
        }
        let taken = taken.unwrap();
        assert!(taken.token > self.bystander.token, "{what}");
        let _ = wait(store.release(&taken));
        assert_eq!(wait(store.list("")).unwrap().len(), 1, "{what}");
        let next = FileStore::open(&leasehold::store::FileOptions::new(store.directory()));
        next.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}
