//! The words in which the tool is driven.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::redis::{RedisServer, canary, pause};

/// For as long as a busy machine may need.
const LOOKS: u32 = 12_000;

pub(crate) const TOOL: &str = env!("CARGO_BIN_EXE_leasehold");

/// A server of the test's own, on which nothing was held before.
pub(crate) fn server() -> (RedisServer, String) {
    let server = RedisServer::start();
    let url = server.url("restart_quarantine=off");
    (server, url)
}

/// Runs the tool to its end.
pub(crate) fn leasehold(arguments: &[&str]) -> Output {
    judged(tool(arguments).output().unwrap())
}

/// Runs `leasehold counter` to its end, with the words of a command line.
pub(crate) fn counter(url: &str, words: &str) -> Output {
    let mut arguments = vec!["counter", "--store", url];
    arguments.extend(words.split_whitespace());
    leasehold(&arguments)
}

/// Runs `leasehold run` to its end, with the words of a command line.
pub(crate) fn run(url: &str, words: &str) -> Output {
    let mut arguments = vec!["run", "--store", url];
    arguments.extend(words.split_whitespace());
    leasehold(&arguments)
}

/// `leasehold run` under the lock `k`.
pub(crate) fn tool_that_runs(url: &str, command: &[&str]) -> Command {
    let mut arguments = vec!["run", "--store", url, "--lock", "k", "--"];
    arguments.extend(command);
    tool(&arguments)
}

/// Runs `leasehold run` to its end under the lock `k`, with a script for the shell.
pub(crate) fn run_script(url: &str, script: &str) -> Output {
    run_command(url, &["sh", "-c", script])
}

/// Runs `leasehold run` to its end under the lock `k`.
pub(crate) fn run_command(url: &str, command: &[&str]) -> Output {
    judged(tool_that_runs(url, command).output().unwrap())
}

/// Whatever the tool says, it says no password.
fn judged(output: Output) -> Output {
    for said in [&output.stdout, &output.stderr] {
        assert!(!canary::is_in(said), "a password was printed");
    }
    output
}

/// A program that ignores no signal, whatever the tests' own parent ignores (`nohup`, a background
/// job): the tool leaves ignored signals ignored.
pub(crate) fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

pub(crate) fn tool(arguments: &[&str]) -> Command {
    let mut command = with_default_signals(TOOL);
    command
        .args(arguments)
        .env_remove("LEASEHOLD_STORE")
        .stdin(Stdio::null());
    command
}

/// The exit code, as a shell gives it.
pub(crate) fn code(output: &Output) -> i32 {
    let signal = || output.status.signal().map(|signal| 128 + signal);
    let code = output.status.code().or_else(signal);
    code.unwrap_or_else(|| panic!("no status: {output:?}"))
}

pub(crate) fn printed(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    format!("{out}{}", String::from_utf8_lossy(&output.stderr))
}

/// Every line of a stream, read as JSON.
pub(crate) fn lines(stream: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(stream);
    let lines = text.lines().map(|line| {
        serde_json::from_str(line).unwrap_or_else(|why| panic!("{why} in {line:?} of {text}"))
    });
    lines.collect()
}

/// A tool that runs meanwhile. Ended with this value.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// `leasehold run` over this store: the options, and a script for the shell.
    pub(crate) fn run(url: &str, options: &[&str], script: &str) -> Self {
        let mut arguments = vec!["run", "--store", url];
        arguments.extend(options);
        arguments.extend(["--", "sh", "-c", script]);
        Self::start(&arguments)
    }

    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(&mut tool(arguments))
    }

    /// A line for the shell that becomes the tool.
    pub(crate) fn shell(line: &str) -> Self {
        Self::spawn(Command::new("sh").args(["-c", line]))
    }

    fn spawn(command: &mut Command) -> Self {
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    pub(crate) fn signal(&self, signal: &str) {
        send(signal, &self.0.id().to_string());
    }

    pub(crate) fn output(mut self) -> Output {
        let stdout = all_of(self.0.stdout.take().unwrap());
        let stderr = all_of(self.0.stderr.take().unwrap());
        judged(Output {
            status: until_it_ends(&mut self.0),
            stdout: stdout.join().unwrap(),
            stderr: stderr.join().unwrap(),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if it has ended, which is what we want.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads a stream to its end, beside us: its writer does not wait for a reader, and we do not wait
/// for it without a limit.
pub(crate) fn all_of(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    })
}

pub(crate) fn until_it_ends(child: &mut Child) -> ExitStatus {
    let mut ended = None;
    until("the end of a program", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    ended.unwrap()
}

pub(crate) fn send(signal: &str, id: &str) {
    let status = Command::new("kill").args([signal, id]).status().unwrap();
    assert!(status.success(), "kill {signal} {id}");
}

/// A path of the test's own, at which nothing is yet.
pub(crate) struct Mark(PathBuf);

impl Mark {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("leasehold-tool-{}-{count}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Waits until a whole line stands there.
    pub(crate) fn line(&self) -> String {
        let mut line = String::new();
        until(&format!("a line in {}", self.path()), || {
            line = std::fs::read_to_string(&self.0).unwrap_or_default();
            line.ends_with('\n')
        });
        line.trim().to_owned()
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.exists()
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // A file that is left in the temporary folder harms nobody.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Another program is waited for: no clock of ours moves it.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        pause();
    }
    panic!("never came: {what}");
}

/// Waits until a tool has asked for a lock that is held, and listens for its end.
pub(crate) fn until_subscribed(server: &RedisServer) {
    until("a subscription", || {
        !server.cli(&["PUBSUB", "CHANNELS"]).is_empty() || server.cli(&["PUBSUB", "NUMPAT"]) != "0"
    });
}

/// A script that reports that it has begun, and ends when the other mark is there.
pub(crate) fn until_marked(begun: &Mark, ends: &Mark) -> String {
    let (begun, ends) = (begun.path(), ends.path());
    format!("echo > {begun}; until [ -e {ends} ]; do sleep 0.01; done")
}

/// Whether a process runs; one that has ended and was not waited for does not.
pub(crate) fn runs(id: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{id}/stat")) else {
        return false;
    };
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}
