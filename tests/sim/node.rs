//! [`Node`]: one simulated process: a runtime, a clock, a manager, workers. A crash drops the
//! runtime.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::handler::{AcquireOutcome, Event as Seen};
#[cfg(feature = "redis-worlds")]
use leasehold::redis::{RedisOptions, RedisStore};
#[cfg(any(feature = "redis-worlds", feature = "zookeeper"))]
use leasehold::store::Store;
use leasehold::store::observed::ObservedStore;
use leasehold::store::quorum::Quorum;
use leasehold::store::{Label, Revoke};
#[cfg(feature = "zookeeper")]
use leasehold::zookeeper::{ZooKeeperOptions, ZooKeeperStore};
use leasehold::{ErrorKind, GuardedCell, Key, LockManager, LockManagerBuilder};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use crate::cell::Value;
use crate::coverage::Doing;
use crate::dice::Dice;
use crate::handlers::SimHandler;
use crate::net::Net;
use crate::register::SimRegister;
use crate::seen::SeenStore;
use crate::setup::Setup;
use crate::shards::member;
use crate::state::Shared;
use crate::store::{Hints, SimStore};
use crate::thread::Thread;
use crate::truth::{in_truth, on_clock};
use crate::worker::worker;
#[cfg(feature = "zookeeper")]
use crate::zookeeper::SimServers;

/// The store of a process. Its user closes it, after the manager.
#[derive(Clone)]
enum NodeStore {
    Memory,
    #[cfg(feature = "redis-worlds")]
    Redis(RedisStore),
    #[cfg(feature = "zookeeper")]
    ZooKeeper(ZooKeeperStore),
}

impl NodeStore {
    async fn close(self) {
        let closed: Result<(), leasehold::Error> = match self {
            Self::Memory => Ok(()),
            #[cfg(feature = "redis-worlds")]
            Self::Redis(store) => store.close().await,
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(store) => store.close().await,
        };
        closed.expect("a store that closes");
    }
}

#[cfg(any(feature = "redis-worlds", feature = "zookeeper"))]
fn seen(store: &(impl Store + Clone), net: &Net, reports_grants: bool) -> LockManagerBuilder {
    LockManager::builder(SeenStore {
        store: store.clone(),
        net: net.clone(),
        reports_grants,
    })
}

/// What the code of one life of one process sees of the world.
#[derive(Clone)]
pub(crate) struct Ctx {
    pub(crate) shared: Shared,
    pub(crate) net: Net,
    pub(crate) clock: ManualClock,
    pub(crate) node: usize,
    pub(crate) life: u64,
    pub(crate) worker: usize,
    pub(crate) is_fenced: bool,
    pub(crate) locks: LockManager,
    pub(crate) cells: Cells,
    pub(crate) left: Arc<AtomicUsize>,
    pub(crate) ahead: Arc<AtomicU64>,
}

pub(crate) type Cells = Arc<Mutex<BTreeMap<Key, GuardedCell<Value>>>>;

impl Ctx {
    pub(crate) fn is_alive(&self) -> bool {
        self.shared.lock().lives[self.node] == self.life
    }

    pub(crate) fn cell(&self, key: &Key) -> GuardedCell<Value> {
        self.cells
            .lock()
            .entry(key.clone())
            .or_insert_with(|| GuardedCell::new(Value::new(0)))
            .clone()
    }

    pub(crate) fn stall(&self, span: u64) {
        self.thread().stall(span);
    }

    /// Keeps neither the manager nor the cells alive.
    pub(crate) fn thread(&self) -> Thread {
        Thread {
            shared: self.shared.clone(),
            clock: self.clock.clone(),
            node: self.node,
            life: self.life,
            worker: self.worker,
            ahead: Arc::clone(&self.ahead),
        }
    }

    /// What was planned before the calm does not keep others waiting in it.
    pub(crate) fn shortened(&self, span: u64) -> u64 {
        if self.shared.lock().is_calm {
            span.min(10_000_000)
        } else {
            span
        }
    }

    pub(crate) fn doing(&self, doing: Doing) {
        self.shared
            .lock()
            .doing
            .insert((self.node, self.worker), doing);
    }
}

/// Wakes the one future that a turn waits for when its runtime has nothing to do.
#[derive(Default)]
struct Idle {
    is_idle: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

pub(crate) struct Node {
    number: usize,
    shared: Shared,
    hints: Hints,
    clock: ManualClock,
    ppm: i64,
    moved: u64,
    /// By how much a stall has moved the clock ahead of true time, which catches up before the next
    /// turn.
    ahead: Arc<AtomicU64>,
    alive: Option<Alive>,
}

struct Alive {
    runtime: Runtime,
    idle: Arc<Idle>,
    locks: LockManager,
    store: NodeStore,
    cells: Cells,
    left: Arc<AtomicUsize>,
    is_shut: Arc<AtomicBool>,
}

impl Node {
    pub(crate) fn new(number: usize, shared: &Shared, hints: &Hints, setup: &Setup) -> Self {
        Self {
            number,
            shared: shared.clone(),
            hints: hints.clone(),
            clock: ManualClock::new(),
            ppm: setup.node_ppm[number],
            moved: 0,
            ahead: Arc::default(),
            alive: None,
        }
    }

    pub(crate) fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Whether a timer of this process has ended. A process that is `frozen` does not see the time
    /// pass, which no lock can survive.
    pub(crate) fn advance_to(&mut self, now: u64, frozen: bool) -> bool {
        let target = on_clock(now, self.ppm);
        let passed = target - self.moved;
        self.moved = target;
        let seen = passed.min(self.ahead.load(Ordering::Relaxed));
        self.ahead.fetch_sub(seen, Ordering::Relaxed);
        let step = Duration::from_nanos(passed - seen);
        if frozen {
            return false;
        }
        let next = self.clock.until_next();
        self.clock.advance(step);
        next.is_some_and(|left| left <= step)
    }

    /// The true time until the next timer of this process; `None` if it has none.
    pub(crate) fn until_next(&self) -> Option<u64> {
        self.alive.as_ref()?;
        let left = self.clock.until_next()?;
        Some(in_truth(left.as_nanos() as u64, self.ppm))
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.is_some()
    }

    pub(crate) fn start(&mut self, setup: &Setup) {
        let life = {
            let mut state = self.shared.lock();
            state.lives[self.number] += 1;
            state.paused[self.number] = state.stalled[self.number] > state.now;
            state.lives[self.number]
        };
        let idle = Arc::new(Idle::default());
        let parked = Arc::clone(&idle);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .on_thread_park(move || {
                parked.is_idle.store(true, Ordering::SeqCst);
                if let Some(waker) = parked.waker.lock().take() {
                    waker.wake();
                }
            })
            .build()
            .expect("a runtime without drivers");
        let net = Net {
            shared: self.shared.clone(),
            node: self.number,
            life,
        };
        let entered = runtime.enter();
        let store = self.store(setup, &net);
        let builder = match &store {
            NodeStore::Memory if setup.is_register => self.on_register(&net),
            NodeStore::Memory => self.on_memory(setup, &net),
            #[cfg(feature = "redis-worlds")]
            NodeStore::Redis(store) => seen(store, &net, false),
            #[cfg(feature = "zookeeper")]
            NodeStore::ZooKeeper(store) => seen(store, &net, true),
        };
        let locks = self.manager(builder, setup, &net);
        drop(entered);
        let (cells, left) = (Cells::default(), Arc::new(AtomicUsize::new(setup.workers)));
        for number in 0..setup.workers {
            let stream = 1_000 + (self.number * 100 + number) as u64 + 10_000 * life;
            let ctx = Ctx {
                shared: self.shared.clone(),
                net: net.clone(),
                clock: self.clock.clone(),
                node: self.number,
                life,
                worker: number,
                is_fenced: setup.fenced,
                locks: locks.clone(),
                cells: Arc::clone(&cells),
                left: Arc::clone(&left),
                ahead: Arc::clone(&self.ahead),
            };
            let dice = Dice::new(setup.seed, stream);
            match setup.shards {
                0 => drop(runtime.spawn(worker(ctx, dice))),
                _ => drop(runtime.spawn(member(ctx, dice))),
            }
        }
        self.alive = Some(Alive {
            runtime,
            idle,
            locks,
            store,
            cells,
            left,
            is_shut: Arc::default(),
        });
    }

    #[cfg_attr(
        not(any(feature = "redis-worlds", feature = "zookeeper")),
        allow(unused_variables, clippy::unused_self, reason = "no store is built in")
    )]
    fn store(&self, setup: &Setup, net: &Net) -> NodeStore {
        #[cfg(feature = "redis-worlds")]
        if setup.is_redis {
            return NodeStore::Redis(self.redis(setup, net));
        }
        #[cfg(feature = "zookeeper")]
        if setup.is_zookeeper {
            return NodeStore::ZooKeeper(self.zookeeper(setup, net));
        }
        NodeStore::Memory
    }

    #[cfg(feature = "redis-worlds")]
    fn redis(&self, setup: &Setup, net: &Net) -> RedisStore {
        let max_ttl = setup.settings.max_ttl.as_nanos();
        let timeout = (setup.settings.request_timeout * 3).as_millis();
        let options = RedisOptions::parse(&format!(
            "redis://model:6379?max_ttl={max_ttl}ns&timeout_millis={timeout}"
        ));
        let dial = Arc::new(crate::redis::SimDial(net.clone()));
        let store =
            options.and_then(|options| RedisStore::simulated(options, self.clock.clone(), dial));
        store.expect("the drawn options are valid")
    }

    #[cfg(feature = "zookeeper")]
    fn zookeeper(&self, setup: &Setup, net: &Net) -> ZooKeeperStore {
        let mut options = ZooKeeperOptions::new("model:2181");
        options.session_timeout = setup.settings.ttl;
        options.tick_time = Duration::from_nanos(setup.tick);
        let servers = Arc::new(SimServers::new(net, &self.clock));
        let store = ZooKeeperStore::simulated(options, self.clock.clone(), servers);
        store.expect("the drawn options are valid")
    }

    fn on_memory(&self, setup: &Setup, net: &Net) -> LockManagerBuilder {
        let member = |server| SimStore {
            net: net.clone(),
            server,
            is_alone: setup.members == 1,
            hints: self.hints.clone(),
        };
        match setup.members {
            1 => LockManager::builder(member(0)),
            members => {
                let members: Vec<_> = (0..members).map(member).collect();
                let quorum = Quorum::with_clock(members, self.clock.clone());
                LockManager::builder(quorum.expect("few members"))
            }
        }
    }

    fn on_register(&self, net: &Net) -> LockManagerBuilder {
        let register = SimRegister {
            net: net.clone(),
            hints: self.hints.clone(),
        };
        LockManager::builder(SeenStore {
            store: ObservedStore::with_clock(register, self.clock.clone()),
            net: net.clone(),
            reports_grants: false,
        })
    }

    fn manager(&self, builder: LockManagerBuilder, setup: &Setup, net: &Net) -> LockManager {
        let label = Label::parse(&format!("node-{}", self.number)).expect("a short label");
        let mut builder = builder
            .settings(setup.settings.clone())
            .clock(self.clock.clone())
            .label(label)
            .in_simulation();
        if setup.handlers {
            builder = builder.handler(SimHandler::new(net, &self.clock, setup));
        }
        if setup.observed {
            builder = self.observe(builder, net.life);
        }
        builder.build().expect("the drawn settings are valid")
    }

    fn observe(&self, builder: LockManagerBuilder, life: u64) -> LockManagerBuilder {
        let (shared, node) = (self.shared.clone(), self.number);
        builder.observer(move |seen: &Seen<'_>| {
            let mut state = shared.lock();
            if state.lives[node] != life {
                return;
            }
            let runs = &mut state.runs;
            match seen {
                Seen::Acquire {
                    outcome: AcquireOutcome::Held { .. },
                    ..
                } => runs.held += 1,
                // A hold that no caller took ends too.
                Seen::Release {
                    was_reported: true, ..
                } => runs.released += 1,
                Seen::Debt { debt, .. } => runs.observed.push(debt.intent.to_string()),
                Seen::Run { run, event, .. } if event.is_end() => runs.ended.push((node, *run)),
                Seen::Run {
                    run,
                    event: leasehold::handler::RunEvent::Entered,
                    ..
                } => {
                    runs.entered.push((node, *run));
                }
                _ => {}
            }
        })
    }

    /// Runs this process until nothing in it is ready.
    pub(crate) fn turn(&self) {
        let Some(alive) = &self.alive else { return };
        let idle = &alive.idle;
        idle.is_idle.store(false, Ordering::SeqCst);
        alive.runtime.block_on(poll_fn(|cx| {
            if idle.is_idle.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            *idle.waker.lock() = Some(cx.waker().clone());
            Poll::Pending
        }));
    }

    /// Ends this process without a word: nothing that its code still does as it is dropped reaches
    /// the world.
    pub(crate) fn crash(&mut self) {
        let Some(alive) = self.alive.take() else {
            return;
        };
        let unsent = {
            let mut state = self.shared.lock();
            let life = state.lives[self.number];
            state.leases_died(self.number, life);
            state.members_died(self.number);
            state.lives[self.number] += 1;
            let node = self.number;
            state.doing.retain(|(known, _), _| *known != node);
            state.take_unsent(node)
        };
        self.hints.forget(self.number);
        drop((unsent, alive));
        #[cfg(feature = "redis-worlds")]
        {
            let mut state = self.shared.lock();
            if state.redis.is_some() {
                state.crashed(self.number);
            }
        }
    }

    /// Shuts the manager down once its workers have ended, or at once.
    pub(crate) fn shut_down(&self, at_once: bool) {
        let Some(alive) = &self.alive else { return };
        let (locks, left, is_shut) = (
            alive.locks.clone(),
            Arc::clone(&alive.left),
            Arc::clone(&alive.is_shut),
        );
        let clock = leasehold::clock::Clock::from(self.clock.clone());
        let (store, shared) = (alive.store.clone(), self.shared.clone());
        alive.runtime.spawn(async move {
            while !at_once && left.load(Ordering::SeqCst) > 0 {
                clock.sleep(Duration::from_millis(100)).await;
            }
            locks.shutdown().await;
            // An operator who did not notice.
            let revoked = locks.revoke("x0", Revoke::AfterTtl).await;
            if !matches!(&revoked, Err(error) if error.kind() == ErrorKind::Closed) {
                shared.lock().fail("O10 shutdown", || {
                    format!("after its shutdown a manager was asked to revoke a lock: {revoked:?}")
                });
            }
            store.close().await;
            is_shut.store(true, Ordering::SeqCst);
        });
    }

    pub(crate) fn is_shut(&self) -> bool {
        let is_shut = |alive: &Alive| alive.is_shut.load(Ordering::SeqCst);
        self.alive.as_ref().is_none_or(is_shut)
    }

    /// Tasks and timers that are left.
    pub(crate) fn leftovers(&self) -> (usize, Option<Duration>) {
        let tasks = self
            .alive
            .as_ref()
            .map_or(0, |alive| alive.runtime.metrics().num_alive_tasks());
        (tasks, self.clock.until_next())
    }

    /// The values of the cells that this life of the process has.
    pub(crate) fn cells(&self) -> Vec<(Key, u64)> {
        let Some(alive) = &self.alive else {
            return Vec::new();
        };
        let cells = alive.cells.lock();
        cells
            .iter()
            .map(|(key, cell)| (key.clone(), cell.read().number))
            .collect()
    }
}
