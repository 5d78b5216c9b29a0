//! Real processes that take turns at one lock, while they are killed, stopped and cancelled at
//! random: at every step of a handover.
//!
//! The log has a line for each hold, written by its holder. A holder that was stopped may write too
//! late, so only lines whose writer found its lease live afterwards have to be in order.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::store::OwnerToken;
use leasehold::{LockManager, Settings};
use rustix::process::{Pid, Signal, kill_process};

use crate::dice::Dice;
use crate::server::{LOOKS, RedisServer, pause};

/// Of the processes: the URL of their server and the file of their log.
const URL: &str = "LEASEHOLD_TEST_TURNS_URL";
const LOG: &str = "LEASEHOLD_TEST_TURNS_LOG";
const NAME: &str = "kills::turns_are_taken_one_at_a_time_whoever_is_killed_stopped_or_cancelled";
const PROCESSES: usize = 6;
const TTL: Duration = Duration::from_millis(800);
/// What was done and seen when the storm ends, and when it ends at the latest.
const KILLS: usize = 20;
const STOPS: usize = 10;
const HOLDS: usize = 100;
const LONGEST: Duration = Duration::from_secs(60);
/// The length of a line of the log.
const LINE: usize = 26;
/// How often the log is looked at before the next one is struck anyway.
const PATIENCE: usize = 250;

fn open(log: &str) -> File {
    let mut options = OpenOptions::new();
    options
        .append(true)
        .create(true)
        .open(log)
        .expect("the log")
}

/// One of the processes: two callers, one of them fair. Some of their waits are cut off at any
/// step.
#[tokio::main(flavor = "current_thread")]
async fn take_turns(url: &str, log: &str) {
    let mut settings = Settings::default();
    settings.ttl = TTL;
    settings.max_poll_interval = TTL / 8;
    let locks = LockManager::builder_for_url(url, settings).await;
    let locks = locks.expect("a URL").build().expect("a manager");
    let caller = async |stream: u64| {
        let mut dice = Dice::new(u64::from(std::process::id()), stream);
        let (clock, mut log) = (Clock::system().unwrap(), open(log));
        let lock = locks.lock("a");
        let lock = if stream == 0 { lock.fair() } else { lock };
        loop {
            let most = if dice.falls(0.3) { 20_000 } else { 30_000_000 };
            let cut = Duration::from_micros(dice.below(most) as u64);
            let Some(Ok(guard)) = clock.timeout(cut, lock.acquire()).await else {
                continue;
            };
            let token = guard.token().number();
            if guard.lease().is_live() {
                log.write_all(format!("hold {token:020}\n").as_bytes())
                    .unwrap();
            }
            if guard.lease().is_live() {
                log.write_all(format!("live {token:020}\n").as_bytes())
                    .unwrap();
            }
            if dice.falls(0.5) {
                clock
                    .sleep(Duration::from_micros(dice.below(3_000) as u64))
                    .await;
            }
            if dice.falls(0.8) {
                drop(guard.release().await);
            }
        }
    };
    futures_util::join!(caller(0), caller(1));
}

struct Crew<'a> {
    server: &'a RedisServer,
    processes: Vec<Child>,
    /// Of those that are stopped: for how many more rounds.
    stopped: HashMap<usize, usize>,
    kills: usize,
    stops: usize,
}

impl Crew<'_> {
    fn log(&self) -> String {
        self.server.folder().join("turns").display().to_string()
    }

    fn process(&self) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture"])
            .env(URL, self.server.url("prefix=app&restart_quarantine=off"))
            .env(LOG, self.log())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn signal(&self, number: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.processes[number]), signal).unwrap();
    }

    fn strike(&mut self, dice: &mut Dice) {
        let number = dice.below(PROCESSES);
        if dice.falls(0.6) {
            self.stopped.remove(&number);
            self.processes[number].kill().unwrap();
            self.processes[number].wait().unwrap();
            self.processes[number] = self.process();
            self.kills += 1;
        } else if self.stopped.len() < 3 && !self.stopped.contains_key(&number) {
            self.stopped.insert(number, dice.below(6));
            self.signal(number, Signal::STOP);
            self.stops += 1;
        }
        // A few holds later, or soon after those that it took a lease or a handover from.
        let enough = self.written() + LINE * dice.below(12);
        for _ in 0..PATIENCE {
            if self.written() > enough {
                break;
            }
            pause();
        }
        let over: Vec<_> = self.stopped.extract_if(|_, rounds| *rounds == 0).collect();
        for (number, _) in over {
            self.signal(number, Signal::CONT);
        }
        self.stopped.values_mut().for_each(|rounds| *rounds -= 1);
    }

    fn written(&self) -> usize {
        std::fs::metadata(self.log()).map_or(0, |log| log.len() as usize)
    }

    /// The tokens of the lines that begin with this word, in the order of the log.
    fn tokens(&self, word: &str) -> Vec<u64> {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines = log.lines().filter_map(|line| line.split_once(' '));
        lines
            .filter(|(first, token)| *first == word && token.len() == 20)
            .map(|(_, token)| token.parse().unwrap())
            .collect()
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

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        pause();
    }
    panic!("it never happened: {what}");
}

#[test]
fn turns_are_taken_one_at_a_time_whoever_is_killed_stopped_or_cancelled() {
    if let (Ok(url), Ok(log)) = (std::env::var(URL), std::env::var(LOG)) {
        take_turns(&url, &log);
    }
    let seed = *OwnerToken::generate().unwrap().as_bytes();
    let seed = u64::from_le_bytes(*seed.first_chunk().unwrap());
    println!("seed {seed}");
    let mut dice = Dice::new(seed, 0);
    let server = RedisServer::start();
    let mut crew = Crew {
        server: &server,
        processes: Vec::new(),
        stopped: HashMap::new(),
        kills: 0,
        stops: 0,
    };
    crew.processes = (0..PROCESSES).map(|_| crew.process()).collect();
    until("the first hold", || !crew.tokens("live").is_empty());
    let clock = Clock::system().unwrap();
    let ends = clock.stamp().plus(LONGEST);
    while (crew.kills < KILLS || crew.stops < STOPS || crew.tokens("live").len() < HOLDS)
        && !ends.since(&clock.stamp()).is_zero()
    {
        crew.strike(&mut dice);
    }
    for number in 0..PROCESSES {
        crew.signal(number, Signal::CONT);
    }
    let before = crew.tokens("live").len();
    until("they go on", || crew.tokens("live").len() > before + 20);
    let what = format!("{} kills, {} stops, {before} holds", crew.kills, crew.stops);

    for process in &mut crew.processes {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let live: HashSet<_> = crew.tokens("live").into_iter().collect();
    let mut last = 0;
    for token in crew.tokens("hold") {
        if live.contains(&token) {
            assert!(token > last, "{token} after {last}: {what}");
            last = token;
        }
    }
    // Of the dead nothing is left when their times are over.
    let kept = ["app:{leasehold}:marker", "app:{leasehold}:token"];
    until("nothing is left", || {
        let keys = server.cli(&["KEYS", "*"]);
        keys.lines().all(|key| kept.contains(&key))
    });
    println!("{what}");
}
