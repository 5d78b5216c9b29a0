//! A fleet: processes of one member each, or of locks that are only kept. How long until all
//! shards are owned evenly, also after a crash, and what an idle fleet costs.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use leasehold::shards::Shard;
use leasehold::{Error, LockManager, Settings};
use tokio_util::sync::CancellationToken;

use crate::{NAME, TTL};

/// How long one measurement of an idle fleet takes.
const IDLE: Duration = Duration::from_secs(20);

/// What each process of a fleet does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Role {
    /// Serves shards, whose number is that of all.
    Serves,
    /// Keeps its part of so many locks.
    Keeps,
}

pub(crate) struct Fleet {
    role: Role,
    url: String,
    /// How many shards or locks there are, and how many each process gets to know.
    count: usize,
    part: usize,
    processes: Vec<Process>,
}

struct Process {
    child: Child,
    /// How many it owns.
    own: Arc<AtomicUsize>,
}

impl Fleet {
    pub(crate) fn start(role: Role, url: &str, count: usize, processes: usize) -> Self {
        let mut fleet = Self {
            role,
            url: url.to_owned(),
            count,
            part: match role {
                Role::Serves => count,
                Role::Keeps => count / processes,
            },
            processes: Vec::new(),
        };
        (0..processes).for_each(|_| fleet.join());
        fleet
    }

    pub(crate) fn join(&mut self) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(format!("{:?}", self.role))
            .args([&self.url, &self.part.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let own = Arc::new(AtomicUsize::new(0));
        let (lines, shown) = (BufReader::new(child.stdout.take().unwrap()).lines(), &own);
        let shown = Arc::clone(shown);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                shown.store(line.parse().unwrap(), SeqCst);
            }
        });
        self.processes.push(Process { child, own });
    }

    /// As a machine that loses its power.
    pub(crate) fn kill_first(&mut self) {
        drop(self.processes.remove(0));
    }

    /// Until everything is owned, and the loads are even. Returns the time that it took.
    pub(crate) fn settled(&self, since: Instant) -> Duration {
        let even = self.count / self.processes.len()..=self.count.div_ceil(self.processes.len());
        loop {
            let owned = self
                .processes
                .iter()
                .map(|process| process.own.load(SeqCst));
            let owned: Vec<usize> = owned.collect();
            if owned.iter().sum::<usize>() == self.count
                && owned.iter().all(|own| even.contains(own))
            {
                return since.elapsed();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn spent(&self) -> Duration {
        let spent = |process: &Process| spent_by(process.child.id());
        self.processes.iter().map(spent).sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processor time of two idle fleets and their servers in the same span, as parts of a core.
pub(crate) fn idle(fleets: [(&Fleet, u32); 2]) -> [[f64; 2]; 2] {
    let spent = || fleets.map(|(fleet, server)| [spent_by(server), fleet.spent()]);
    let (before, began) = (spent(), Instant::now());
    std::thread::sleep(IDLE);
    let (after, span) = (spent(), began.elapsed());
    [0, 1].map(|fleet| {
        [0, 1].map(|who| (after[fleet][who] - before[fleet][who]).div_duration_f64(span))
    })
}

/// The processor time that a process has used.
fn spent_by(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: u64 = ticks.map(|field| field.parse::<u64>().unwrap()).sum();
    // A hundredth of a second each, on every Linux.
    Duration::from_millis(10 * ticks)
}

/// A process of a fleet, until it is killed or its parent has gone. It prints how many it owns.
pub(crate) async fn child(role: &str, url: &str, count: usize) {
    let mut settings = Settings::default();
    settings.ttl = TTL;
    let builder = LockManager::builder_for_url(url, settings).await;
    let locks = builder.unwrap().build().unwrap();
    let orphaned = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    if role == format!("{:?}", Role::Keeps) {
        let mut kept = Vec::new();
        for number in 0..count {
            let name = format!("{}/{number}", std::process::id());
            kept.push(locks.lock(name).acquire().await.unwrap());
        }
        println!("{count}");
        let _ = orphaned.await;
        return;
    }
    let shards = locks.shards(NAME, u32::try_from(count).unwrap());
    let mut own = shards.watch();
    let stop = CancellationToken::new();
    let idle = async |shard: Shard| {
        shard.leaving().await;
        Ok::<_, Error>(())
    };
    let serving = tokio::spawn(shards.serve(idle).until(stop.clone()));
    let shows = async {
        while own.changed().await.is_ok() {
            println!("{}", own.borrow_and_update().len());
        }
    };
    tokio::select! {
        _ = orphaned => {}
        () = shows => {}
    }
    stop.cancel();
    serving.await.unwrap().unwrap();
}
