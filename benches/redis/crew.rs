//! A crew: processes of a few tasks each that contend for one lock, by our library, by its scripts
//! alone, or by `BLPOP`.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use leasehold::clock::{Clock, ClockKind};
use leasehold::{Lock, LockManager};
use redis::aio::MultiplexedConnection;

use crate::by_hand::Hand;
use crate::{raw, runtime};

pub(crate) const CHILD: &str = "crew";
pub(crate) const PROCESSES: usize = 4;
pub(crate) const TASKS: usize = 4;
/// The lock, and the list that `BLPOP` waits for.
const KEY: &str = "crew";
pub(crate) const LIST: &str = "crew-list";

/// By what the tasks take turns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum By {
    Fair,
    Plain,
    Hand,
    List,
}

/// How long each task is inside, and then outside.
#[derive(Clone, Copy)]
pub(crate) struct Pauses {
    pub(crate) inside: Duration,
    pub(crate) outside: Duration,
}

/// One turn of one task, in nanoseconds of a clock that all processes share.
#[derive(Clone, Copy)]
pub(crate) struct Section {
    pub(crate) task: usize,
    pub(crate) asked: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

pub(crate) struct Crew(Vec<Process>);

struct Process {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Crew {
    pub(crate) fn start(by: By, port: u16, pauses: Pauses) -> Self {
        let start = |_| {
            let mut child = Command::new(std::env::current_exe().expect("this program"))
                .arg(CHILD)
                .arg(format!("{by:?}"))
                .arg(port.to_string())
                .arg(pauses.inside.as_micros().to_string())
                .arg(pauses.outside.as_micros().to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("another process");
            let orders = child.stdin.take().expect("its input");
            let answers = BufReader::new(child.stdout.take().expect("its output")).lines();
            Process {
                child,
                orders,
                answers,
            }
        };
        Self((0..PROCESSES).map(start).collect())
    }

    /// Lets all contend for `span`; a task that waits then ends its turn. The turns in their order.
    pub(crate) fn contend(&mut self, span: Duration) -> Vec<Section> {
        for process in &mut self.0 {
            writeln!(process.orders, "{}", span.as_millis()).expect("it reads");
        }
        let mut sections = Vec::new();
        for (number, process) in self.0.iter_mut().enumerate() {
            for line in process.answers.by_ref() {
                let line = line.expect("a line");
                let mut words = line.split(' ').map(|word| word.parse().ok());
                let mut next = || words.next().flatten();
                let Some(task) = next() else { break };
                let mut time = || next().expect("a time");
                sections.push(Section {
                    task: number * TASKS + task as usize,
                    asked: time(),
                    start: time(),
                    end: time(),
                });
            }
        }
        sections.sort_by_key(|section| section.start);
        sections
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // It may have ended by itself.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

#[derive(Clone)]
enum Door {
    Ours(Lock),
    Hand(Hand),
    List(MultiplexedConnection),
}

/// The other process: contends for each line that names milliseconds, and prints its turns.
pub(crate) fn child(words: &[String]) {
    let [by, port, inside, outside] = words else {
        panic!("how, port, inside and outside: {words:?}");
    };
    let port = port.parse().expect("a port");
    let micros = |text: &str| Duration::from_micros(text.parse().expect("microseconds"));
    let (inside, outside) = (micros(inside), micros(outside));
    let (orders, mut received) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if orders.send(line).is_err() {
                break;
            }
        }
    });
    runtime().block_on(async {
        let doors = doors(by, port).await;
        while let Some(line) = received.recv().await {
            let span = Duration::from_millis(line.parse().expect("milliseconds"));
            let until = now() + u64::try_from(span.as_nanos()).expect("a short span");
            let tasks = doors.iter().cloned().enumerate().map(|(number, door)| {
                tokio::spawn(async move {
                    let mut turns = Vec::new();
                    while now() < until {
                        turns.push((number, turn(&door, inside).await));
                        if !outside.is_zero() {
                            tokio::time::sleep(outside).await;
                        }
                    }
                    turns
                })
            });
            let tasks: Vec<_> = tasks.collect();
            let mut text = String::new();
            for task in tasks {
                for (number, [asked, start, end]) in task.await.expect("its turns") {
                    text.push_str(&format!("{number} {asked} {start} {end}\n"));
                }
            }
            println!("{text}done");
        }
    });
}

async fn doors(by: &str, port: u16) -> Vec<Door> {
    if by == format!("{:?}", By::List) {
        let mut doors = Vec::new();
        for _ in 0..TASKS {
            doors.push(Door::List(raw::connect_for_blocking(port).await));
        }
        return doors;
    }
    if by == format!("{:?}", By::Hand) {
        return vec![Door::Hand(Hand::connect(port).await); TASKS];
    }
    let url = format!("redis://127.0.0.1:{port}");
    let locks = LockManager::connect(&url).await.expect("a manager");
    let lock = locks.lock(KEY);
    let lock = if by == format!("{:?}", By::Fair) {
        lock.fair()
    } else {
        lock
    };
    vec![Door::Ours(lock); TASKS]
}

/// When a task asked, was inside, and left.
async fn turn(door: &Door, inside: Duration) -> [u64; 3] {
    let asked = now();
    match door {
        Door::Ours(lock) => {
            let guard = lock.acquire().await.expect("its turn");
            let (start, end) = stay(inside).await;
            drop(guard.release().await);
            [asked, start, end]
        }
        Door::Hand(hand) => {
            // No two claims of a process ask in the same nanosecond.
            let owner = hand.enter(asked).await;
            let (start, end) = stay(inside).await;
            hand.release(&owner).await;
            [asked, start, end]
        }
        Door::List(connection) => {
            let mut connection = connection.clone();
            let mut pop = redis::cmd("BLPOP");
            let popped = pop.arg(LIST).arg(0).exec_async(&mut connection).await;
            popped.expect("its turn");
            let (start, end) = stay(inside).await;
            let mut push = redis::cmd("RPUSH");
            let pushed = push.arg(LIST).arg(1).exec_async(&mut connection).await;
            pushed.expect("the next one's turn");
            [asked, start, end]
        }
    }
}

async fn stay(inside: Duration) -> (u64, u64) {
    let start = now();
    if !inside.is_zero() {
        tokio::time::sleep(inside).await;
    }
    (start, now())
}

fn now() -> u64 {
    let clock = Clock::system().expect("the machine's clocks");
    // One clock for all processes of the machine.
    clock.stamp().on(ClockKind::Raw)
}
