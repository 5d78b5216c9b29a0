//! A process is stopped between two system calls of one step (`strace`), while others delete the
//! file of its key and make it again.

use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use leasehold::store::{FileStore, Released, Store};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::calls::{calls_of, strace};
use crate::place::{Place, is_held, try_once, until, wait};

const LONG: Duration = Duration::from_secs(1000);

fn hold_and_release(store: &FileStore, key: &str) {
    let held = try_once(store, key, LONG).unwrap();
    let released = wait(store.release(&held));
    assert!(matches!(released, Released::Released), "{released:?}");
}

/// The file of a key that is freed twice in a row stays, and says that the key is free.
fn leave_a_free_file(store: &FileStore) {
    hold_and_release(store, "k");
    hold_and_release(store, "k");
}

/// `strace` and the process that it traces. They end with this value.
struct Traced(Child);

impl Traced {
    fn send(&self, signal: Signal) {
        let group = Pid::from_raw(self.0.id() as i32).unwrap();
        // It fails if both have ended.
        let _ = kill_process_group(group, signal);
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.send(Signal::KILL);
        let _ = self.0.wait();
    }
}

/// The stopped process has opened the file and not locked it. The file is deleted, and another
/// process makes a new one and holds the key: the old file still says that the key is free.
pub(crate) fn a_file_that_was_deleted_before_it_was_locked_is_not_used() {
    let ttl = u64::try_from(LONG.as_millis()).unwrap();
    let nth = {
        let place = Place::new();
        let store = place.store();
        leave_a_free_file(&store);
        let calls = calls_of(&place, "acquire", &place.url(""), ttl).unwrap();
        let first = calls.iter().find(|(name, _)| name == "openat").unwrap();
        first.1
    };
    let place = Place::new();
    let store = place.store();
    leave_a_free_file(&store);
    let trace = place.path("trace");
    let inject = format!("inject=openat:signal=STOP:when={nth}");
    let words = ["-o", &trace, "-e", "trace=openat,flock", "-e", &inject];
    // It demands that it does not get the key.
    let mut command = strace(&words, "queue", &place.url(""), ttl);
    let command = command.process_group(0).stderr(Stdio::inherit());
    let mut traced = Traced(command.spawn().unwrap());
    let calls = || std::fs::read_to_string(&trace).unwrap_or_default();
    until("a process that is stopped", || {
        calls().contains("stopped by SIGSTOP")
    });
    let last = |calls: String| {
        let mut calls = calls.lines().filter(|line| !line.starts_with("---"));
        calls.next_back().unwrap_or_default().to_owned()
    };
    let stopped_at = last(calls());
    assert!(
        stopped_at.starts_with("openat(") && stopped_at.contains("\"k\""),
        "{stopped_at}"
    );

    // The file of `k` goes when another key is freed.
    hold_and_release(&store, "other");
    let held = try_once(&place.store(), "k", LONG).unwrap();
    traced.send(Signal::CONT);
    let mut status = None;
    until("the end of the process", || {
        status = traced.0.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success(), "two hold the key: {}", calls());
    assert!(is_held(&store, &held));
}
