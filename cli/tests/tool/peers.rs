//! The tool beside Curator's own locks on one path, with real Java clients.

use crate::command::{Mark, Running, code, leasehold, printed, until};
use crate::peer::Peer;
use crate::zookeeper::Server;

fn url(server: &Server, chroot: &str) -> String {
    let address = server.address();
    format!("zookeeper://{address}/{chroot}?session_timeout=4s&tick_time=500ms")
}

/// A real wait of a session time-out of four seconds.
#[test]
fn a_curator_mutex_behind_a_barrier_gets_in_after_the_revoking_tool_has_gone() {
    let server = Server::shared();
    let url = url(&server, "tool-barrier");
    let begun = Mark::new();
    let script = format!("echo begun > {}; sleep 3600", begun.path());
    let mut holder = Running::run(&url, &["--lock", "k"], &script);
    begun.line();
    let mut peer = Peer::curator(&server);
    peer.ask("take mutex /tool-barrier/k 60000");
    until("the mutex waits in the queue", || {
        let looked = leasehold(&["inspect", "--store", &url, "--json", "k"]);
        printed(&looked).contains("\"queue\":1")
    });
    let revoked = leasehold(&["revoke", "--store", &url, "k"]);
    assert_eq!(code(&revoked), 0, "{}", printed(&revoked));
    assert_eq!(peer.answer(), "taken");
    // The tool ends a command before the store frees its lock.
    let ended = holder.0.try_wait().unwrap();
    assert!(ended.is_some(), "the old holder's tool still runs");
    assert_eq!(code(&holder.output()), 76);
    // Another tool finds Java's mutex, and then a free key: nothing is left of the barrier.
    let impatient = ["run", "--store", &url, "--lock", "k", "--wait", "0s", "--"];
    let run = |arguments: &[&str]| code(&leasehold(&[&impatient, arguments].concat()));
    assert_eq!(run(&["true"]), 75);
    peer.free();
    assert_eq!(run(&["true"]), 0);
}

#[test]
fn no_update_is_lost_between_the_tool_that_writes_and_curators_write_lock() {
    let server = Server::shared();
    let url = url(&server, "tool-write");
    let file = Mark::new();
    std::fs::write(file.path(), "0").unwrap();
    let mut peer = Peer::curator(&server);
    peer.ask(&format!("turns write /tool-write/k 25 {}", file.path()));
    let script = format!(
        "n=$(cat {0}); sleep 0.01; printf %s $((n + 1)) > {0}",
        file.path()
    );
    for _ in 0..10 {
        let turn = Running::run(&url, &["--lock", "k", "--write"], &script).output();
        assert_eq!(code(&turn), 0, "{}", printed(&turn));
    }
    assert_eq!(peer.answer(), "done");
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "35");
}

#[test]
fn the_tools_readers_and_writers_and_curators_keep_each_other_out_and_readers_hold_together() {
    let server = Server::shared();
    let url = url(&server, "tool-modes");
    let mut peer = Peer::curator(&server);
    let run = |mode: &str| {
        let arguments = [
            "run", "--store", &url, "--lock", "k", mode, "--wait", "0s", "--", "true",
        ];
        code(&leasehold(&arguments))
    };
    for (theirs, ours, expected) in [
        ("read", "--shared", 0),
        ("read", "--write", 75),
        ("write", "--shared", 75),
        ("write", "--write", 75),
    ] {
        assert!(peer.takes(theirs, "/tool-modes/k", 10_000));
        assert_eq!(run(ours), expected, "{ours} beside a held {theirs} lock");
        peer.free();
    }
    for (ours, theirs, gets_in) in [
        ("--shared", "read", true),
        ("--shared", "write", false),
        ("--write", "read", false),
        ("--write", "write", false),
    ] {
        let (begun, ends) = (Mark::new(), Mark::new());
        let script = format!(
            "echo begun > {}; while [ ! -e {} ]; do sleep 0.05; done",
            begun.path(),
            ends.path()
        );
        let holder = Running::run(&url, &["--lock", "k", ours], &script);
        begun.line();
        let is_in = peer.takes(theirs, "/tool-modes/k", 300);
        assert_eq!(is_in, gets_in, "{theirs} beside {ours}");
        if is_in {
            peer.free();
        }
        std::fs::write(ends.path(), "").unwrap();
        assert_eq!(code(&holder.output()), 0);
    }
}
