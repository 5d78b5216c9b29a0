//! Real Redis servers: ordinary processes on free loopback ports in a temporary folder, ended by
//! their id.

#![allow(dead_code)] // Each test file uses a part of it.

#[path = "canary.rs"]
pub(crate) mod canary;
#[path = "redis_cluster.rs"]
pub(crate) mod cluster;
#[path = "process.rs"]
mod process;
#[path = "wall_clock.rs"]
mod wall_clock;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use wall_clock::WallClock;

#[allow(unused_imports, reason = "each test file uses its own part")]
pub(crate) use process::{LOOKS, breathe, free_port, pause, until};

/// Longer than a busy machine holds an answer up. A URL that says how long it waits is taken as it
/// is.
const PATIENT: &str = "timeout_millis=20000";

/// The options of a URL, patient unless they say otherwise.
pub(crate) fn patiently(query: &str) -> String {
    if query.contains("timeout_millis=") {
        return query.to_owned();
    }
    let and = if query.is_empty() { "" } else { "&" };
    format!("{query}{and}{PATIENT}")
}

/// The server's program: another version, or Valkey, where the environment names one.
pub(crate) fn program() -> String {
    std::env::var("LEASEHOLD_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Whether the servers that tests start are of Redis 6.
pub(crate) fn is_of_version_6() -> bool {
    let version = Command::new(program()).arg("--version").output();
    let version = version.expect("it runs").stdout;
    String::from_utf8_lossy(&version).contains(" v=6.")
}

/// A server without persistence, unless its arguments say otherwise.
pub(crate) struct RedisServer {
    port: u16,
    folder: PathBuf,
    arguments: Vec<String>,
    clock: Option<WallClock>,
    child: Option<Child>,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// `arguments` come last, and win.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::start_by(arguments, false)
    }

    /// A server whose wall clock the test may [set](Self::clock).
    pub(crate) fn start_with_clock(arguments: &[&str]) -> Self {
        Self::start_by(arguments, true)
    }

    fn start_by(arguments: &[&str], has_clock: bool) -> Self {
        canary::watch();
        let password = arguments
            .iter()
            .skip_while(|word| **word != "--requirepass")
            .nth(1);
        assert!(
            password.is_none_or(|password| password.contains(canary::CANARY)),
            "no canary in a password"
        );
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "leasehold-redis-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut server = Self {
            port: 0,
            clock: has_clock.then(|| WallClock::in_folder(&folder)),
            folder,
            arguments,
            child: None,
        };
        // Another process may take a free port before the server does.
        for _ in 0..10 {
            server.port = free_port();
            if server.launch() {
                return server;
            }
        }
        panic!(
            "redis-server does not start; see {}",
            server.folder.display()
        );
    }

    fn launch(&mut self) -> bool {
        let log = std::fs::File::create(self.folder.join("log")).expect("a log file");
        let mut command = Command::new(program());
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args([
                "--save",
                "",
                "--appendonly",
                "no",
                "--daemonize",
                "no",
                "--dir",
            ])
            .arg(&self.folder)
            .args(&self.arguments)
            .stdout(Stdio::from(log))
            .stderr(Stdio::null());
        if let Some(clock) = &self.clock {
            clock.of(&mut command);
        }
        let child = command
            .spawn()
            .expect("redis-server is installed (apt-get install redis-server), or LEASEHOLD_REDIS_SERVER names one");
        let child = self.child.insert(child);
        process::answers(child, || answers(self.port))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn clock(&self) -> &WallClock {
        self.clock.as_ref().expect("it was started with a clock")
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// `query` may be empty.
    pub(crate) fn url(&self, query: &str) -> String {
        format!("redis://127.0.0.1:{}/0?{}", self.port, patiently(query))
    }

    /// What a marker of its first database names: the beginnings of the ids of its run and of its
    /// data, and the number.
    pub(crate) fn incarnation(&self) -> String {
        let info = self.cli(&["INFO"]);
        let field = |name: &str| {
            let mut lines = info.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.expect("it says so").trim()[..16].to_owned()
        };
        format!("{}-{}-0", field("run_id"), field("master_replid"))
    }

    /// Runs `redis-cli`, as an operator or a client in another language would; what it prints,
    /// trimmed.
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        let is_user = arguments.starts_with(&["ACL", "SETUSER"]);
        let mut words = arguments
            .iter()
            .filter(|word| is_user && word.starts_with('>'));
        assert!(
            words.all(|password| password.contains(canary::CANARY)),
            "no canary in a password"
        );
        cli(self.port, arguments)
    }

    /// SIGSTOP: it keeps its connections and answers nothing.
    pub(crate) fn pause(&self) {
        self.signal("-STOP");
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        let status = Command::new("kill")
            .args([signal, &id])
            .status()
            .expect("kill");
        assert!(status.success(), "kill {signal}");
    }

    /// kill -9: no farewell, nothing saved.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("SIGKILL");
            child.wait().expect("its end");
        }
    }

    /// As [`restart`](Self::restart), with other arguments.
    pub(crate) fn restart_with(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(ToString::to_string).collect();
        self.restart();
    }

    /// Starts again on the same port and in the same folder.
    pub(crate) fn restart(&mut self) {
        self.kill();
        // The old sockets may need a moment to be gone.
        for _ in 0..100 {
            if self.launch() {
                return;
            }
            pause();
        }
        panic!(
            "redis-server does not start again; see {}",
            self.folder.display()
        );
    }
}

/// What `redis-cli` prints, trimmed.
pub(crate) fn cli(port: u16, arguments: &[&str]) -> String {
    let output = Command::new("redis-cli")
        .args(["-p", &port.to_string()])
        .args(arguments)
        .output()
        .expect("redis-cli is installed");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        // What is left of a test's folder harms nobody.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Whether it answers, and has loaded its data. A server with a password answers too.
fn answers(port: u16) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 64];
        let length = stream.read(&mut answer)?;
        let answer = &answer[..length];
        Ok::<_, std::io::Error>(answer.starts_with(b"+PONG") || answer.starts_with(b"-NOAUTH"))
    };
    ask().unwrap_or(false)
}
