//! [`FileStore`]: each request is a step on the line of a key, in its file.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, Either};
use parking_lot::Mutex;

use super::crowds::Crowds;
use super::directory::{Directory, names};
use super::errors::no_effect;
use super::kept::Kept;
use super::key_file::key_of;
use super::options::FileOptions;
use super::process::Process;
use super::stale::remove_stale;
use super::step::{Inner, Step, since_boot};
use super::turns::Turns;
use super::wake::Wakeups;
use crate::clock::{Clock, fork};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::store::{
    Acquired, Asked, Capability, Claim, Grant, Hint, Line, LockInfo, Released, Renewed, Revoke,
    Revoked, Store, Wakes, not_held,
};

/// How long, and how often at most, a step is retried at once while another process is in its step,
/// which takes microseconds. A timer would take a millisecond.
const YIELD_FOR: Duration = Duration::from_micros(200);
const MOST_YIELDS: u32 = 1_000;
/// How long a request waits for those of its process that are in line before it, until it tries on
/// its own, and a waiter for the one that watches: they may not be polled.
const IN_LINE: Duration = Duration::from_millis(100);
/// The first and the longest pause after that.
const PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
/// How often a waiter without messages looks.
const POLL: Duration = Duration::from_millis(10);
/// How often a waiter looks whether a holder has died whose holds end with it.
const DEATH_POLL: Duration = Duration::from_millis(20);
/// How many renewals run before other tasks of the thread get a turn.
const BATCH: usize = 128;

/// Locks among the processes of one machine, in a directory.
///
/// It needs no server: `flock` makes each request one step. It supports whatever
/// [`MemoryStore`](crate::store::MemoryStore) does. Requests are system calls on small files, and
/// run on the thread that polls them: on a memory file system a request takes some microseconds, on
/// a disk that is overloaded it may take longer.
///
/// Not promised: anything among several machines. The directory must be on a local file system,
/// which is checked, and all users of it must be trusted: whoever may write to it can break the
/// locks.
///
/// Cloning is cheap, and all clones are the same store.
#[derive(Clone, Debug)]
pub struct FileStore(Arc<Inner>);

impl FileStore {
    /// Opens the directory, and makes it if it is missing.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a file system that is not local, or if processes of another time namespace
    /// use the directory. `Denied` if this user may not use it, others may write to it, or the
    /// process may not write files of 128 KiB (`RLIMIT_FSIZE`): a write would end it.
    /// `Corrupt` if it is not a directory of locks.
    pub fn open(options: &FileOptions) -> Result<Self, Error> {
        Self::open_with_clock(options, Clock::system()?)
    }

    /// As [`open`](Self::open), with another clock. All processes and stores of a directory must
    /// count by the same clock.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with_clock(options: &FileOptions, clock: Clock) -> Result<Self, Error> {
        let now = Line::micros(since_boot(&clock));
        let wall = clock.wall_micros();
        let directory = Directory::open(options, now, wall)?;
        remove_stale(&directory, wall / 1_000_000);
        let process = Process::new(&directory, options)?;
        let wakeups = Wakeups::new(process.origin.process);
        Ok(Self(Arc::new(Inner {
            clock,
            directory,
            process,
            wakeups,
            kept: Kept::default(),
            turns: Turns::default(),
            crowds: Crowds::default(),
            withdrawn: Mutex::default(),
            request_timeout: options.request_timeout,
            generation: fork::generation(),
        })))
    }

    /// Where the locks are.
    #[must_use]
    pub fn directory(&self) -> &std::path::Path {
        self.0.directory.path()
    }

    #[cfg(test)]
    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }

    /// One step on the line of a key. It waits while another process is in its own.
    async fn step<T>(&self, key: &Key, step: Step<'_, T>) -> Result<T, Error> {
        self.step_by(Inner::attempt, Way::InLine, key, step).await
    }

    /// As [`step`](Self::step), for a step that gives this process nothing.
    async fn leaving_step<T>(&self, way: Way, key: &Key, step: Step<'_, T>) -> Result<T, Error> {
        self.step_by(Inner::attempt_anywhere, way, key, step).await
    }

    async fn step_by<T>(
        &self,
        attempt: Attempt<T>,
        way: Way,
        key: &Key,
        step: Step<'_, T>,
    ) -> Result<T, Error> {
        let inner = &self.0;
        let is_in_line = way == Way::InLine && inner.is_ours();
        let turn = is_in_line.then(|| inner.turns.of(key));
        let mut in_line = None;
        let mut began = None;
        let mut pause = PAUSE;
        for tries in 0_u32.. {
            // The one before it may not be polled: so it has tried once.
            if let (Some(turn), None) = (&turn, &in_line)
                && tries > 0
            {
                in_line = match turn.tries.try_lock() {
                    Ok(first) => Some(first),
                    Err(_) => inner.clock.timeout(IN_LINE, turn.tries.lock()).await,
                };
            }
            if let Some((answer, wakes)) = attempt(inner, key, &mut *step)? {
                // Whoever is woken may be in line.
                drop(in_line);
                inner.wake(key, wakes);
                return Ok(answer);
            }
            if tries == 0 && turn.is_some() {
                continue;
            }
            // From here on it waits for another process, and not for others of its own.
            let now = inner.now();
            let waited = now.saturating_sub(*began.get_or_insert(now));
            if turn.is_some() && in_line.is_none() && waited < inner.request_timeout {
                continue;
            }
            if waited < YIELD_FOR && tries < MOST_YIELDS {
                std::thread::yield_now();
                continue;
            }
            if waited >= inner.request_timeout {
                break;
            }
            inner.clock.sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        Err(Error::unavailable(format!(
            "another process stays in its request to the same lock: key={key} directory={}; it may be stopped (SIGSTOP) or starved",
            inner.directory.path().display()
        )))
    }

    /// What a waiter waits for: its message, if messages reach this process, and the death of
    /// whoever is before it.
    async fn watch(&self, claim: &Claim, woken: Option<Hint>) -> Result<Hint, Error> {
        let waiting = self
            .step(&claim.key, &mut |line, now, _| {
                Ok((waiting(line, claim, now), Wakes::default()))
            })
            .await?;
        let clock = self.0.clock.clone();
        Ok(match (waiting, woken) {
            (Waiting::Holds, _) => Hint::new(std::future::ready(())),
            (Waiting::Queued { may_end_by_death }, Some(woken)) if !may_end_by_death => woken,
            (Waiting::Queued { .. }, Some(woken)) => {
                let (store, key) = (self.clone(), claim.key.clone());
                let death = Box::pin(async move { store.watch_deaths(&key).await });
                Hint::new(async move { drop(future::select(woken, death).await) })
            }
            _ => Hint::new(async move { clock.sleep(POLL).await }),
        })
    }

    /// Takes a step now and then, which ends the claims of dead processes: those that wait get a
    /// message then. One of the waiters of this process does it for all. If that one is not polled,
    /// one of the others does it now and then. Ends if a step fails: the waiter asks, and its
    /// request reports why.
    async fn watch_deaths(&self, key: &Key) {
        let inner = &self.0;
        let turn = inner.turns.of(key);
        let mut watches = None;
        loop {
            if watches.is_none() {
                watches = inner.clock.timeout(IN_LINE, turn.watch.lock()).await;
            }
            let after = if watches.is_some() {
                Duration::ZERO
            } else {
                IN_LINE
            };
            if turn.begins_check(inner.now(), after) && inner.end_dead(key).is_err() {
                return;
            }
            if watches.is_some() {
                inner.clock.sleep(DEATH_POLL).await;
            }
        }
    }

    async fn renew_one(&self, claim: &Claim) -> Renewed {
        let renew: Step<'_, _> = &mut |line, now, _| Ok((line.renew(claim, now), Wakes::default()));
        let renewed = self
            .step_by(Inner::attempt, Way::First, &claim.key, renew)
            .await;
        renewed.unwrap_or_else(|error| {
            // Another directory is where this one was, so others may hold the key already.
            match self.0.directory.check_place() {
                Ok(()) => Renewed::Unknown(error),
                Err(_) => Renewed::Gone,
            }
        })
    }

    async fn look(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        self.step(key, &mut |line, now, _| {
            Ok((line.info(key, now), Wakes::default()))
        })
        .await
    }
}

/// Whether a request lets others of its process try first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    InLine,
    /// It is urgent: the holder's, or of the claim that was called.
    First,
}

type Attempt<T> = fn(&Inner, &Key, Step<'_, T>) -> Result<Option<(T, Wakes)>, Error>;

/// What a waiter has to expect.
enum Waiting {
    /// It holds the key already.
    Holds,
    /// It has a place, so it gets a message; holders or earlier waiters may die with their process.
    Queued { may_end_by_death: bool },
    /// It has no place.
    Apart,
}

#[deny(clippy::missing_trait_methods)]
impl Store for FileStore {
    fn name(&self) -> &'static str {
        "file"
    }

    fn capability(&self) -> Capability {
        Capability {
            shares: true,
            ..Capability::queued()
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Acquired, Error> {
        let origin = self.0.process.origin;
        let inner = &self.0;
        let asks = || (inner.wakeups).asks(&claim.key, &claim.owner, || inner.now());
        let is_called = inner.is_ours() && asks();
        let way = if is_called { Way::First } else { Way::InLine };
        let acquire: Step<'_, _> = &mut |line, now, token| {
            self.0.withdrawn.lock().check(claim)?;
            line.acquire(Asked { claim, origin, now }, token)
        };
        self.step_by(Inner::attempt, way, &claim.key, acquire).await
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewed> {
        let mut answers = Vec::with_capacity(grants.len());
        for batch in grants.chunks(BATCH) {
            if !answers.is_empty() {
                tokio::task::yield_now().await;
            }
            // Together: one file that stays locked, because a process is stopped, delays no other
            // renewal.
            let renewals = batch.iter().map(|grant| self.renew_one(&grant.claim));
            answers.extend(future::join_all(renewals).await);
        }
        answers
    }

    async fn release(&self, grant: &Grant) -> Released {
        let owner = &grant.claim.owner;
        self.leaving_step(Way::First, &grant.claim.key, &mut |line, now, token| {
            Ok(line.release(owner, now, token))
        })
        .await
        .unwrap_or_else(Released::Unknown)
    }

    async fn rest(&self, grant: &Grant, rest: Duration) -> Released {
        let owner = &grant.claim.owner;
        self.leaving_step(Way::First, &grant.claim.key, &mut |line, now, token| {
            Ok(line.rest(owner, rest, now, token))
        })
        .await
        .unwrap_or_else(Released::Unknown)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), Error> {
        self.0.withdrawn.lock().add(claim, self.0.now());
        self.leaving_step(Way::InLine, &claim.key, &mut |line, now, token| {
            Ok(((), line.withdraw(&claim.owner, now, token)))
        })
        .await
    }

    async fn subscribe(&self, claim: &Claim) -> Result<Hint, Error> {
        let inner = &self.0;
        let receives = inner.wakeups.receives(&inner.directory);
        // Subscribed before the look, so that no handover in between is missed.
        let woken = (inner.wakeups).subscribe(&claim.key, claim.owner, inner.now());
        self.watch(claim, receives.then_some(woken)).await
    }

    /// Looks at the file only if no message comes for a moment: then the message may never come.
    fn listen(&self, claim: &Claim) -> Option<Hint> {
        let inner = &self.0;
        let woken = (inner.wakeups).listen(&claim.key, claim.owner, inner.now())?;
        let (store, claim) = (self.clone(), claim.clone());
        Some(Hint::new(async move {
            let moment = pin!(store.0.clock.sleep(DEATH_POLL));
            let Either::Right(((), woken)) = future::select(woken, moment).await else {
                return;
            };
            // If this fails, the next request reports it.
            if let Ok(hint) = store.watch(&claim, Some(woken)).await {
                hint.await;
            }
        }))
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant, Error> {
        let claim = &grant.claim;
        let downgrade: Step<'_, _> = &mut |line, now, token| {
            if line.is_idle(now) {
                return Err(not_held(&claim.key));
            }
            line.downgrade(claim, now, token)
        };
        self.step_by(Inner::attempt, Way::First, &claim.key, downgrade)
            .await
    }

    async fn revoke(&self, key: &Key, how: Revoke) -> Result<Revoked, Error> {
        self.step(
            key,
            &mut |line, now, token| Ok(line.revoke(how, now, token)),
        )
        .await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<LockInfo>, Error> {
        self.look(key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let directory = &self.0.directory;
        let keys = names(directory.keys())
            .map_err(|errno| no_effect("list the locks", directory.path(), errno))?;
        let mut keys: Vec<Key> = (keys.iter().filter_map(|name| key_of(name)))
            .filter(|key| key.as_str().starts_with(prefix))
            .collect();
        keys.sort();
        let mut infos = Vec::new();
        for key in &keys {
            infos.extend(self.look(key).await?.map(LockInfo::in_list));
        }
        Ok(infos)
    }

    async fn close(&self) -> Result<(), Error> {
        self.0.tidy();
        Ok(())
    }
}

fn waiting(line: &mut Line, claim: &Claim, now: Duration) -> Waiting {
    if line.held_by(&claim.owner, now).is_some() {
        return Waiting::Holds;
    }
    let places = line.places.iter();
    let ahead = places.take_while(|place| place.claim.owner != claim.owner);
    let ahead: Vec<_> = ahead.map(|place| place.origin).collect();
    if ahead.len() == line.places.len() {
        return Waiting::Apart;
    }
    let mut origins = line.holders.iter().map(|held| held.origin).chain(ahead);
    Waiting::Queued {
        may_end_by_death: origins.any(|origin| origin.ends_with_process),
    }
}
