//! Members that share shards, each with a manager of its own as a process has, and a book of who
//! owned what.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock};
use leasehold::shards::{Shard, Shards};
use leasehold::store::Store;
use leasehold::testing::{Faulty, Operation};
use leasehold::{Error, LockManager, Settings};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Who owns what, and what should not have happened.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) owners: BTreeMap<u32, usize>,
    last_token: BTreeMap<u32, u64>,
    /// Those that were cut off may notice late that they own nothing.
    dead: BTreeSet<usize>,
    faults: Vec<String>,
    /// How often work began.
    pub(crate) begun: usize,
}

impl Book {
    fn begin(&mut self, member: usize, shard: &Shard) {
        let (index, token) = (shard.index(), shard.token().number());
        let former = self.owners.insert(index, member);
        if let Some(former) = former.filter(|former| !self.dead.contains(former)) {
            let fault = format!("{former} and {member} own {index} at a time");
            self.faults.push(fault);
        }
        let last = self.last_token.insert(index, token);
        if last.is_some_and(|last| last >= token) {
            self.faults
                .push(format!("{last:?} before {token} of {index}"));
        }
        self.begun += 1;
    }

    fn end(&mut self, member: usize, index: u32) {
        if self.owners.get(&index) == Some(&member) {
            self.owners.remove(&index);
        }
    }

    pub(crate) fn load(&self, member: usize) -> usize {
        self.owners
            .values()
            .filter(|owner| **owner == member)
            .count()
    }
}

pub(crate) type Ledger = Arc<Mutex<Book>>;

/// Work that is noted in the book from its begin to its end.
pub(crate) struct Entry {
    ledger: Ledger,
    member: usize,
    index: u32,
}

impl Entry {
    pub(crate) fn begin(ledger: &Ledger, member: usize, shard: &Shard) -> Self {
        ledger.lock().unwrap().begin(member, shard);
        Self {
            ledger: Arc::clone(ledger),
            member,
            index: shard.index(),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let book = self.ledger.lock();
        let mut book = book.unwrap_or_else(PoisonError::into_inner);
        book.end(self.member, self.index);
    }
}

/// One process.
pub(crate) struct Process<S: Store + Clone> {
    pub(crate) number: usize,
    pub(crate) store: S,
    pub(crate) network: Faulty<S>,
    pub(crate) locks: LockManager,
    pub(crate) shards: Shards,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinHandle<Result<(), Error>>,
}

/// Where its members get their store from, and how the time passes.
pub(crate) struct Crew {
    pub(crate) ledger: Ledger,
    pub(crate) clock: Option<ManualClock>,
    pub(crate) settings: Settings,
    managers: Vec<LockManager>,
}

impl Crew {
    pub(crate) fn new(clock: Option<ManualClock>, settings: Settings) -> Self {
        Self {
            ledger: Ledger::default(),
            clock,
            settings,
            managers: Vec::new(),
        }
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clock(&self) -> Clock {
        match &self.clock {
            Some(clock) => Clock::from(clock.clone()),
            None => Clock::system().unwrap(),
        }
    }

    /// A process that takes part, set up further, and whose work ends when it is asked to.
    pub(crate) fn join<S: Store + Clone>(
        &mut self,
        store: S,
        set_up: impl FnOnce(&LockManager) -> Shards,
    ) -> Process<S> {
        self.join_with(store, set_up, |entry, shard| async move {
            shard.leaving().await;
            drop(entry);
            Ok(())
        })
    }

    /// As [`join`](Self::join), with other work.
    pub(crate) fn join_with<S: Store + Clone, F>(
        &mut self,
        store: S,
        set_up: impl FnOnce(&LockManager) -> Shards,
        work: impl Fn(Entry, Shard) -> F + Send + Sync + 'static,
    ) -> Process<S>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let number = self.managers.len();
        let network = Faulty::new(store.clone(), self.clock(), number as u64);
        let builder = LockManager::builder(network.clone()).settings(self.settings.clone());
        let locks = builder.clock(self.clock()).build().unwrap();
        self.managers.push(locks.clone());
        let shards = set_up(&locks);
        let stop = CancellationToken::new();
        let ledger = Arc::clone(&self.ledger);
        let noted = move |shard: Shard| {
            let entry = Entry::begin(&ledger, number, &shard);
            work(entry, shard)
        };
        let serving = tokio::spawn(shards.serve(noted).until(stop.clone()));
        Process {
            number,
            store,
            network,
            locks,
            shards,
            stop,
            serving,
        }
    }

    /// The process is cut off for good, as one that was killed.
    pub(crate) async fn kill<S: Store + Clone>(&self, process: &Process<S>) {
        for operation in [
            Operation::Acquire,
            Operation::Renew,
            Operation::Release,
            Operation::Withdraw,
            Operation::Subscribe,
            Operation::Inspect,
            Operation::List,
        ] {
            process.network.block(operation);
        }
        self.book().dead.insert(process.number);
        // It releases nothing. A session ends by its time.
        process.store.close().await.unwrap();
    }

    /// Lets the time pass for a moment, and lets everybody do what is due.
    pub(crate) async fn step(&self) {
        match &self.clock {
            Some(clock) => {
                clock.advance(Duration::from_millis(20));
                for manager in &self.managers {
                    manager.settled().await;
                }
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
            }
            None => self.clock().sleep(Duration::from_millis(10)).await,
        }
    }

    /// Lets the time pass until this is so.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl FnMut(&Book) -> bool) {
        for _ in 0..10_000 {
            if is_so(&self.book()) {
                return;
            }
            self.step().await;
        }
        panic!("never {what}: {:?}", self.book());
    }

    pub(crate) async fn pass(&self, span: Duration) {
        for _ in 0..span.as_millis() / 20 {
            self.step().await;
        }
    }

    /// Until these members own so many shards, and nobody else owns one.
    pub(crate) async fn until_loads<const N: usize>(&self, loads: [(usize, usize); N]) {
        let sum: usize = loads.iter().map(|(_, load)| load).sum();
        let what = format!("the loads are {loads:?}");
        let is_so = |book: &Book| {
            book.owners.len() == sum && loads.iter().all(|&(who, load)| book.load(who) == load)
        };
        self.until(&what, is_so).await;
    }

    /// Waits for a process that leaves.
    pub(crate) async fn left<S: Store + Clone>(&self, process: Process<S>) -> Result<(), Error> {
        let what = format!("has {} left", process.number);
        self.until(&what, |_| process.serving.is_finished()).await;
        process.serving.await.unwrap()
    }

    pub(crate) fn assert_sound(&self) {
        assert_eq!(self.book().faults, Vec::<String>::new());
    }
}

/// Members join, one leaves in order, and one is killed. `open` opens a store as one more process
/// does.
pub(crate) async fn members_come_and_go<S: Store + Clone>(
    mut crew: Crew,
    open: impl AsyncFn() -> S,
    name: &str,
) {
    let set_up = |locks: &LockManager| locks.shards(name, 12);
    let first = crew.join(open().await, set_up);
    crew.until_loads([(0, 12)]).await;
    let second = crew.join(open().await, set_up);
    let third = crew.join(open().await, set_up);
    crew.until_loads([(0, 4), (1, 4), (2, 4)]).await;
    let owners = third.shards.owners().await.unwrap();
    assert_eq!(owners.len(), 12);
    let own = third.shards.watch().borrow().clone();
    let book: BTreeSet<u32> = (crew.book().owners.iter())
        .filter(|(_, owner)| **owner == 2)
        .map(|(&shard, _)| shard)
        .collect();
    assert_eq!(own, book);
    first.stop.cancel();
    crew.left(first).await.unwrap();
    crew.until_loads([(1, 6), (2, 6)]).await;
    crew.kill(&second).await;
    crew.until_loads([(2, 12)]).await;
    // It notices by its own clock, and works no more.
    let own = second.shards.watch();
    let is_idle = |_: &Book| own.borrow().is_empty();
    crew.until("has the killed member stopped its work", is_idle)
        .await;
    third.stop.cancel();
    crew.left(third).await.unwrap();
    assert_eq!(crew.book().owners.len(), 0);
    crew.assert_sound();
}
