//! Four processes that take one lock again and again: how many holds, and how often the lock goes
//! to another process.
//!
//! Whoever counts the changes reads and writes a file within each hold, which takes about a
//! microsecond: a third of a hold that is handed off. So blocks of their own count the changes, and
//! the holds are those of blocks that do nothing within a hold.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::Connection;
use tokio::task::JoinSet;

use crate::{Directory, manager, median, micros, runtime, sqlite, this_program};

const PROCESSES: usize = 4;
const BLOCKS: usize = 9;
/// How long a block lasts, in microseconds.
const BLOCK: f64 = 400_000.0;

/// What one block counted, for each second.
#[derive(Default)]
struct Rates {
    holds: Vec<f64>,
    /// Those of the blocks that count the changes.
    marked: Vec<f64>,
    changes: Vec<f64>,
}

pub(crate) fn print(directory: &Directory) {
    let names = ["leasehold", "sqlite"];
    // SQLite refuses processes that make a new database at the same time.
    let _database = sqlite(&directory.path(""));
    for callers in ["1", "4"] {
        let mut rates = [Rates::default(), Rates::default()];
        for _ in 0..BLOCKS {
            for (name, rates) in names.iter().zip(&mut rates) {
                rates
                    .holds
                    .push(block(name, callers, directory, Mark::None).0);
                let (marked, changes) = block(name, callers, directory, Mark::InEachHold);
                rates.marked.push(marked);
                rates.changes.push(changes);
            }
        }
        let of = |figures: [&Vec<f64>; 2]| {
            let ratios = figures[0].iter().zip(figures[1]).map(|(a, b)| a / b);
            median(&mut ratios.collect::<Vec<f64>>())
        };
        let [ours, theirs] = &rates;
        let in_holds = of([&ours.holds, &theirs.holds]);
        let in_marked = of([&ours.marked, &theirs.marked]);
        let in_changes = of([&ours.changes, &theirs.changes]);
        println!(
            "{PROCESSES} processes on one key, {callers} callers in each, {BLOCKS} blocks, for each second:"
        );
        for (name, rates) in names.iter().zip(&mut rates) {
            println!(
                "  {name:34} {:8.0} holds; while they are counted, {:8.0} and {:8.0} changes of process",
                median(&mut rates.holds),
                median(&mut rates.marked),
                median(&mut rates.changes)
            );
        }
        println!(
            "  {:34} {in_holds:8.2} {in_marked:32.2} {in_changes:12.2}",
            "ratio"
        );
    }
}

fn block(what: &str, callers: &str, directory: &Directory, mark: Mark) -> (f64, f64) {
    let path = directory.path("");
    let file = MarkFile::open(&path);
    file.write([0; 2]);
    let words = ["contend", what, callers, &path, mark.word()];
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| this_program(&words)).collect();
    for process in &mut processes {
        let mut ready = [0];
        let stdout = process.stdout.as_mut().expect("a pipe");
        stdout
            .read_exact(&mut ready)
            .expect("a process that is ready");
    }
    for process in &mut processes {
        let stdin = process.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"g").expect("a process that waits");
    }
    let mut holds = 0.0;
    for process in processes {
        let output = process.wait_with_output().expect("its end");
        let count = String::from_utf8(output.stdout).expect("a number");
        holds += count.trim().parse::<f64>().expect("a number");
    }
    let [_, changes] = file.read();
    (holds / (BLOCK / 1e6), f64::from(changes) / (BLOCK / 1e6))
}

/// What a holder does within its hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    None,
    InEachHold,
}

impl Mark {
    fn word(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::InEachHold => "marked",
        }
    }
}

/// A file that each holder reads and writes: the last process, and how often it was another one.
struct MarkFile(File);

impl MarkFile {
    fn of(word: &str, directory: &str) -> Option<Self> {
        (word == Mark::InEachHold.word()).then(|| Self::open(directory))
    }

    fn open(directory: &str) -> Self {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        Self(options.open(format!("{directory}/mark")).expect("a file"))
    }

    fn read(&self) -> [u32; 2] {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0).expect("a mark");
        let (last, changes) = bytes.split_at(4);
        [last, changes].map(|part| u32::from_le_bytes(part.try_into().expect("four bytes")))
    }

    fn write(&self, [last, changes]: [u32; 2]) {
        let bytes = [last.to_le_bytes(), changes.to_le_bytes()].concat();
        self.0.write_all_at(&bytes, 0).expect("a mark");
    }

    /// Within a hold.
    fn touch(&self) {
        let [last, changes] = self.read();
        let this = std::process::id();
        self.write([this, changes + u32::from(last != this)]);
    }
}

pub(crate) fn worker(what: &str, callers: &str, directory: &str, mark: &str) {
    let callers = callers.parse().expect("a number");
    let mark = MarkFile::of(mark, directory);
    let holds = if what == "sqlite" {
        by_sqlite(callers, directory, mark)
    } else {
        by_leasehold(callers, directory, mark)
    };
    println!("{holds}");
}

/// Each caller is a thread with a connection.
fn by_sqlite(callers: usize, directory: &str, mark: Option<MarkFile>) -> u32 {
    let connections: Vec<Connection> = (0..callers).map(|_| sqlite(directory)).collect();
    let holds = AtomicU32::new(0);
    let end = begin();
    std::thread::scope(|scope| {
        for connection in connections {
            scope.spawn(|| {
                let connection = connection;
                while micros() < end {
                    let take = "BEGIN IMMEDIATE; UPDATE held SET token = token + 1 WHERE key = 'a'";
                    connection.execute_batch(take).expect("the lock");
                    mark.iter().for_each(MarkFile::touch);
                    connection.execute_batch("COMMIT").expect("its end");
                    holds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    holds.into_inner()
}

/// Each caller is a task.
fn by_leasehold(callers: usize, directory: &str, mark: Option<MarkFile>) -> u32 {
    let runtime = runtime();
    let locks = runtime.block_on(manager(directory));
    let mark = Arc::new(mark);
    let end = begin();
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (lock, mark) = (locks.lock("a"), Arc::clone(&mark));
        let take = async move {
            let mut holds = 0;
            while micros() < end {
                let guard = lock.acquire().await.expect("its turn");
                mark.iter().for_each(MarkFile::touch);
                let _ = guard.release().await;
                holds += 1;
            }
            holds
        };
        tasks.spawn_on(take, runtime.handle());
    }
    runtime.block_on(tasks.join_all()).into_iter().sum()
}

/// Waits for the others. Gives the time at which this block ends.
fn begin() -> f64 {
    print!("r");
    std::io::stdout().flush().expect("a pipe");
    let mut go = [0];
    std::io::stdin().read_exact(&mut go).expect("a pipe");
    micros() + BLOCK
}
