//! Real PostgreSQL servers: ordinary processes on free loopback ports in a temporary folder, ended
//! by their id.

#![allow(dead_code, reason = "each test file uses its own part")]

#[path = "canary.rs"]
pub(crate) mod canary;
#[path = "process.rs"]
mod process;
#[path = "wall_clock.rs"]
mod wall_clock;

use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use process::{answers, free_port};
#[allow(unused_imports, reason = "each test file uses its own part")]
pub(crate) use process::{breathe, pause, until};
use wall_clock::WallClock;

/// A server whose data are in a temporary folder. It is not durable, unless its settings say
/// otherwise: it survives a `kill -9` of its processes all the same.
pub(crate) struct PgServer {
    port: u16,
    folder: PathBuf,
    settings: Vec<String>,
    clock: Option<WallClock>,
    disk: Option<u32>,
    child: Option<Child>,
}

impl PgServer {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// `settings` are `name=value`.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        let server = Self::in_folder(new_folder(), settings);
        server.make();
        server.started()
    }

    /// A server whose wall clock the test may [set](Self::clock).
    pub(crate) fn start_with_clock(settings: &[&str]) -> Self {
        let mut server = Self::in_folder(new_folder(), settings);
        server.make();
        server.clock = Some(WallClock::in_folder(&server.folder));
        server.started()
    }

    /// A server that sees a [disk](Self::disk) of this size beside its own, for a tablespace.
    pub(crate) fn start_with_disk(megabytes: u32, settings: &[&str]) -> Self {
        let mut server = Self::in_folder(new_folder(), settings);
        server.make();
        server.disk = Some(megabytes);
        fs::create_dir(server.disk()).expect("a folder");
        server.started()
    }

    /// Where the server sees its small disk.
    pub(crate) fn disk(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// Nothing is left of the small disk.
    pub(crate) fn fill_disk(&self) {
        let mut file = fs::File::create(self.on_disk()).expect("a file");
        let error = loop {
            if let Err(error) = file.write_all(&[1; 4096]) {
                break error;
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    }

    pub(crate) fn make_space(&self) {
        fs::remove_file(self.on_disk()).expect("it was filled");
    }

    /// The file that fills the small disk, which only the server has mounted.
    fn on_disk(&self) -> PathBuf {
        let server = self.child.as_ref().expect("it runs").id();
        PathBuf::from(format!(
            "/proc/{server}/root{}/filled",
            self.disk().display()
        ))
    }

    pub(crate) fn clock(&self) -> &WallClock {
        self.clock.as_ref().expect("it was started with a clock")
    }

    fn in_folder(folder: PathBuf, settings: &[&str]) -> Self {
        Self {
            port: 0,
            folder,
            settings: settings.iter().map(ToString::to_string).collect(),
            clock: None,
            disk: None,
            child: None,
        }
    }

    /// A hot standby of this server, which streams from it.
    pub(crate) fn standby(&self) -> Self {
        self.standby_with(&[])
    }

    /// `settings` are `name=value`.
    pub(crate) fn standby_with(&self, settings: &[&str]) -> Self {
        let folder = self.folder.with_extension("standby");
        fs::create_dir_all(&folder).expect("a temporary folder");
        give_away(&folder);
        let copied = as_postgres("pg_basebackup")
            .args([
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "--checkpoint=fast",
                "-R",
                "--no-sync",
            ])
            .args(["-p", &self.port.to_string(), "-D"])
            .arg(folder.join("data"))
            .output()
            .expect("pg_basebackup is installed (apt-get install postgresql)");
        assert!(copied.status.success(), "{}", text(&copied.stderr));
        Self::in_folder(folder, settings).started()
    }

    fn make(&self) {
        let made = as_postgres("initdb")
            .args([
                "-U",
                "postgres",
                "--auth=trust",
                "--no-sync",
                "-E",
                "UTF8",
                "--locale=C",
                "-D",
            ])
            .arg(self.folder.join("data"))
            .output()
            .expect("initdb is installed (apt-get install postgresql)");
        assert!(made.status.success(), "{}", text(&made.stderr));
    }

    fn started(mut self) -> Self {
        // Another process may take a free port before the server does.
        for _ in 0..10 {
            self.port = free_port();
            if self.launch() {
                return self;
            }
        }
        panic!("postgres does not start; see {}", self.folder.display());
    }

    fn launch(&mut self) -> bool {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))
            .expect("a log file");
        let mut command = as_postgres("postgres");
        command
            .arg("-D")
            .arg(self.folder.join("data"))
            .args([
                "-p",
                &self.port.to_string(),
                "-c",
                "listen_addresses=127.0.0.1",
            ])
            .args([
                "-c",
                "fsync=off",
                "-c",
                "wal_level=replica",
                "-c",
                "max_connections=200",
                "-c",
            ])
            .arg(format!("unix_socket_directories={}", self.folder.display()));
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        if let Some(clock) = &self.clock {
            clock.of(&mut command);
        }
        if let Some(megabytes) = self.disk {
            command = beside_a_disk(&command, megabytes, &self.disk());
        }
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::from(log))
            .spawn()
            .expect("postgres is installed (apt-get install postgresql)");
        let child = self.child.insert(child);
        answers(child, || psql(self.port, "postgres", "SELECT 1").is_ok())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        url(self.port)
    }

    /// Runs `psql`, as an operator would; what it prints, one line a row.
    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).expect("its log")
    }

    pub(crate) fn psql(&self, statements: &str) -> String {
        self.psql_raw(statements)
            .unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    pub(crate) fn psql_raw(&self, statements: &str) -> Result<String, String> {
        self.psql_in("postgres", statements)
    }

    pub(crate) fn psql_in(&self, database: &str, statements: &str) -> Result<String, String> {
        psql(self.port, database, statements)
    }

    /// The statements that make what is in a database, and fill it.
    pub(crate) fn dump(&self, database: &str) -> String {
        let dumped = as_postgres("pg_dump")
            .args([
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "--rows-per-insert=5000",
            ])
            .args(["-p", &self.port.to_string(), database])
            .output()
            .expect("pg_dump is installed (apt-get install postgresql)");
        assert!(dumped.status.success(), "{}", text(&dumped.stderr));
        // Commands of psql are no statements.
        let lines = text(&dumped.stdout);
        let lines = lines.lines().filter(|line| !line.starts_with('\\'));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// kill -9 of every process of the server: nothing is saved, no farewell.
    pub(crate) fn kill(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        self.signal("-9");
        let _ = child.kill();
        child.wait().expect("its end");
        // A server that was killed leaves its file behind.
        let _ = fs::remove_file(self.folder.join("data/postmaster.pid"));
    }

    /// SIGSTOP of every process of the server: it keeps its connections and answers nothing.
    pub(crate) fn pause(&self) {
        // Twice, for a process that was started in between.
        self.signal("-STOP");
        self.signal("-STOP");
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        // `runuser` or a thread of ours started it: the server's own id is in its file.
        let file = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap_or_default();
        let id = file.lines().next().unwrap_or_default();
        if id.is_empty() {
            return;
        }
        let children = Command::new("ps")
            .args(["-o", "pid=", "--ppid", id])
            .output();
        let children = children
            .map(|output| text(&output.stdout))
            .unwrap_or_default();
        let ids = children.split_whitespace().chain([id]);
        let _ = Command::new("kill")
            .arg(signal)
            .args(ids)
            .stderr(Stdio::null())
            .status();
    }

    /// Starts again on the same port and in the same folder.
    pub(crate) fn restart(&mut self) {
        self.kill();
        // The old sockets and shared memory may need a moment to be gone.
        for _ in 0..100 {
            if self.launch() {
                return;
            }
            pause();
        }
        panic!(
            "postgres does not start again; see {}",
            self.folder.display()
        );
    }

    /// Makes a standby a primary.
    pub(crate) fn promote(&self) {
        assert_eq!(self.psql("SELECT pg_promote()"), "t");
    }
}

/// A folder for the data of one server.
fn new_folder() -> PathBuf {
    canary::watch();
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("leasehold-postgres-{}-{count}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("a temporary folder");
    give_away(&folder);
    folder
}

/// The server that the tests of one kind share; it ends with the last of them.
pub(crate) type Shared = Mutex<Weak<PgServer>>;

pub(crate) fn shared(shared: &Shared, settings: &[&str]) -> Arc<PgServer> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(PgServer::start_with(settings));
        *shared = Arc::downgrade(&server);
        server
    })
}

impl Drop for PgServer {
    fn drop(&mut self) {
        self.kill();
        // What is left of a test's folder harms nobody.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// PgBouncer before a server: each transaction may be on another connection to it.
pub(crate) struct PgBouncer {
    port: u16,
    folder: PathBuf,
    most: u32,
    child: Child,
}

impl PgBouncer {
    pub(crate) fn before(server: &PgServer) -> Self {
        Self::with_connections(server, 20)
    }

    /// With so many connections to the server for all clients of a database.
    pub(crate) fn with_connections(server: &PgServer, most: u32) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = server.folder.with_extension(format!("pooler{count}"));
        // Another process may take a free port before the pooler does.
        for _ in 0..10 {
            fs::create_dir_all(&folder).expect("a temporary folder");
            give_away(&folder);
            let port = free_port();
            let file = configured(&folder, port, server, most);
            let child = as_user("pgbouncer")
                .args(["-q".as_ref(), file.as_os_str()])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("pgbouncer is installed (apt-get install pgbouncer)");
            let mut pooler = Self {
                port,
                folder: folder.clone(),
                most,
                child,
            };
            let connects = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
            if answers(&mut pooler.child, connects) {
                return pooler;
            }
        }
        panic!("pgbouncer does not start; see {}", folder.display());
    }

    /// Its clients keep their connections, and their next transactions are at this server, soon.
    pub(crate) fn lead_to(&self, server: &PgServer) {
        configured(&self.folder, self.port, server, self.most);
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-HUP", &id]).status();
        assert!(sent.expect("kill").success(), "no SIGHUP");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        url(self.port)
    }
}

/// Another mode of the poolers that tests start.
const POOL_MODE: &str = "LEASEHOLD_TEST_POOL_MODE";

/// The file of a pooler before a server.
fn configured(folder: &Path, port: u16, server: &PgServer, most: u32) -> PathBuf {
    let file = folder.join("pgbouncer.ini");
    let target = format!("host=127.0.0.1 port={} user=postgres", server.port);
    let mode = std::env::var(POOL_MODE).unwrap_or_else(|_| "transaction".to_owned());
    let text = format!(
        "[databases]\n* = {target}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n\
         pool_mode = {mode}\ndefault_pool_size = {most}\nunix_socket_dir =\nlogfile = {}\n",
        folder.join("log").display()
    );
    fs::write(&file, text).expect("a configuration");
    file
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What is left of a test's folder harms nobody.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

fn psql(port: u16, database: &str, statements: &str) -> Result<String, String> {
    let output = Command::new("psql")
        // A statement that waits for its own test's next step fails, and is named.
        .env("PGOPTIONS", "-c statement_timeout=60s")
        .args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            "127.0.0.1",
        ])
        .args(["-U", "postgres", "-d", database, "-p", &port.to_string()])
        .args(["-c", statements])
        .output()
        .expect("psql is installed (apt-get install postgresql)");
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(text(&output.stderr))
}

/// The folder of the programs of a version that is to be tested, such as
/// `/usr/lib/postgresql/15/bin`.
const PROGRAMS: &str = "LEASEHOLD_TEST_POSTGRES";

/// That, or the newest version that is installed where Debian and others put it.
fn programs() -> PathBuf {
    if let Some(folder) = std::env::var_os(PROGRAMS) {
        return folder.into();
    }
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .expect("postgresql is installed (apt-get install postgresql)")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            Some((version, path.join("bin")))
        })
        .collect();
    found.sort();
    found.pop().expect("a version of postgresql").1
}

/// A program of the server, which refuses to run as root.
fn as_postgres(program: &str) -> Command {
    as_user(programs().join(program))
}

/// A program that refuses to run as root.
fn as_user(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir("/");
    command
}

/// The same command, which sees a disk of its own there.
fn beside_a_disk(command: &Command, megabytes: u32, folder: &Path) -> Command {
    let (user, group) = (id_of("-u"), id_of("-g"));
    let options = format!("size={megabytes}m,mode=700,uid={user},gid={group}");
    let mut inside = Command::new("unshare");
    inside
        .args(["-m", "sh", "-c"])
        .arg("mount -t tmpfs -o \"$1\" none \"$2\" && shift 2 && exec \"$@\"")
        .args(["sh", &options])
        .arg(folder)
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir("/");
    inside
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id");
    text(&id.stdout) == "0"
}

fn id_of(option: &str) -> u32 {
    let id = Command::new("id").args([option, "postgres"]).output();
    text(&id.expect("id").stdout)
        .parse()
        .expect("the user postgres")
}

pub(crate) fn give_away(folder: &Path) {
    if is_root() {
        chown(folder, Some(id_of("-u")), Some(id_of("-g"))).expect("chown");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
