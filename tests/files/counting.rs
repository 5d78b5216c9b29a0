//! Eight processes count in one file under one lock, while they are killed and stopped at random.
//!
//! The counter is a log: a line for each number, with the token of its writer. A writer that was
//! stopped beyond its lease writes late. A fence at the log refuses that; without one, it is seen
//! as a token that is smaller than one before it.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::process::{Child, Stdio};
use std::time::Duration;

use leasehold::clock::{Clock, Stamp};
use leasehold::store::OwnerToken;
use leasehold::{LockManager, Settings};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal, kill_process};

use crate::dice::Dice;
use crate::place::{Place, pause, wait, worker};

const PROCESSES: usize = 8;
const TTL: Duration = Duration::from_millis(400);
/// What the short form has seen when it ends, and the longest that it may take on a busy machine.
const ENOUGH: usize = 15;
const LONGEST: Duration = Duration::from_secs(240);
/// All lines of a log have this length.
const LINE: i64 = 42;

/// A line of the log.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    token: u64,
    number: u64,
    /// A holder that raises the fence writes no number of its own.
    is_write: bool,
}

impl Entry {
    fn line(self) -> String {
        let word = if self.is_write { 'w' } else { 'r' };
        format!("{:020} {:018} {word}\n", self.token, self.number)
    }

    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        Self {
            token: words[0].parse().unwrap(),
            number: words[1].parse().unwrap(),
            is_write: words[2] == "w",
        }
    }
}

fn open_log(path: &str) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).open(path)
}

fn last(mut log: &File) -> std::io::Result<Entry> {
    if log.metadata()?.len() == 0 {
        return Ok(Entry::default());
    }
    log.seek(SeekFrom::End(-LINE))?;
    let mut line = String::new();
    log.read_to_string(&mut line)?;
    Ok(Entry::parse(line.trim_end()))
}

/// The fence: whoever writes holds the file, and nothing smaller than the largest token is
/// accepted.
fn fenced(path: &str, token: u64, is_write: bool) -> std::io::Result<bool> {
    let log = open_log(path)?;
    rustix::fs::flock(log.as_fd(), FlockOperation::LockExclusive)?;
    let last = last(&log)?;
    let is_allowed = if is_write {
        token == last.token
    } else {
        token > last.token
    };
    if is_allowed {
        append(&log, token, last.number + u64::from(is_write), is_write)?;
    }
    rustix::fs::flock(log.as_fd(), FlockOperation::Unlock)?;
    Ok(is_allowed)
}

fn append(mut log: &File, token: u64, number: u64, is_write: bool) -> std::io::Result<()> {
    let entry = Entry {
        token,
        number,
        is_write,
    };
    log.write_all(entry.line().as_bytes())
}

/// The work of one process: it counts until it is killed.
pub(crate) fn count(url: &str, log: &str, report: &str, has_fence: bool) {
    let mut settings = Settings::default();
    settings.ttl = TTL;
    settings.request_timeout = TTL / 4;
    wait(async {
        let locks = loop {
            // While another process is stopped in its own request, this one fails.
            if let Ok(builder) = LockManager::builder_for_url(url, settings.clone()).await {
                break builder.build().unwrap();
            }
        };
        let clock = Clock::system().unwrap();
        let mut report = open_log(report).unwrap();
        loop {
            let Ok(guard) = locks.lock("counter").acquire().await else {
                continue;
            };
            let token = guard.token().number();
            if !has_fence || fenced(log, token, false).unwrap() {
                let executor = guard.executor();
                let (clock, report) = (clock.clone(), &mut report);
                let run = executor.guarded_async(async move |tx| {
                    let file = open_log(log)?;
                    let number = last(&file)?.number + 1;
                    let before = clock.stamp();
                    tx.check()?;
                    let left = tx.remaining();
                    // A slow write now and then, so that some are stopped here, after their last
                    // check.
                    let slow = if token.is_multiple_of(4) { 100 } else { 2 };
                    clock.sleep(Duration::from_millis(slow)).await;
                    let is_written = if has_fence {
                        fenced(log, token, true)?
                    } else {
                        append(&file, token, number, true)?;
                        true
                    };
                    let is_late = since(&clock, &before) >= left;
                    if is_written {
                        let word = if is_late { "late" } else { "live" };
                        report.write_all(format!("{token} {word}\n").as_bytes())?;
                    }
                    Ok(())
                });
                // A run that is over too late is an error, and its line stays in the log.
                drop(run.await);
            }
            drop(guard.release().await);
        }
    });
}

fn since(clock: &Clock, before: &Stamp) -> Duration {
    clock.stamp().since(before)
}

/// The processes, and what was done to them.
struct Crew<'a> {
    place: &'a Place,
    fence: &'a str,
    processes: Vec<Child>,
    /// Those that are stopped, and for how many more rounds.
    stopped: Vec<(usize, u64)>,
    kills: usize,
    stops: usize,
}

impl<'a> Crew<'a> {
    fn start(place: &'a Place, fence: &'a str) -> Self {
        let mut crew = Self {
            place,
            fence,
            processes: Vec::new(),
            stopped: Vec::new(),
            kills: 0,
            stops: 0,
        };
        crew.processes = (0..PROCESSES).map(|number| crew.process(number)).collect();
        crew
    }

    /// Of the eight, half keep their holds for the TTL when they die.
    fn process(&self, number: usize) -> Child {
        let options = ["?on_death=ttl", "?on_death=now"][number % 2];
        let (url, log) = (self.place.url(options), self.place.path("log"));
        let mut command = worker(&["count", &url, &log, &self.place.path("report"), self.fence]);
        command.stdin(Stdio::null()).spawn().unwrap()
    }

    fn signal(&self, number: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.processes[number]), signal).unwrap();
    }

    /// About every quarter of a TTL one of them is killed or stopped, and those that were stopped
    /// long enough go on.
    fn strike(&mut self, dice: &mut Dice) {
        let number = dice.below(PROCESSES);
        if dice.falls(0.5) {
            self.stopped.retain(|(stopped, _)| *stopped != number);
            self.processes[number].kill().unwrap();
            self.processes[number].wait().unwrap();
            self.processes[number] = self.process(number);
            self.kills += 1;
        } else if self.stopped.len() < 3 && self.stopped.iter().all(|(other, _)| *other != number) {
            // Up to three TTLs.
            self.stopped.push((number, dice.below(12) as u64));
            self.signal(number, Signal::STOP);
            self.stops += 1;
        }
        pause(TTL.mul_f64(0.5 * dice.part()));
        let (over, stopped) = (self.stopped.drain(..)).partition(|(_, rounds)| *rounds == 0);
        self.stopped = stopped;
        self.stopped.iter_mut().for_each(|(_, rounds)| *rounds -= 1);
        let over: Vec<(usize, u64)> = over;
        for (number, _) in over {
            self.signal(number, Signal::CONT);
        }
    }

    fn written(&self) -> usize {
        let log = std::fs::metadata(self.place.path("log"));
        log.map_or(0, |log| log.len() as usize / LINE as usize)
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// What happened: the lines of the log, and the tokens whose writers were there to say when they
/// had written.
struct Counted {
    entries: Vec<Entry>,
    live: HashSet<u64>,
    late: HashSet<u64>,
    what: String,
}

fn counted(fence: &str) -> Counted {
    let clock = Clock::system().unwrap();
    let seed = *OwnerToken::generate().unwrap().as_bytes();
    let seed = u64::from_le_bytes(*seed.first_chunk().unwrap());
    println!("seed {seed}");
    let mut dice = Dice::new(seed, 0);
    let place = Place::new();
    drop(place.store());
    let began = clock.stamp();
    let least = std::env::var("LEASEHOLD_COUNTING_SECONDS").map(|text| text.parse().unwrap());
    let least = Duration::from_secs(least.unwrap_or(0));
    let mut crew = Crew::start(&place, fence);
    while since(&clock, &began) < least
        || crew.kills < ENOUGH
        || crew.stops < ENOUGH
        || crew.written() < 4 * ENOUGH
    {
        assert!(since(&clock, &began) < LONGEST, "too little happened");
        crew.strike(&mut dice);
    }
    let (kills, stops) = (crew.kills, crew.stops);
    drop(crew);
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    let report = std::fs::read_to_string(place.path("report")).unwrap();
    let tokens = |word: &str| {
        let lines = report.lines().filter_map(|line| line.split_once(' '));
        lines
            .filter(|(_, what)| *what == word)
            .map(|(token, _)| token.parse().unwrap())
            .collect()
    };
    let seconds = since(&clock, &began).as_secs_f64();
    Counted {
        entries: log.lines().map(Entry::parse).collect(),
        live: tokens("live"),
        late: tokens("late"),
        what: format!("{fence}: {seconds:.0} s, {kills} kills, {stops} stops"),
    }
}

pub(crate) fn no_update_is_lost_behind_a_fence_whoever_is_killed_or_stopped() {
    let counted = counted("fenced");
    let mut last = Entry::default();
    let mut written = HashSet::new();
    for entry in &counted.entries {
        if entry.is_write {
            assert_eq!(entry.number, last.number + 1, "an update was lost");
            assert_eq!(entry.token, last.token, "the fence let a late write pass");
            written.insert(entry.token);
        } else {
            assert_eq!(entry.number, last.number);
            assert!(entry.token > last.token, "a token went back");
        }
        last = *entry;
    }
    assert_eq!(written.len() as u64, last.number, "a run wrote twice");
    let reported = counted.live.len() + counted.late.len();
    println!(
        "{}, counted to {}, of which {reported} reported, 0 lost",
        counted.what, last.number
    );
    for token in counted.live.union(&counted.late) {
        assert!(written.contains(token), "a reported write is missing");
    }
}

/// The published bound: once for each run that was between its last check and its write when its
/// lease ended.
pub(crate) fn without_a_fence_only_a_run_that_went_past_its_lease_overlaps() {
    let counted = counted("unfenced");
    let mut largest = 0;
    let mut overlaps = 0;
    let mut writers = HashSet::new();
    for entry in &counted.entries {
        assert!(writers.insert(entry.token), "two holds had one token");
        if entry.token > largest {
            largest = entry.token;
            continue;
        }
        overlaps += 1;
        assert!(
            !counted.live.contains(&entry.token),
            "two holders at once: {entry:?} was written within its lease, after token {largest}"
        );
    }
    println!(
        "{}, {} writes, {} of them late, {overlaps} overlaps",
        counted.what,
        counted.entries.len(),
        counted.late.len(),
    );
}
