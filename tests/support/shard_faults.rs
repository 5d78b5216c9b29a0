//! Processes that serve shards on a real store while they are killed and stopped and the server is
//! restarted, and the judge of what they wrote.
//!
//! Each shard has a log. A raise of the fence and a write behind it add a line with the token,
//! under a lock of the file. Beside that each process writes down when it began and ended a write
//! without a fence that its run claims to be within its lease.
//!
//! `LEASEHOLD_SHARD_FAULTS=30` makes it last for so many faults.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::clock::{Clock, ClockKind};
use leasehold::fence::{Fence, Refusal};
use leasehold::run::{Applied, CommitProof, EffectError};
use leasehold::shards::Shard;
use leasehold::store::OwnerToken;
use leasehold::{Error, FencingToken, Key, LockManager, Settings};
use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;

const SHARDS: u32 = 12;
const MEMBERS: usize = 4;
/// Without the switch.
const FEW: usize = 4;
/// Of one wait: longer than any takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// All lines of a log have this length.
const LINE: i64 = 34;

/// Of a process that serves.
const URL: &str = "LEASEHOLD_TEST_URL";
const FOLDER: &str = "LEASEHOLD_TEST_FOLDER";
const MILLIS: &str = "LEASEHOLD_TEST_MILLIS";

/// A line of a log.
#[derive(Clone, Copy, Debug)]
struct Entry {
    token: u64,
    process: u32,
    /// Otherwise the fence was raised.
    is_write: bool,
}

impl Entry {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        Self {
            token: words[0].parse().unwrap(),
            process: words[1].parse().unwrap(),
            is_write: words[2] == "w",
        }
    }
}

fn open_to_append(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).create(true).open(path);
    file.unwrap()
}

/// The logs of all shards: what is protected, and its fence.
#[derive(Clone, Debug)]
struct Logs(PathBuf);

impl Logs {
    fn path(&self, shard: u32) -> PathBuf {
        self.0.join(format!("shard-{shard:05}"))
    }

    /// Adds a line if the token is not behind: for a write it has to be the one that was raised
    /// last.
    fn add(&self, shard: u32, token: FencingToken, is_write: bool) -> Result<(), Refusal> {
        let mut log = open_to_append(&self.path(shard));
        rustix::fs::flock(log.as_fd(), FlockOperation::LockExclusive).unwrap();
        let token = token.number();
        let seen = last(&mut log).map_or(0, |entry| entry.token);
        if token < seen {
            let seen = FencingToken::new(seen).unwrap();
            return Err(Refusal::Fenced { seen });
        }
        // The judge looks at whether it was raised.
        let (process, word) = (std::process::id(), if is_write { 'w' } else { 'r' });
        let line = format!("{token:020} {process:010} {word}\n");
        log.write_all(line.as_bytes()).unwrap();
        Ok(())
    }

    fn entries(&self, shard: u32) -> Vec<Entry> {
        let text = std::fs::read_to_string(self.path(shard)).unwrap_or_default();
        text.lines().map(Entry::parse).collect()
    }

    /// The last lines of a shard, from a length on, and the length after them.
    fn since(&self, shard: u32, length: u64) -> (Vec<Entry>, u64) {
        let Ok(mut log) = File::open(self.path(shard)) else {
            return (Vec::new(), 0);
        };
        let mut text = String::new();
        log.seek(SeekFrom::Start(length)).unwrap();
        log.read_to_string(&mut text).unwrap();
        // A line may be written at this moment.
        let whole = text.len() - text.len() % LINE as usize;
        let entries = text[..whole].lines().map(Entry::parse).collect();
        (entries, length + whole as u64)
    }
}

fn last(log: &mut File) -> Option<Entry> {
    log.seek(SeekFrom::End(-LINE)).ok()?;
    let mut line = String::new();
    log.read_to_string(&mut line).unwrap();
    Some(Entry::parse(line.trim_end()))
}

impl Fence for Logs {
    async fn raise(&self, key: &Key, token: FencingToken) -> Result<(), Error> {
        let index = key.as_str().rsplit('/').next().unwrap();
        Ok(self.add(index.parse().unwrap(), token, false)?)
    }
}

async fn connected(url: &str, ttl: Duration) -> LockManager {
    let mut settings = Settings::default();
    settings.ttl = ttl;
    settings.max_ttl = ttl * 2;
    settings.request_timeout = ttl / 4;
    settings.max_poll_interval = Duration::from_millis(100);
    loop {
        // The server may be the one that is being restarted.
        if let Ok(builder) = LockManager::builder_for_url(url, settings.clone()).await {
            return builder.build().unwrap();
        }
        pause();
    }
}

/// Other processes need real time.
#[allow(clippy::disallowed_methods, reason = "see above")]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Serves, if this process was started for that. It ends when it is killed, or with an error that
/// is not expected.
pub(crate) fn serve_if_asked() {
    let Ok(url) = std::env::var(URL) else { return };
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let millis = std::env::var(MILLIS).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let locks = connected(&url, Duration::from_millis(millis)).await;
        let logs = Logs(folder);
        let shards = locks.shards("s", SHARDS).fence(logs.clone());
        let ended = shards.serve(move |shard| work(shard, logs.clone())).await;
        eprintln!("a member ended: {ended:?}");
        std::process::exit(1);
    });
}

async fn work(shard: Shard, logs: Logs) -> Result<(), Error> {
    let clock = Clock::system()?;
    let now = || clock.stamp().on(ClockKind::Boot);
    let name = format!("plain-{}", std::process::id());
    let mut plain = open_to_append(&logs.0.join(name));
    let pause = Duration::from_millis(10);
    while shard.until_leaving(clock.sleep(pause)).await.is_some() {
        let (index, token) = (shard.index(), shard.token());
        let fenced = logs.clone();
        let run = shard.guarded_async(async move |tx| {
            tx.commit_with(move |_| async move {
                match fenced.add(index, token, true) {
                    Ok(()) => Ok(Applied::fenced()),
                    Err(Refusal::Fenced { seen }) => Err(EffectError::Fenced { seen: Some(seen) }),
                    Err(other) => Err(EffectError::not_applied(other)),
                }
            });
            Ok(())
        });
        // What became of it is in the log.
        let _ = run.await;
        let ended_at = Arc::new(AtomicU64::new(0));
        let begun_at = AtomicU64::new(0);
        let (end, clock_of_end) = (Arc::clone(&ended_at), clock.clone());
        let run = shard.guarded_async(async |tx| {
            begun_at.store(now(), Ordering::SeqCst);
            tx.commit_with(move |_| async move {
                end.store(clock_of_end.stamp().on(ClockKind::Boot), Ordering::SeqCst);
                Ok(Applied::plain())
            });
            Ok(())
        });
        if let Ok(committed) = run.await
            && committed.proof == CommitProof::WithinLease
        {
            let (begin, end) = (begun_at.into_inner(), ended_at.load(Ordering::SeqCst));
            let line = format!("{index} {} {begin} {end}\n", token.number());
            plain.write_all(line.as_bytes()).unwrap();
        }
    }
    Ok(())
}

/// A test of this program, as a process of its own.
pub(crate) fn this_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]);
    command
}

/// A store, and what is done to its server.
pub(crate) struct Scene<R> {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    /// The TTL of the members.
    pub(crate) ttl: Duration,
    /// Starts this program so that it calls [`serve_if_asked`].
    pub(crate) program: fn() -> Command,
    /// Kills the server and starts it again, where there is one.
    pub(crate) restart: Option<R>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// kill -9, and another process comes in its place.
    Kill,
    /// Stopped until all its shards have other owners.
    Stop,
    Restart,
    /// One is killed while another one is stopped.
    Both,
}

struct Crew {
    members: Vec<Child>,
    start: Box<dyn Fn() -> Child>,
    logs: Logs,
    clock: Clock,
    runtime: Runtime,
    locks: LockManager,
}

impl Crew {
    fn kill(&mut self, number: usize) {
        let is_alive = self.members[number].try_wait().unwrap().is_none();
        assert!(is_alive, "a member ended by itself");
        self.members[number].kill().unwrap();
        self.members[number].wait().unwrap();
        self.members[number] = (self.start)();
    }

    fn signal(&self, number: usize, signal: Signal) {
        let id = i32::try_from(self.members[number].id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Stops a member where it keeps nobody from working: what it holds for a moment, it would hold
    /// until it continues.
    fn stop(&self, number: usize) {
        loop {
            self.signal(number, Signal::STOP);
            if (0..100).any(|_| self.is_free()) {
                return;
            }
            self.signal(number, Signal::CONT);
            pause();
        }
    }

    /// Whether nobody has the lock of a log, or that of the directory of a store in files.
    fn is_free(&self) -> bool {
        pause();
        let is_unlocked = |shard| {
            let log = open_to_append(&self.logs.path(shard));
            rustix::fs::flock(log.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok()
        };
        let asked = self.locks.inspect("s/shard-members");
        (0..SHARDS).all(is_unlocked) && self.runtime.block_on(asked).is_ok()
    }

    fn ids(&self) -> Vec<u32> {
        self.members.iter().map(Child::id).collect()
    }

    /// Waits until every shard was written by one of these from now on. Gives how long that took.
    fn written_by(&self, writers: &[u32]) -> Duration {
        let lengths = (0..SHARDS).map(|shard| self.logs.since(shard, 0).1);
        let mut lengths: Vec<u64> = lengths.collect();
        let mut waiting: BTreeSet<u32> = (0..SHARDS).collect();
        self.wait("is every shard written to", || {
            waiting.retain(|&shard| {
                let (entries, length) = self.logs.since(shard, lengths[shard as usize]);
                lengths[shard as usize] = length;
                let is_new = |entry: &Entry| entry.is_write && writers.contains(&entry.process);
                !entries.iter().any(is_new)
            });
            waiting.is_empty()
        })
    }

    /// Waits until each member writes to its share of the shards, and to no other.
    fn balanced(&self) {
        let mut lengths = vec![0; SHARDS as usize];
        let mut owners = BTreeMap::new();
        self.wait("has each member its share", || {
            for shard in 0..SHARDS {
                let (entries, length) = self.logs.since(shard, lengths[shard as usize]);
                lengths[shard as usize] = length;
                if let Some(entry) = entries.iter().rfind(|entry| entry.is_write) {
                    owners.insert(shard, entry.process);
                }
            }
            let load = |id: &u32| owners.values().filter(|owner| *owner == id).count();
            (self.ids().iter()).all(|id| load(id) == SHARDS as usize / MEMBERS)
        });
    }

    fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
        let began = self.clock.stamp();
        loop {
            let waited = self.clock.stamp().since(&began);
            if is_so() {
                return waited;
            }
            assert!(waited < PATIENCE, "never {what}");
            pause();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.logs.0);
        }
    }
}

/// Four processes, and one fault after the other. After each fault every shard is owned again.
pub(crate) fn owners_follow_each_other_whoever_is_killed_or_stopped<R: FnMut()>(
    mut scene: Scene<R>,
) {
    let faults = std::env::var("LEASEHOLD_SHARD_FAULTS").map(|text| text.parse().unwrap());
    let faults = faults.unwrap_or(FEW);
    let unique = OwnerToken::generate().unwrap().expose();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shards-{unique}"));
    std::fs::create_dir_all(&folder).unwrap();
    let start = {
        let (program, url) = (scene.program, scene.url.clone());
        let (folder, millis) = (folder.clone(), scene.ttl.as_millis().to_string());
        move || {
            let mut command = program();
            command.env(URL, &url).env(FOLDER, &folder);
            command.env(MILLIS, &millis).stdout(Stdio::null());
            command.spawn().unwrap()
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let locks = runtime.block_on(connected(&scene.url, scene.ttl));
    let mut crew = Crew {
        members: (0..MEMBERS).map(|_| start()).collect(),
        start: Box::new(start),
        logs: Logs(folder),
        clock: Clock::system().unwrap(),
        runtime,
        locks,
    };
    crew.written_by(&crew.ids());
    let mut kinds = vec![Fault::Kill, Fault::Stop, Fault::Both];
    kinds.extend(scene.restart.as_ref().map(|_| Fault::Restart));
    let mut took = Vec::new();
    for number in 0..faults {
        let (member, other) = (number % MEMBERS, (number + 1) % MEMBERS);
        match kinds[number % kinds.len()] {
            Fault::Kill => crew.kill(member),
            Fault::Restart => scene.restart.iter_mut().for_each(|restart| restart()),
            kind => {
                crew.stop(member);
                if kind == Fault::Both {
                    crew.kill(other);
                }
                let mut others = crew.ids();
                others.remove(member);
                took.push(crew.written_by(&others));
                crew.signal(member, Signal::CONT);
            }
        }
        took.push(crew.written_by(&crew.ids()));
    }
    crew.balanced();
    let logs = crew.logs.clone();
    crew.members.iter_mut().for_each(|member| {
        member.kill().unwrap();
        member.wait().unwrap();
    });
    let (writes, owners) = judge_logs(&logs);
    let plain = judge_plain(&logs.0);
    took.sort();
    println!(
        "shards on {}: {faults} faults, {writes} writes behind the fence by {owners} owners, \
         {plain} without it that do not overlap; \
         all shards written again after {:.1?} (half), {:.1?} (all)",
        scene.name,
        took[took.len() / 2],
        took[took.len() - 1],
    );
}

/// No write of a former owner after the next one's work began, and none before its fence was
/// raised.
fn judge_logs(logs: &Logs) -> (usize, usize) {
    let (mut writes, mut owners) = (0, 0);
    for shard in 0..SHARDS {
        let mut raised = 0;
        for entry in logs.entries(shard) {
            if entry.is_write {
                assert_eq!(entry.token, raised, "a write to shard {shard}: {entry:?}");
                writes += 1;
            } else {
                assert!(
                    entry.token >= raised,
                    "shard {shard}: {entry:?} after {raised}"
                );
                owners += usize::from(entry.token > raised);
                raised = entry.token;
            }
        }
    }
    (writes, owners)
}

/// Writes of two owners of a shard that are within their leases do not overlap.
fn judge_plain(folder: &Path) -> usize {
    let mut writes: BTreeMap<u64, Vec<[u64; 3]>> = BTreeMap::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap();
        if !file.file_name().to_string_lossy().starts_with("plain-") {
            continue;
        }
        let text = std::fs::read_to_string(file.path()).unwrap();
        // The last line of a process that was killed may be a part of one.
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        for line in whole.lines() {
            let words: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            let of_shard = writes.entry(words[0]).or_default();
            of_shard.push([words[2], words[3], words[1]]);
        }
    }
    for (shard, of_shard) in &mut writes {
        of_shard.sort_unstable();
        for two in of_shard.windows(2) {
            let ([_, end, token], [begin, _, next]) = (two[0], two[1]);
            let in_order = token == next || (end <= begin && token < next);
            assert!(in_order, "two owners of shard {shard}: {two:?}");
        }
    }
    writes.values().map(Vec::len).sum()
}
