//! Real MariaDB servers: ordinary processes on free loopback ports in a temporary folder, ended by
//! their id.

#![allow(dead_code, reason = "each test file uses its own part")]

#[path = "canary.rs"]
pub(crate) mod canary;
#[path = "process.rs"]
mod process;

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use process::{answers, free_port};
#[allow(unused_imports, reason = "each test file uses its own part")]
pub(crate) use process::{breathe, pause, until};

/// A server whose data are in a temporary folder. A commit that it answered survives a `kill -9`.
pub(crate) struct MariaDb {
    port: u16,
    folder: PathBuf,
    settings: Vec<String>,
    databases: AtomicU32,
    child: Mutex<Option<Child>>,
}

impl MariaDb {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// `settings` are options such as `--sync-binlog=0`.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        let mut server = Self {
            port: 0,
            folder: new_folder(),
            settings: settings.iter().map(ToString::to_string).collect(),
            databases: AtomicU32::new(0),
            child: Mutex::new(None),
        };
        server.make();
        // Another process may take a free port before the server does.
        for _ in 0..10 {
            server.port = free_port();
            if server.launch() {
                return server;
            }
        }
        panic!("mariadbd does not start; see {}", server.folder.display());
    }

    /// The only node of a Galera cluster, which comes with the server.
    pub(crate) fn start_in_a_cluster() -> Self {
        let listen = format!("gmcast.listen_addr=tcp://127.0.0.1:{}", free_port());
        Self::start_with(&[
            "--wsrep-on=ON",
            "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
            "--wsrep-cluster-address=gcomm://",
            "--wsrep-node-address=127.0.0.1",
            "--binlog-format=ROW",
            &format!("--wsrep-provider-options={listen}"),
        ])
    }

    fn make(&self) {
        let made = as_mysql("mariadb-install-db")
            .args(["--no-defaults", "--skip-test-db"])
            .args(["--auth-root-authentication-method=normal"])
            .args(["--skip-name-resolve", "--innodb-log-file-size=8M"])
            .arg(format!("--datadir={}", self.data().display()))
            .arg(self.tmpdir())
            .output()
            .expect("mariadb is installed (apt-get install mariadb-server)");
        assert!(made.status.success(), "{}", text(&made.stderr));
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// A server that starts deletes the temporary tables of others in the same folder.
    fn tmpdir(&self) -> String {
        format!("--tmpdir={}", self.folder.display())
    }

    fn launch(&self) -> bool {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))
            .expect("a log file");
        let child = as_mysql("/usr/sbin/mariadbd")
            .args(["--no-defaults", "--bind-address=127.0.0.1"])
            .args(["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M"])
            .args(["--max-connections=200", "--skip-name-resolve"])
            .arg(format!("--port={}", self.port))
            .arg(format!("--datadir={}", self.data().display()))
            .arg(self.tmpdir())
            .arg(format!("--socket={}", self.folder.join("socket").display()))
            .arg(format!("--pid-file={}", self.folder.join("pid").display()))
            .args(&self.settings)
            .stdout(Stdio::null())
            .stderr(Stdio::from(log))
            .spawn()
            .expect("mariadb is installed (apt-get install mariadb-server)");
        let mut running = self.child.lock().expect("one thread");
        answers(running.insert(child), || {
            sql(self.port, "mysql", "SELECT 1").is_ok()
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A new database, in which the user `app` may read and write, and nothing else.
    pub(crate) fn database(&self) -> String {
        let name = format!("bank{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(
            "mysql",
            &format!(
                "CREATE DATABASE {name}; CREATE USER IF NOT EXISTS app@'127.0.0.1'; \
                 GRANT SELECT, INSERT, UPDATE, DELETE, CREATE TEMPORARY TABLES ON {name}.* TO app@'127.0.0.1'"
            ),
        );
        name
    }

    pub(crate) fn url(&self, user: &str, database: &str) -> String {
        url(self.port, user, database)
    }

    /// Runs `mariadb`, as an operator would; what it prints, one line a row.
    pub(crate) fn sql(&self, database: &str, statements: &str) -> String {
        sql(self.port, database, statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// kill -9 of the server: nothing is saved, no farewell.
    pub(crate) fn kill(&self) {
        let child = self.child.lock().expect("one thread").take();
        if let Some(mut child) = child {
            child.kill().expect("SIGKILL");
            child.wait().expect("its end");
        }
    }

    /// Starts again on the same port and in the same folder.
    pub(crate) fn restart(&self) {
        self.kill();
        for _ in 0..100 {
            if self.launch() {
                return;
            }
            pause();
        }
        panic!(
            "mariadbd does not start again; see {}",
            self.folder.display()
        );
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.kill();
        // What is left of a test's folder harms nobody.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The server that the tests of one kind share; it ends with the last of them.
pub(crate) type Shared = Mutex<Weak<MariaDb>>;

pub(crate) fn shared(shared: &Shared) -> Arc<MariaDb> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(MariaDb::start());
        *shared = Arc::downgrade(&server);
        server
    })
}

pub(crate) fn url(port: u16, user: &str, database: &str) -> String {
    format!("mysql://{user}@127.0.0.1:{port}/{database}")
}

/// A folder for the data of one server.
fn new_folder() -> PathBuf {
    canary::watch();
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("leasehold-mariadb-{}-{count}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("a temporary folder");
    give_away(&folder);
    folder
}

fn sql(port: u16, database: &str, statements: &str) -> Result<String, String> {
    let output = Command::new("mariadb")
        .args(["--no-defaults", "-h", "127.0.0.1", "-u", "root", "-N", "-B"])
        .args(["-P", &port.to_string(), "-e", statements, database])
        .output()
        .expect("mariadb is installed (apt-get install mariadb-server)");
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(text(&output.stderr))
}

/// A program of the server, which refuses to run as root.
fn as_mysql(program: &str) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=mysql", "--regid=mysql", "--clear-groups"]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir("/");
    command
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id");
    text(&id.stdout) == "0"
}

fn give_away(folder: &Path) {
    let id = |option| {
        let id = Command::new("id").args([option, "mysql"]).output();
        let id = text(&id.expect("id").stdout);
        id.parse::<u32>().expect("the user mysql")
    };
    if is_root() {
        chown(folder, Some(id("-u")), Some(id("-g"))).expect("chown");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
