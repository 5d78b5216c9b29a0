//! Migrations under a lock, through PgBouncer in transaction mode, where an advisory lock excludes
//! nobody.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::command::{Running, TOOL, code, printed, tool};
use crate::files::Directory;
use crate::postgres::{PgBouncer, PgServer};

/// A session of psql that stays open.
struct Session {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Session {
    fn open(url: &str) -> Self {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-A", "-t", url]);
        psql.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = psql.spawn().unwrap();
        Self {
            to: child.stdin.take().unwrap(),
            from: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn ask(&mut self, question: &str) -> String {
        writeln!(self.to, "{question};").unwrap();
        let mut answer = String::new();
        self.from.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Fails if it has ended, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Why the lock of a migration tool is not enough there.
#[test]
fn behind_a_pooler_two_sessions_hold_one_advisory_lock() {
    let server = PgServer::start();
    let pooler = PgBouncer::with_connections(&server, 1);
    for (url, second) in [(server.url(), "f"), (pooler.url(), "t")] {
        let [mut a, mut b] = [Session::open(&url), Session::open(&url)];
        assert_eq!(a.ask("SELECT pg_try_advisory_lock(7)"), "t");
        assert_eq!(b.ask("SELECT pg_try_advisory_lock(7)"), second, "{url}");
    }
}

#[test]
fn of_three_hosts_that_migrate_at_once_one_applies_each_migration() {
    // A database that nobody prepared.
    let server = PgServer::start_with(&["fsync=on"]);
    let pooler = PgBouncer::before(&server);
    let directory = Directory::new();
    let migrations = directory.path("migrations");
    std::fs::create_dir(&migrations).unwrap();
    for (name, sql) in [
        (
            "1_accounts",
            "CREATE TABLE accounts (id int, cents bigint); INSERT INTO accounts VALUES (1, 50);",
        ),
        (
            "2_double",
            "UPDATE accounts SET cents = cents * 2; SELECT pg_sleep(0.2);",
        ),
        ("3_name", "ALTER TABLE accounts ADD COLUMN name text;"),
    ] {
        std::fs::write(format!("{migrations}/{name}.sql"), sql).unwrap();
    }
    let folder = std::path::Path::new(TOOL).parent().unwrap().display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let example = format!("{}/../examples/tool/migrate.sh", env!("CARGO_MANIFEST_DIR"));
    let direct = server.url();
    let listen = direct.split('@').nth(1).unwrap().split('/').next().unwrap();
    let store = format!("{}?create=auto&listen={listen}", pooler.url());
    let host = |label: &str| {
        let mut command = tool(&["run", "--store", &store, "--lock", "migrate"]);
        command.args([
            "--wait",
            "forever",
            "--label",
            label,
            "--",
            &example,
            &migrations,
        ]);
        command.env("PATH", &path).env("DATABASE_URL", pooler.url());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    };
    let hosts = ["a", "b", "c"].map(host);
    let mut applied = Vec::new();
    for host in hosts {
        let output = host.output();
        assert_eq!(code(&output), 0, "{}", printed(&output));
        let said = String::from_utf8(output.stdout).unwrap();
        applied.extend(
            said.lines()
                .filter_map(|line| line.strip_prefix("applied "))
                .map(str::to_owned),
        );
    }
    applied.sort();
    assert_eq!(applied, ["1_accounts", "2_double", "3_name"]);
    let mut session = Session::open(&direct);
    assert_eq!(
        session.ask("SELECT cents, name IS NULL FROM accounts"),
        "100|t"
    );
    assert_eq!(session.ask("SELECT count(*) FROM migrations_done"), "3");
}
