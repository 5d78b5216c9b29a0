//! A process of a test that is stopped in the middle of its work, and continues when another
//! process holds the lock.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use leasehold::RunError;
use leasehold::run::CommitProof;

/// Of the process: the address of its server, and where it is stopped.
const ADDRESS: &str = "LEASEHOLD_TEST_ADDRESS";
const PLACE: &str = "LEASEHOLD_TEST_PLACE";

/// The body of a test that is the process: with the address, or nothing, because nobody started it
/// as that.
pub(crate) fn in_the_process<F: Future<Output = ()>>(work: impl FnOnce(String) -> F) {
    if let Ok(address) = std::env::var(ADDRESS) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(work(address));
    }
}

/// In the process: it is stopped here, if this is the place.
pub(crate) fn stop_at(place: &str) {
    if is_at(place) {
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
}

/// In the process: whether this is the place. If so, the process may be stopped from here on.
pub(crate) fn is_at(place: &str) -> bool {
    let is_it = std::env::var(PLACE).unwrap() == place;
    if is_it {
        println!("at the place");
    }
    is_it
}

/// In the process: the last word of [`Stopped::finish`].
pub(crate) fn report<T, E: Debug>(outcome: Result<CommitProof, RunError<T, E>>) {
    match outcome {
        Ok(proof) => println!("ended committed {proof:?}"),
        Err(RunError::Fenced { seen, .. }) => println!("ended fenced {}", seen.unwrap()),
        Err(RunError::RolledBack { .. }) => println!("ended rolled back"),
        Err(other) => println!("ended {other:?}"),
    }
}

pub(crate) struct Stopped {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Stopped {
    /// Starts a test of this program, by its whole name, as a process of its own, and stops it at
    /// the place.
    pub(crate) fn start(test: &str, place: &str, address: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(ADDRESS, address)
            .env(PLACE, place)
            // With one thread libtest prints the test's name before the process' first line.
            .env("RUST_TEST_THREADS", "2")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut stopped = Self { child, lines };
        stopped.next("at the place");
        stopped.signal("-STOP");
        stopped
    }

    /// Its next line that begins like this.
    pub(crate) fn next(&mut self, start: &str) -> String {
        let mut all = Vec::new();
        for line in self.lines.by_ref().map(Result::unwrap) {
            if line.starts_with(start) {
                return line;
            }
            all.push(line);
        }
        panic!("it ended before `{start}`: {all:?}");
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.unwrap().success());
    }

    /// Lets it continue.
    pub(crate) fn go(&mut self) {
        self.signal("-CONT");
        if let Some(mut stdin) = self.child.stdin.take() {
            // One that awaited something reads nothing, and may have ended.
            let _ = stdin.write_all(b"go\n");
        }
    }

    /// Lets it continue, and gives what it reports.
    pub(crate) fn finish(mut self) -> String {
        self.go();
        let ended = self.next("ended ");
        assert!(self.child.wait().unwrap().success());
        ended
    }
}

impl Drop for Stopped {
    /// A test that failed leaves no process behind.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
