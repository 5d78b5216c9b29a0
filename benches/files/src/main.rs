//! What a lock in a file costs, beside `open + flock + close` and SQLite's `BEGIN IMMEDIATE`, in
//! one run.
//!
//! ```sh
//! cargo build --release -p leasehold-cli
//! cargo run --release --manifest-path benches/files/Cargo.toml -- target/release/leasehold
//! ```
//!
//! Each figure is the median of blocks that alternate, so that other work on the machine meets all
//! of them alike. In front of the tool's path, or alone: `pairs`, `contended`, `wake` for one part.
//! `turns COUNT` makes that many turns and prints nothing: `strace -f -c` and
//! `valgrind --tool=callgrind` then count what a turn costs, whatever else the machine does.

mod contended;
mod pairs;
mod tool;
mod wake;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use leasehold::LockManager;
use rustix::time::{ClockId, clock_gettime};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["contend", what, callers, directory, mark] => {
            contended::worker(what, callers, directory, mark);
        }
        ["wait", what, directory] => wake::worker(what, directory),
        ["turns", count] => pairs::turns(&Directory::new(), count.parse().expect("a number")),
        ["pairs"] => pairs::print(&Directory::new()),
        ["contended"] => contended::print(&Directory::new()),
        ["wake"] => wake::print(&Directory::new()),
        ["tool", tool] => tool::print(tool, &Directory::new()),
        ["deaths", tool] => tool::print_deaths(tool, &Directory::new()),
        [tool] => {
            let directory = Directory::new();
            pairs::print(&directory);
            contended::print(&directory);
            wake::print(&directory);
            tool::print(tool, &directory);
            tool::print_deaths(tool, &directory);
        }
        _ => println!(
            "name the tool, or one of: pairs, contended, wake, tool TOOL, deaths TOOL, turns COUNT"
        ),
    }
}

/// In memory, if there is a file system in memory. Deleted at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let memory = PathBuf::from("/dev/shm");
        let above = if memory.is_dir() {
            memory
        } else {
            std::env::temp_dir()
        };
        let path = above.join(format!("leasehold-bench-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().expect("a runtime")
}

async fn manager(directory: &str) -> LockManager {
    let url = format!("file://{directory}/locks");
    LockManager::connect(&url).await.expect("a directory")
}

/// SQLite as a lock: the faster journal, no wait for the disk, and its own waiting.
fn sqlite(directory: &str) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(format!("{directory}/db")).expect("a database");
    let settings =
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 10000;
        CREATE TABLE IF NOT EXISTS held (key TEXT PRIMARY KEY, token INTEGER) WITHOUT ROWID;
        INSERT OR IGNORE INTO held VALUES ('a', 0)";
    connection.execute_batch(settings).expect("a table");
    connection
}

/// Takes the lock and records it, as a store of locks has to.
fn sqlite_pair(connection: &rusqlite::Connection) {
    let pair = "BEGIN IMMEDIATE; UPDATE held SET token = token + 1 WHERE key = 'a'; COMMIT";
    connection.execute_batch(pair).expect("the lock");
}

/// The machine's clock, in microseconds: all processes read the same.
fn micros() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

fn this_program(words: &[&str]) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command.spawn().expect("a process")
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The middle half.
fn spread(figures: &mut [f64]) -> String {
    let middle = median(figures);
    let (low, high) = (figures[figures.len() / 4], figures[figures.len() * 3 / 4]);
    format!("{middle:8.1} us [{low:.1}, {high:.1}]")
}
