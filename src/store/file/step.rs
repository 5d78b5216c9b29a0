//! [`Inner::attempt`]: one request as one step on the file of a key.

use std::cell::RefCell;
use std::time::Duration;

use parking_lot::Mutex;

use super::codec::Record;
use super::crowds::Crowds;
use super::directory::Directory;
use super::kept::{Freed, Kept};
use super::key_file::KeyFile;
use super::peers::Sent;
use super::process::Process;
use super::turns::Turns;
use super::wake::Wakeups;
use crate::clock::{Clock, Stamp, fork};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::{Line, Tombstones, Wakes};

/// What the clones of a store share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) clock: Clock,
    pub(super) directory: Directory,
    pub(super) process: Process,
    pub(super) wakeups: Wakeups,
    pub(super) kept: Kept,
    pub(super) turns: Turns,
    pub(super) crowds: Crowds,
    /// Requests of this process only can arrive after their withdrawal.
    pub(super) withdrawn: Mutex<Tombstones>,
    pub(super) request_timeout: Duration,
    /// That of the process that opened it.
    pub(super) generation: u64,
}

/// A change of a line, and whom to wake after it.
pub(super) type Step<'a, T> =
    &'a mut (dyn FnMut(&mut Line, Duration, NextToken<'_>) -> Result<(T, Wakes), Error> + Send);
/// How long a request waits for the others of its process. A step takes some microseconds.
const LONGEST_TURN: Duration = Duration::from_secs(1);

pub(super) type NextToken<'a> = &'a mut dyn FnMut() -> Result<FencingToken, Error>;

impl Inner {
    pub(super) fn now(&self) -> Duration {
        since_boot(&self.clock)
    }

    /// The step, unless another process is in its own.
    pub(super) fn attempt<T>(
        &self,
        key: &Key,
        step: Step<'_, T>,
    ) -> Result<Option<(T, Wakes)>, Error> {
        self.directory.check_place()?;
        self.attempt_anywhere(key, step)
    }

    /// As [`attempt`](Self::attempt), also if the directory is not in its place: for a step that
    /// gives this process nothing. Whoever it hands the key over to asks for it, and sees then
    /// where the directory is.
    pub(super) fn attempt_anywhere<T>(
        &self,
        key: &Key,
        step: Step<'_, T>,
    ) -> Result<Option<(T, Wakes)>, Error> {
        let is_ours = self.is_ours();
        let turn = is_ours.then(|| self.turns.of(key));
        let _turn = match &turn {
            None => None,
            // A thread whose disk hangs keeps nobody from renewing other keys.
            Some(turn) => match turn.step.try_lock_for(LONGEST_TURN) {
                None => return Ok(None),
                locked => locked,
            },
        };
        let mut known = is_ours.then(|| self.crowds.take(key)).flatten();
        let Ok((mut file, before)) = KeyFile::open(&self.directory, key, &mut known)? else {
            if let Some(known) = known {
                self.crowds.put(key, known);
            }
            return Ok(None);
        };
        let decided = self.decide(key, before, &mut *step)?;
        if !file.is_missing() || !decided.is_changed {
            return self.put(&mut file, decided).map(Some);
        }
        // Nothing was locked until here. Another hold may have come, gone and left no file since
        // then, and its token is larger than one of the time before it (I8): so the decision is
        // made again, under the lock.
        if file.make()?.is_err() {
            return Ok(None);
        }
        let again = self.decide(key, Record::default(), step);
        let answer = again.and_then(|decided| self.put(&mut file, decided));
        if answer.is_err() {
            // A file that stays says that the key is free.
            let _ = file.delete();
        }
        answer.map(Some)
    }

    fn put<T>(&self, file: &mut KeyFile<'_>, decided: Decided<T>) -> Result<(T, Wakes), Error> {
        let Decided {
            answer,
            after,
            is_changed,
            is_longer,
            was_free,
            is_over,
        } = decided;
        if is_over {
            self.free(file, was_free, after.last_token)?;
            return Ok(answer);
        }
        if is_changed {
            file.write(&after, is_longer)?;
        }
        if let Some(known) = file.known(after)
            && self.is_ours()
        {
            self.crowds.put(file.key(), known);
        }
        Ok(answer)
    }

    /// Deletes the file of a key that is free now, or leaves it where this process will soon need
    /// it again.
    fn free(&self, file: &mut KeyFile<'_>, was_free: bool, last_token: u64) -> Result<(), Error> {
        let freed = (!was_free).then(|| self.kept.free(file.key()));
        let free = Record {
            last_token,
            line: Line::default(),
        };
        // What cannot be written, because the disk is full, is deleted.
        if freed != Some(Freed::Stays) || file.write(&free, false).is_err() {
            file.delete()?;
        }
        if let Some(Freed::Goes(Some(before))) = freed {
            self.delete_if_free(&before);
        }
        Ok(())
    }

    /// Whatever fails here leaves a file that says that its key is free.
    fn delete_if_free(&self, key: &Key) {
        let nothing: Step<'_, ()> = &mut |_, _, _| Ok(((), Wakes::default()));
        if let Ok(Ok((file, record))) = KeyFile::open(&self.directory, key, &mut None)
            && (self.decide(key, record, nothing)).is_ok_and(|decided| decided.is_over)
        {
            let _ = file.delete();
        }
    }

    /// Leaves no file of a free key.
    pub(super) fn tidy(&self) {
        if self.is_ours()
            && let Some(key) = self.kept.take()
        {
            self.delete_if_free(&key);
        }
    }

    /// What a step makes of a state. With a lock on the file no step sees an earlier time than the
    /// step before it.
    fn decide<T>(
        &self,
        key: &Key,
        mut record: Record,
        step: Step<'_, T>,
    ) -> Result<Decided<T>, Error> {
        let now = self.now();
        let (token_before, version) = (record.last_token, record.line.version());
        let (claims_before, was_free) = (claims(&record), record.line == Line::default());
        let Record { last_token, line } = &mut record;
        let mut token = || {
            let token = self.directory.tokens.next(*last_token, Line::micros(now))?;
            *last_token = token.number();
            Ok(token)
        };
        let deaths = Deaths::default();
        let is_dead =
            |process| deaths.of(process, || self.process.is_dead(&self.directory, process));
        let freed = line.end_dead(is_dead, now, &mut token);
        let (answer, mut wakes) = step(line, now, &mut token)?;
        wakes.handed_over.extend(freed.handed_over);
        // A token that is ahead of the time has to be remembered.
        let is_remembered = *last_token >= self.directory.tokens.least(Line::micros(now));
        let is_over = line.is_idle(now) && !is_remembered;
        let is_changed = *last_token != token_before || line.version() != version;
        if is_changed && self.is_ours() {
            self.wakeups.keep_places(key, line, now);
        }
        Ok(Decided {
            answer: (answer, wakes),
            is_changed,
            is_longer: claims(&record) > claims_before,
            was_free,
            is_over,
            after: record,
        })
    }

    /// Whether this is the process that opened the store. A thread that a forked child does not
    /// have may hold any lock of it.
    pub(super) fn is_ours(&self) -> bool {
        fork::generation() == self.generation
    }

    /// Ends what dead processes hold and wait for, and wakes whoever is granted the key then.
    pub(super) fn end_dead(&self, key: &Key) -> Result<(), Error> {
        // Each step does it.
        let nothing: Step<'_, ()> = &mut |_, _, _| Ok(((), Wakes::default()));
        if let Some(((), wakes)) = self.attempt(key, nothing)? {
            self.wake(key, wakes);
        }
        Ok(())
    }

    /// Wakes whoever a step has granted the key to, and everybody who waits as a rest begins. Where
    /// a process turns out to be dead, the key goes to the next.
    pub(super) fn wake(&self, key: &Key, wakes: Wakes) {
        self.wakeups.wake(key, &wakes);
        for (owner, origin) in wakes.at_rest.into_iter().flatten() {
            if origin.process != self.process.origin.process {
                // Whoever gets no message polls.
                let _ = self
                    .wakeups
                    .send(&self.directory, origin.process, key, &owner);
            }
        }
        let mut next = wakes.handed_over;
        while let Some((owner, origin)) = next.pop() {
            if origin.process == self.process.origin.process
                || (self.wakeups).send(&self.directory, origin.process, key, &owner) == Sent::Sent
            {
                continue;
            }
            let skip: Step<'_, ()> =
                &mut |line, now, token| Ok(((), line.skip(&owner, now, token)));
            // If this fails, the handover time decides.
            if let Ok(Some(((), wakes))) = self.attempt(key, skip) {
                self.wakeups.wake(key, &wakes);
                next.extend(wakes.handed_over);
            }
        }
    }
}

/// What a step has found out about other processes: a crowd has many claims of a few processes.
#[derive(Default)]
struct Deaths(RefCell<Vec<(u64, bool)>>);

impl Deaths {
    fn of(&self, process: u64, is_dead: impl FnOnce() -> bool) -> bool {
        let mut found = self.0.borrow_mut();
        if let Some((_, is_dead)) = found.iter().find(|(of, _)| *of == process) {
            return *is_dead;
        }
        found.push((process, is_dead()));
        found.last().is_some_and(|(_, is_dead)| *is_dead)
    }
}

/// How many hold or wait.
fn claims(record: &Record) -> usize {
    record.line.holders.len() + record.line.places.len()
}

/// The answer of a step, and the state that follows.
struct Decided<T> {
    answer: (T, Wakes),
    after: Record,
    is_changed: bool,
    /// One claim more holds or waits.
    is_longer: bool,
    /// The state before had no effect.
    was_free: bool,
    /// The state has no effect any more.
    is_over: bool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The socket and the life file of a process that forked are the parent's.
        if !self.is_ours() {
            return;
        }
        self.tidy();
        self.wakeups.end(&self.directory);
        self.process.end(&self.directory);
    }
}

pub(super) fn since_boot(clock: &Clock) -> Duration {
    clock.stamp().since(&Stamp::from_nanos([0; 3]))
}
