//! A worker process: takes turns at the lock, counts in guarded runs, and stops itself where the
//! driver aims.

use std::io::BufRead;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::handler::Event as Seen;
use leasehold::store::Released;
use leasehold::{Lease, Lock, LockManager, RunError};
use rustix::process::{Signal, getpid, kill_process};

use crate::counter::Counter;
use crate::event::{Event, Outcome, Point, What, emit, now};
use crate::gauge;
use crate::plan::{KEY, Plan, Resource, Work};

/// How long a task asks for the lock before it asks anew.
const WAIT: Duration = Duration::from_secs(20);
const SAMPLE: Duration = Duration::from_millis(5);

/// What the tasks of a process share.
pub struct Worker {
    pub plan: Plan,
    clock: Clock,
    /// A point where a task stops the process; 0 is none.
    stops_at: AtomicU8,
    /// A point that a task reports, without a stop.
    tells_at: AtomicU8,
    ends: AtomicBool,
    holds: AtomicU32,
    /// The leases that are sampled: hold, lease, last deadline, last seen alive.
    leases: Mutex<Vec<(u64, Lease, u64, u64)>>,
    runs: AtomicU64,
}

fn code(point: Point) -> u8 {
    point as u8 + 1
}

pub fn run(plan: Plan) {
    let worker = Arc::new(Worker {
        plan,
        clock: Clock::system().expect("clocks"),
        stops_at: AtomicU8::new(0),
        tells_at: AtomicU8::new(0),
        ends: AtomicBool::new(false),
        holds: AtomicU32::new(0),
        leases: Mutex::default(),
        runs: AtomicU64::new(0),
    });
    let sampler = Arc::clone(&worker);
    std::thread::spawn(move || sampler.sample());
    let listener = Arc::clone(&worker);
    std::thread::spawn(move || listener.obey());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(worker.work());
}

impl Worker {
    pub fn emit(&self, task: u32, what: What) {
        emit(&Event {
            t: now(&self.clock),
            p: self.plan.p,
            task,
            what,
        });
    }

    async fn work(self: Arc<Self>) {
        let locks = loop {
            let observed = Arc::clone(&self);
            let ttl_ms = self.plan.ttl.as_millis() as u64;
            let builder = LockManager::builder_for_url(&self.plan.url, self.plan.settings()).await;
            match builder {
                Ok(builder) => {
                    let builder = builder.observer(move |event: &Seen<'_>| {
                        if let Seen::Lost { reason, .. } = event {
                            let reason = reason.to_string();
                            observed.emit(u32::MAX, What::Lost { ttl_ms, reason });
                        }
                    });
                    // So that the gauge sees every task.
                    let builder = match self.plan.has_gauge {
                        true => builder.on_current_runtime(),
                        false => builder,
                    };
                    break builder.build().expect("settings that are in range");
                }
                Err(why) => self.emit(0, What::Denied(why.to_string())),
            }
            self.clock.sleep(Duration::from_millis(50)).await;
        };
        self.emit(0, What::Ready);
        let mut tasks = tokio::task::JoinSet::new();
        match self.plan.work {
            Work::Count { tasks: count } => {
                for task in 0..count {
                    tasks.spawn(Arc::clone(&self).count(locks.clone(), task));
                }
            }
            Work::Hold { locks: count } => {
                for task in 0..count {
                    tasks.spawn(Arc::clone(&self).hold(locks.clone(), task));
                }
            }
        }
        if self.plan.has_gauge {
            let gauging = Arc::clone(&self);
            tasks.spawn(async move {
                while !gauging.ends.load(Ordering::Relaxed) {
                    gauging.clock.sleep(Duration::from_secs(1)).await;
                    gauging.emit(0, gauge::read());
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no task panics");
        }
        locks.shutdown().await;
    }

    /// One task: lock, read, add one, write, release, until the driver says end.
    async fn count(self: Arc<Self>, locks: LockManager, task: u32) {
        let counter = Arc::new(Counter::new(Arc::clone(&self), task));
        while !self.ends.load(Ordering::Relaxed) {
            let lock = match counter.tie(locks.lock(KEY)).await {
                Ok(lock) => lock,
                Err(why) => {
                    self.emit(task, What::Denied(why.to_string()));
                    self.clock.sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            self.turn(&lock, &counter, task).await;
            // A turn of the others.
            self.clock
                .sleep(Duration::from_millis(fastrand::u64(0..10)))
                .await;
        }
    }

    async fn turn(self: &Arc<Self>, lock: &Lock, counter: &Arc<Counter>, task: u32) {
        self.emit(task, What::Ask);
        let guard = match lock.acquire_within(WAIT).await {
            Ok(Some(guard)) => guard,
            Ok(None) => return self.emit(task, What::Denied("busy".to_owned())),
            Err(why) => {
                self.emit(task, What::Denied(why.to_string()));
                return self.clock.sleep(Duration::from_millis(50)).await;
            }
        };
        let hold = self.begin(task, guard.lease(), guard.token().number());
        self.reached(task, Point::Held);
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let txn = format!("{}-{task}-{number}", self.plan.p);
        let executor = guard.executor();
        let ended = executor
            .guarded_async(async |tx| {
                let from = now(&self.clock);
                let number = counter.read().await?;
                self.emit(task, What::Read { from, number });
                let next = number + 1;
                self.clock
                    .sleep(Duration::from_millis(fastrand::u64(1..8)))
                    .await;
                tx.check()?;
                counter.write(tx, hold, &txn, next);
                Ok(())
            })
            .await;
        let (outcome, why) = match ended {
            Ok(done) => (Outcome::Committed, format!("{:?}", done.proof)),
            Err(error) => {
                let outcome = match &error {
                    RunError::CommittedLate { .. } => Outcome::CommittedLate,
                    RunError::Fenced { .. } => Outcome::Fenced,
                    other if other.was_applied() == Some(false) => Outcome::NotApplied,
                    _ => Outcome::Unknown,
                };
                (outcome, error.to_string())
            }
        };
        self.emit(task, What::Outcome { txn, outcome, why });
        self.emit(task, What::Release { hold });
        let mut release = pin!(guard.release());
        let mut is_first = true;
        let released = std::future::poll_fn(|cx| {
            let polled = release.as_mut().poll(cx);
            if std::mem::take(&mut is_first) {
                self.reached(task, Point::InRelease);
            }
            polled
        });
        // The lease says what became of it; a release without an answer ends with the TTL.
        if let Ok(Released::Released | Released::AlreadyGone) = released.await {
            self.emit(task, What::Released { hold });
        }
    }

    /// Holds a lock for as long as it lasts, again and again.
    async fn hold(self: Arc<Self>, locks: LockManager, task: u32) {
        let key = format!("nemesis/held/{}/{task}", self.plan.p);
        while !self.ends.load(Ordering::Relaxed) {
            match locks.lock(key.as_str()).acquire_within(WAIT).await {
                Ok(Some(guard)) => {
                    self.emit(task, What::Ask);
                    let lease = guard.lease().clone();
                    let lost = self.clock.timeout(Duration::from_secs(1), lease.lost());
                    let mut lost = pin!(lost);
                    while lost.as_mut().await.is_none() && !self.ends.load(Ordering::Relaxed) {
                        lost.set(self.clock.timeout(Duration::from_secs(1), lease.lost()));
                    }
                    drop(guard.release().await);
                }
                Ok(None) => {}
                Err(why) => self.emit(task, What::Denied(why.to_string())),
            }
        }
    }

    fn begin(&self, task: u32, lease: &Lease, token: u64) -> u64 {
        let number = self.holds.fetch_add(1, Ordering::Relaxed);
        let hold = u64::from(self.plan.p) << 32 | u64::from(number);
        let (alive, deadline) = (now(&self.clock), lease.peek()[1]);
        self.emit(
            task,
            What::Held {
                hold,
                token,
                deadline,
            },
        );
        let mut leases = self.leases.lock().expect("no thread panics");
        leases.push((hold, lease.clone(), deadline, alive));
        hold
    }

    /// Looks at each lease as the library believes it, without a check that would change it.
    fn sample(&self) {
        loop {
            // What real processes believe is compared in real time.
            std::thread::sleep(SAMPLE);
            let mut leases = self.leases.lock().expect("no thread panics");
            leases.retain_mut(|(hold, lease, last, alive)| {
                let at = now(&self.clock);
                let deadline = lease.peek()[1];
                let hold = *hold;
                if deadline == 0 {
                    let alive = *alive;
                    self.emit(0, What::Over { hold, alive });
                    return false;
                }
                if deadline != *last {
                    self.emit(0, What::Deadline { hold, deadline });
                }
                (*last, *alive) = (deadline, at);
                true
            });
        }
    }

    /// Reads the words of the driver. Without a driver it ends.
    fn obey(&self) {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            let (verb, point) = (words.next(), words.next());
            let point = point.and_then(|point| serde_json::from_str::<Point>(point).ok());
            match (verb, point) {
                (Some("stop"), Some(point)) => self.stops_at.store(code(point), Ordering::SeqCst),
                (Some("tell"), Some(point)) => self.tells_at.store(code(point), Ordering::SeqCst),
                (Some("disarm"), _) => {
                    self.stops_at.store(0, Ordering::SeqCst);
                    self.tells_at.store(0, Ordering::SeqCst);
                }
                (Some("end"), _) => self.ends.store(true, Ordering::SeqCst),
                _ => panic!("no such word: {line}"),
            }
        }
        if !self.ends.load(Ordering::SeqCst) {
            std::process::exit(1);
        }
    }

    /// A task is at this point: it stops the whole process here, if the driver wants that.
    pub fn reached(&self, task: u32, point: Point) {
        let was = |aim: &AtomicU8| {
            let taken = aim.compare_exchange(code(point), 0, Ordering::SeqCst, Ordering::SeqCst);
            taken.is_ok()
        };
        if was(&self.tells_at) {
            self.emit(task, What::At(point));
        }
        if was(&self.stops_at) {
            self.emit(task, What::At(point));
            // It stops before this call returns.
            kill_process(getpid(), Signal::STOP).expect("SIGSTOP");
        }
    }

    /// Runs a commit with its points.
    pub async fn aimed<F: Future>(
        &self,
        task: u32,
        hold: u64,
        txn: String,
        commit: F,
    ) -> F::Output {
        self.emit(task, What::Commit { hold, txn });
        self.reached(task, Point::Commit);
        let mut commit = pin!(commit);
        let first = std::future::poll_fn(|cx| Poll::Ready(commit.as_mut().poll(cx))).await;
        match first {
            Poll::Ready(output) => output,
            Poll::Pending => {
                // The task of the connection writes in the meantime, or has not yet.
                for _ in 0..fastrand::u32(0..4) {
                    tokio::task::yield_now().await;
                }
                self.reached(task, Point::InCommit);
                commit.await
            }
        }
    }

    pub fn is_open(&self) -> bool {
        self.plan.resource == Resource::Open
    }
}
