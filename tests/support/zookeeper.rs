//! Real ZooKeeper servers for tests: ordinary processes on free ports, ended by their id.

#![allow(dead_code, reason = "each test file uses its part")]

#[path = "canary.rs"]
pub(crate) mod canary;
#[path = "ports.rs"]
mod ports;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::Key;
use leasehold::clock::Clock;
use leasehold::store::{Acquired, Claim, Grant, Label, OwnerToken, Renewed, Store};
use leasehold::zookeeper::{ZooKeeperMode, ZooKeeperOptions, ZooKeeperStore};
pub(crate) use ports::free_port;

/// The tests of `tests/zookeeper_async.rs` are those of other files once more, with the other
/// driver.
const IS_BOXED: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"zookeeper_async");
/// The servers' tick.
pub(crate) const TICK: Duration = Duration::from_millis(500);
/// How long a test waits for what has to happen before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// A server process with a folder of its own. Killed by its id, and its folder deleted, when it is
/// dropped.
#[derive(Debug)]
pub(crate) struct Server {
    process: Mutex<Child>,
    dir: PathBuf,
    pub(crate) port: u16,
}

impl Server {
    /// A server alone.
    pub(crate) fn start() -> Self {
        let server = Self::spawn("alone", free_port(), "", None, TICK);
        server.wait_until_ready();
        server
    }

    /// One server for all tests of a file that run at the same time; each uses a chroot of its own.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap();
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start());
        *shared = Arc::downgrade(&server);
        server
    }

    /// A server that may be one of several: `more` are further lines of its settings.
    pub(crate) fn spawn(
        name: &str,
        port: u16,
        more: &str,
        id: Option<u32>,
        tick: Duration,
    ) -> Self {
        canary::watch();
        let unique = OwnerToken::generate().unwrap().expose();
        let dir = std::env::temp_dir().join(format!("leasehold-zk-{name}-{unique}"));
        fs::create_dir_all(dir.join("data")).unwrap();
        if let Some(id) = id {
            fs::write(dir.join("data/myid"), id.to_string()).unwrap();
        }
        let settings = format!(
            "tickTime={}\ninitLimit=10\nsyncLimit=5\ndataDir={}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\nminSessionTimeout=1000\n\
             maxSessionTimeout=60000\n{more}\n",
            tick.as_millis(),
            dir.display(),
        );
        fs::write(dir.join("zoo.cfg"), settings).unwrap();
        let process = run(&dir);
        Self {
            process: Mutex::new(process),
            dir,
            port,
        }
    }

    /// Waits until the server serves.
    pub(crate) fn wait_until_ready(&self) {
        for _ in 0..600 {
            if self
                .ask("srvr")
                .is_some_and(|answer| answer.contains("Mode:"))
            {
                return;
            }
            pause(Duration::from_millis(100));
        }
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        panic!("zookeeper on port {} does not serve:\n{log}", self.port);
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Runs one command in the command-line client of ZooKeeper.
    pub(crate) fn cli(&self, command: &str) {
        let status = Command::new("java")
            .args(["-cp", JAR, "org.apache.zookeeper.ZooKeeperMain"])
            .args(["-server", &self.address()])
            .args(command.split(' '))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{command}");
    }

    /// The answer to a four-letter word.
    pub(crate) fn ask(&self, word: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(word.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.ask("srvr")
            .is_some_and(|answer| answer.contains("Mode: leader"))
    }

    /// SIGSTOP.
    pub(crate) fn freeze(&self) {
        signal(self.process.lock().unwrap().id(), "STOP");
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        signal(self.process.lock().unwrap().id(), "CONT");
    }

    /// SIGKILL.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Starts a killed server again, with its data.
    pub(crate) fn start_again(&self) {
        *self.process.lock().unwrap() = run(&self.dir);
        self.wait_until_ready();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap();
        let _ = process.kill();
        let _ = process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Three servers that elect a leader.
#[derive(Debug)]
pub(crate) struct Ensemble {
    pub(crate) servers: Vec<Server>,
}

impl Ensemble {
    pub(crate) fn start(tick: Duration) -> Self {
        Self::start_with(tick, |_, port| port)
    }

    /// `as_seen_by_first` gives the port at which the first server finds the quorum port of another
    /// one.
    pub(crate) fn start_with(
        tick: Duration,
        mut as_seen_by_first: impl FnMut(u32, u16) -> u16,
    ) -> Self {
        let ports: Vec<u16> = (0..9).map(|_| free_port()).collect();
        let member = |n: u32, quorum: u16| {
            format!(
                "server.{n}=127.0.0.1:{quorum}:{}\n",
                ports[2 * n as usize + 2]
            )
        };
        let quorum = |n: u32| ports[2 * n as usize + 1];
        let plain: String = (1..=3).map(|n| member(n, quorum(n))).collect();
        let first: String = member(1, quorum(1))
            + &(2..=3)
                .map(|n| member(n, as_seen_by_first(n, quorum(n))))
                .collect::<String>();
        let spawn = |n: u32| {
            let members = if n == 1 { &first } else { &plain };
            Server::spawn("member", ports[n as usize - 1], members, Some(n), tick)
        };
        // The first starts last, so that it follows.
        let (second, third) = (spawn(2), spawn(3));
        second.wait_until_ready();
        third.wait_until_ready();
        let ensemble = Self {
            servers: vec![spawn(1), second, third],
        };
        ensemble.wait_until_ready();
        ensemble
    }

    pub(crate) fn wait_until_ready(&self) {
        for server in &self.servers {
            server.wait_until_ready();
        }
    }

    pub(crate) fn leader(&self) -> &Server {
        self.servers
            .iter()
            .find(|server| server.is_leader())
            .expect("there is a leader")
    }

    pub(crate) fn followers(&self) -> Vec<&Server> {
        self.servers
            .iter()
            .filter(|server| !server.is_leader())
            .collect()
    }

    pub(crate) fn addresses(&self) -> String {
        let addresses: Vec<_> = self.servers.iter().map(Server::address).collect();
        addresses.join(",")
    }
}

fn run(dir: &Path) -> Child {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(dir.join("log"))
        .unwrap();
    Command::new("java")
        .args([
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            JAR,
        ])
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(dir.join("zoo.cfg"))
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("a java runtime and zookeeper are installed: the tests never pass without them")
}

pub(crate) fn signal(id: u32, name: &str) {
    let status = Command::new("kill")
        .args([format!("-{name}"), id.to_string()])
        .status()
        .unwrap();
    assert!(status.success(), "kill -{name} {id}");
}

/// This test once more, in a process of its own, with a word in its environment and its output at
/// hand.
pub(crate) fn again(module: &str, test: &str, variable: &str, word: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &test_name(module, test), "--nocapture"])
        .env(variable, word)
        .stdout(Stdio::piped());
    command
}

/// A test's name as its binary knows it: a file of tests may be a module of another one.
fn test_name(module: &str, test: &str) -> String {
    match module.split_once("::") {
        Some((_, inner)) => format!("{inner}::{test}"),
        None => test.to_owned(),
    }
}

/// A real pause: real servers count real time, which no test moves by hand.
#[allow(clippy::disallowed_methods, reason = "see above")]
pub(crate) fn pause(span: Duration) {
    std::thread::sleep(span);
}

/// A real pause that lets other tasks run, for the same reason.
#[allow(clippy::disallowed_methods, reason = "see above")]
pub(crate) async fn rest(span: Duration) {
    tokio::time::sleep(span).await;
}

/// Waits until something is so; fails the test if it never is.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let clock = Clock::system().unwrap();
    let start = clock.stamp();
    while !is_so().await {
        assert!(clock.stamp().since(&start) < PATIENCE, "never came: {what}");
        rest(Duration::from_millis(20)).await;
    }
}

/// Options for a server of this file: a session of 20 ticks.
pub(crate) fn options(servers: &str, chroot: &str) -> ZooKeeperOptions {
    let mut options = ZooKeeperOptions::new(servers);
    options.chroot = chroot.to_owned();
    options.session_timeout = Duration::from_secs(10);
    options.tick_time = TICK;
    if IS_BOXED {
        // By its name: a package without that driver uses this file, too.
        let boxed = ZooKeeperOptions::parse("zookeeper://127.0.0.1?driver=zookeeper-async");
        options.driver = boxed.unwrap().driver;
    }
    options
}

/// A store on a server, under a chroot.
pub(crate) async fn store(server: &Server, chroot: &str) -> ZooKeeperStore {
    open(options(&server.address(), chroot)).await
}

pub(crate) async fn simple_store(server: &Server, chroot: &str) -> ZooKeeperStore {
    let mut options = options(&server.address(), chroot);
    options.mode = ZooKeeperMode::Simple;
    open(options).await
}

/// Eight ticks: short, so that tests need not wait long for its end.
pub(crate) const SHORT: Duration = Duration::from_secs(4);

/// A store whose session is [`SHORT`].
pub(crate) async fn short_store(address: &str, chroot: &str) -> ZooKeeperStore {
    let mut options = options(address, chroot);
    options.session_timeout = SHORT;
    open(options).await
}

pub(crate) async fn open(options: ZooKeeperOptions) -> ZooKeeperStore {
    ZooKeeperStore::open(options, Clock::system().unwrap())
        .await
        .unwrap()
}

pub(crate) fn claim(key: &str) -> Claim {
    let key: Key = key.parse().unwrap();
    let label = Label::parse("tester").unwrap();
    Claim::new(
        key,
        OwnerToken::generate().unwrap(),
        label,
        Duration::from_secs(10),
    )
}

pub(crate) fn claim_in(mode: leasehold::store::LockMode, key: &str) -> Claim {
    let mut claim = claim(key);
    claim.mode = mode;
    claim
}

/// The grant of a claim that nobody contends with.
pub(crate) async fn granted(store: &ZooKeeperStore, claim: &Claim) -> Grant {
    match store.acquire(claim).await.unwrap() {
        Acquired::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) async fn renewed(store: &ZooKeeperStore, grant: &Grant) -> Renewed {
    store.renew(std::slice::from_ref(grant)).await.remove(0)
}

/// Acquires through faults, as a manager does: the same claim again, until there is an answer.
pub(crate) async fn insist(store: &ZooKeeperStore, claim: &Claim) -> Grant {
    let clock = Clock::system().unwrap();
    let start = clock.stamp();
    loop {
        assert!(
            clock.stamp().since(&start) < PATIENCE,
            "the lock never came"
        );
        match clock
            .timeout(Duration::from_secs(2), store.acquire(claim))
            .await
        {
            Some(Ok(Acquired::Granted(grant))) => return grant,
            Some(Ok(_) | Err(_)) | None => rest(Duration::from_millis(20)).await,
        }
    }
}

pub(crate) async fn is_busy(store: &ZooKeeperStore, claim: &Claim) -> bool {
    matches!(store.acquire(claim).await.unwrap(), Acquired::Busy { .. })
}

/// Waits in the queue as a manager does: look, subscribe, look again, wait for the hint.
pub(crate) async fn wait_for(store: &ZooKeeperStore, claim: &Claim) -> Grant {
    loop {
        if let Acquired::Granted(grant) = store.acquire(claim).await.unwrap() {
            return grant;
        }
        let hint = store.subscribe(claim).await.unwrap();
        match store.acquire(claim).await.unwrap() {
            Acquired::Granted(grant) => return grant,
            _ => drop(hint.await),
        }
    }
}

/// A client of the driver's crate, to look at the tree and to write what a foreigner would.
pub(crate) async fn raw(server: &Server) -> zookeeper_client::Client {
    zookeeper_client::Client::connect(&server.address())
        .await
        .unwrap()
}

/// The names of a node's children; none if there is no such node.
pub(crate) async fn children(client: &zookeeper_client::Client, path: &str) -> Vec<String> {
    match client.list_children(path).await {
        Ok(children) => children,
        Err(zookeeper_client::Error::NoNode) => Vec::new(),
        Err(other) => panic!("{other}"),
    }
}

/// A key's contenders in the order of a client that reads only their numbers.
pub(crate) async fn line(client: &zookeeper_client::Client, path: &str) -> Vec<String> {
    let mut names = children(client, path).await;
    names.retain(|name| name.len() > 10);
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    names
}
