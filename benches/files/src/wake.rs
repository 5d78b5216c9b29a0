//! From a release to the guard of a waiter in another process.
//!
//! Beside it is what such a wake-up is made of: a message from one process to another, and one hop
//! more to a task on another thread.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FlockOperation;
use tokio::sync::Notify;

use crate::{Directory, manager, micros, runtime, spread, this_program};

const ROUNDS: usize = 300;
/// A waiter that was asked to wait does so after this time, and its caches are cold then.
const REST: Duration = Duration::from_millis(4);

/// A process that waits, and answers with the time at which it was woken.
struct Waiter {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Waiter {
    fn new(what: &str, path: &str) -> Self {
        let mut process = this_program(&["wait", what, path]);
        let orders = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut waiter = Self {
            process,
            orders,
            answers,
        };
        assert!(waiter.answer().is_nan(), "it is ready");
        waiter
    }

    fn order(&mut self) {
        self.orders.write_all(b"g").expect("a waiter");
    }

    fn answer(&mut self) -> f64 {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim().parse().expect("a time")
    }

    fn end(mut self) {
        drop(self.orders);
        self.process.wait().expect("its end");
    }
}

pub(crate) fn print(directory: &Directory) {
    let path = directory.path("");
    let (flocked, message, task) = (
        directory.path("flocked"),
        directory.path("message"),
        directory.path("task"),
    );
    let file = File::create(&flocked).expect("a file");
    let mut waiters = [
        Waiter::new("leasehold", &path),
        Waiter::new("flock", &flocked),
        Waiter::new("message", &message),
        Waiter::new("task", &task),
    ];
    let [message, task] = [message, task].map(|path| {
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.connect(path).expect("a waiter");
        socket
    });
    let runtime = runtime();
    let locks = runtime.block_on(manager(&path));
    let mut figures: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let [ours, flock, by_message, by_task] = &mut waiters;
        let round = runtime.block_on(async {
            let guard = locks.lock("wake").acquire().await.expect("it is free");
            ours.order();
            loop {
                let info = locks.inspect(guard.key()).await.expect("an answer");
                if info.and_then(|info| info.queue) == Some(1) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // It subscribes after it has its place.
            tokio::time::sleep(REST).await;
            let before = micros();
            let _ = guard.release().await;
            ours.answer() - before
        });
        figures[0].push(round);
        rustix::fs::flock(&file, FlockOperation::LockExclusive).expect("nobody locks it");
        flock.order();
        std::thread::sleep(REST);
        let before = micros();
        rustix::fs::flock(&file, FlockOperation::Unlock).expect("it is ours");
        figures[1].push(flock.answer() - before);
        for (number, (socket, waiter)) in [(&message, by_message), (&task, by_task)]
            .into_iter()
            .enumerate()
        {
            std::thread::sleep(REST);
            let before = micros();
            socket.send(b"w").expect("a waiter");
            figures[2 + number].push(waiter.answer() - before);
        }
    }
    waiters.into_iter().for_each(Waiter::end);
    println!("from a release to the waiter's guard, {ROUNDS} times:");
    let names = [
        "leasehold, through managers",
        "flock(2)",
        "a message to a thread",
        "the same, and from there to a task",
    ];
    for (name, figures) in names.iter().zip(&mut figures) {
        println!("  {name:34} {}", spread(figures));
    }
}

pub(crate) fn worker(what: &str, path: &str) {
    match what {
        "flock" => wait_for_flock(path),
        "message" => wait_for_messages(path),
        "task" => wait_as_a_task(path),
        _ => wait_for_lock(path),
    }
}

fn ready() {
    println!("{}", f64::NAN);
}

/// True if there is one more.
fn is_ordered() -> bool {
    std::io::stdin().read_exact(&mut [0]).is_ok()
}

fn wait_for_flock(path: &str) {
    let file = File::open(path).expect("the file");
    ready();
    while is_ordered() {
        rustix::fs::flock(&file, FlockOperation::LockExclusive).expect("its turn");
        println!("{}", micros());
        rustix::fs::flock(&file, FlockOperation::Unlock).expect("it is ours");
    }
}

/// This thread ends with its process, at the end of its orders.
fn at_each_message(path: &str, act: impl Fn() + Send + 'static) {
    let socket = UnixDatagram::bind(path).expect("a socket");
    std::thread::spawn(move || {
        loop {
            socket.recv(&mut [0; 9]).expect("a message");
            act();
        }
    });
    ready();
}

fn wait_for_messages(path: &str) {
    at_each_message(path, || println!("{}", micros()));
    while is_ordered() {}
}

fn wait_as_a_task(path: &str) {
    let woken = Arc::new(Notify::new());
    let wake = Arc::clone(&woken);
    at_each_message(path, move || wake.notify_one());
    std::thread::spawn(move || {
        runtime().block_on(async {
            loop {
                woken.notified().await;
                println!("{}", micros());
            }
        });
    });
    while is_ordered() {}
}

fn wait_for_lock(directory: &str) {
    let runtime = runtime();
    let locks = runtime.block_on(manager(directory));
    ready();
    while is_ordered() {
        let guard = runtime.block_on(locks.lock("wake").acquire());
        let now = micros();
        println!("{now}");
        let guard = guard.expect("its turn");
        let _ = runtime.block_on(guard.release());
    }
}
