//! Other crates beside ours in the same run, in a program of a package of its own
//! (`benches/peers`).

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::server::RedisServer;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/peers/release/peers");
const BUILD: &str =
    "cargo build --release --manifest-path benches/peers/Cargo.toml --target-dir target/peers";

/// `rslock`, which does its rounds when it is asked to.
pub(crate) struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// `what`: `pair` times acquire and release, `acquire` the acquire alone. `None` if the program
    /// was not built.
    pub(crate) fn start(what: &str, servers: &[RedisServer]) -> Option<Self> {
        let urls = servers
            .iter()
            .map(|server| format!("redis://127.0.0.1:{}", server.port()));
        let spawned = Command::new(PROGRAM)
            .arg(what)
            .args(urls)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = spawned else {
            println!("rslock is not measured; build it: {BUILD}");
            return None;
        };
        let orders = child.stdin.take().expect("its input");
        let answers = BufReader::new(child.stdout.take().expect("its output")).lines();
        Some(Self {
            child,
            orders,
            answers,
        })
    }

    pub(crate) fn rounds(&mut self, rounds: u32) -> Duration {
        writeln!(self.orders, "{rounds}").expect("it reads");
        let line = self.answers.next().expect("it answers").expect("a line");
        Duration::from_nanos(line.parse().expect("nanoseconds"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
