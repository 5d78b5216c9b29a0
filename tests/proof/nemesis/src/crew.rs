//! [`Crew`]: the worker processes, what they report, and what is done to them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use leasehold::clock::Clock;
use rustix::process::{Pid, Signal, kill_process};

use crate::event::{Event, Point, now};
use crate::plan::Plan;

/// How long the driver waits for what has to happen: longer than any machine stalls.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// All events so far.
#[derive(Default)]
pub struct Events {
    all: Mutex<Vec<Event>>,
    more: Condvar,
}

impl Events {
    fn add(&self, event: Event) {
        self.all.lock().expect("no thread panics").push(event);
        self.more.notify_all();
    }

    pub fn len(&self) -> usize {
        self.all.lock().expect("no thread panics").len()
    }

    pub fn all(&self) -> Vec<Event> {
        self.all.lock().expect("no thread panics").clone()
    }

    /// Calls `found` with each event from the place `from` on, until it gives something or the time
    /// is over.
    pub fn wait_for<T>(
        &self,
        from: usize,
        limit: Duration,
        mut found: impl FnMut(&Event) -> Option<T>,
    ) -> Option<T> {
        let end = Instant::now() + limit;
        let mut next = from;
        let mut all = self.all.lock().expect("no thread panics");
        loop {
            while next < all.len() {
                if let Some(found) = found(&all[next]) {
                    return Some(found);
                }
                next += 1;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            all = self
                .more
                .wait_timeout(all, left)
                .expect("no thread panics")
                .0;
        }
    }
}

pub struct Process {
    pub p: u32,
    pub child: Child,
}

pub struct Crew {
    pub events: Arc<Events>,
    /// By seat: a worker that was killed is replaced in its seat.
    pub processes: Vec<Process>,
    plans: Vec<Plan>,
    next: u32,
    pub kills: Vec<(u32, u64)>,
    pub clock: Clock,
}

impl Crew {
    /// One process for each plan. Returns when all are connected.
    pub fn start(plans: Vec<Plan>) -> Self {
        let mut crew = Self {
            events: Arc::default(),
            processes: Vec::new(),
            next: 0,
            kills: Vec::new(),
            clock: Clock::system().expect("clocks"),
            plans,
        };
        for seat in 0..crew.plans.len() {
            let process = crew.process(seat);
            crew.processes.push(process);
        }
        for seat in 0..crew.plans.len() {
            let p = crew.processes[seat].p;
            let is_ready = |event: &Event| {
                (event.p == p && event.what == crate::event::What::Ready).then_some(())
            };
            let ready = crew.events.wait_for(0, PATIENCE, is_ready);
            assert!(
                ready.is_some(),
                "worker {p} does not connect: {:?}",
                crew.events.all().last()
            );
        }
        crew
    }

    pub fn now(&self) -> u64 {
        now(&self.clock)
    }

    pub fn tasks(&self) -> usize {
        let tasks = |plan: &Plan| match plan.work {
            crate::plan::Work::Count { tasks } | crate::plan::Work::Hold { locks: tasks } => {
                tasks as usize
            }
        };
        self.plans.iter().map(tasks).sum()
    }

    fn process(&mut self, seat: usize) -> Process {
        self.next += 1;
        let plan = Plan {
            p: self.next,
            ..self.plans[seat].clone()
        };
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .arg("__worker")
            .arg(serde_json::to_string(&plan).expect("a plan is JSON"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker");
        let lines = BufReader::new(child.stdout.take().expect("its pipe"));
        let events = Arc::clone(&self.events);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line);
                events.add(event.unwrap_or_else(|why| panic!("{why}: {line}")));
            }
        });
        Process { p: plan.p, child }
    }

    pub fn signal(&self, seat: usize, signal: Signal) {
        let id = Pid::from_child(&self.processes[seat].child);
        kill_process(id, signal).expect("it runs");
    }

    /// The worker stops itself at its next `point`.
    pub fn stop_at(&mut self, seat: usize, point: Point) -> bool {
        // A signal that comes before it has stopped would be lost on it.
        self.aim(seat, "stop", point) && self.is_stopped(seat)
    }

    fn is_stopped(&self, seat: usize) -> bool {
        let path = format!("/proc/{}/stat", self.processes[seat].child.id());
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let stat = std::fs::read_to_string(&path).unwrap_or_default();
            // The state comes after the name, which is in brackets.
            if stat
                .rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('T'))
            {
                return true;
            }
            // The kernel sends no event when it has stopped a process.
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Waits until the worker is at its next `point`.
    pub fn tell_at(&mut self, seat: usize, point: Point) -> bool {
        self.aim(seat, "tell", point)
    }

    /// Whether it got there.
    fn aim(&mut self, seat: usize, verb: &str, point: Point) -> bool {
        let (from, p) = (self.events.len(), self.processes[seat].p);
        let point_text = serde_json::to_string(&point).expect("a point is JSON");
        self.say(seat, &format!("{verb} {point_text}"));
        let is_there = |event: &Event| {
            (event.p == p && event.what == crate::event::What::At(point)).then_some(())
        };
        let is_there = self.events.wait_for(from, PATIENCE, is_there).is_some();
        if !is_there {
            self.say(seat, "disarm");
        }
        is_there
    }

    fn say(&mut self, seat: usize, words: &str) {
        let stdin = self.processes[seat].child.stdin.as_mut();
        writeln!(stdin.expect("its pipe"), "{words}").expect("it reads");
    }

    /// SIGKILL, and another process in its seat.
    pub fn kill(&mut self, seat: usize) {
        self.kills.push((self.processes[seat].p, self.now()));
        let old = &mut self.processes[seat].child;
        old.kill().expect("SIGKILL");
        old.wait().expect("its end");
        self.processes[seat] = self.process(seat);
    }

    /// Lets every worker end its round, release, and end. Those that did not, by their numbers.
    pub fn end(&mut self) -> Vec<u32> {
        for seat in 0..self.processes.len() {
            self.say(seat, "end");
        }
        let end = Instant::now() + PATIENCE;
        let mut running = Vec::new();
        for process in &mut self.processes {
            loop {
                match process.child.try_wait().expect("its state") {
                    Some(status) if status.success() => break,
                    Some(_) => {
                        running.push(process.p);
                        break;
                    }
                    None if Instant::now() > end => {
                        running.push(process.p);
                        break;
                    }
                    // Many processes may end, in any order, until a moment of real time.
                    None => std::thread::sleep(Duration::from_millis(10)),
                }
            }
        }
        running
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // Those that have ended are gone already.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}
