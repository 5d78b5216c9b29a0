//! Read/write locks that their holder may acquire again: the holder is a [`Scope`].
//!
//! A scope that writes may write and read, and a scope that reads may read. When the last writer of
//! a scope is released and readers of it are left, the hold becomes a read hold without a gap. A
//! scope that reads cannot write: two of them would wait for each other.

use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::read_write::{ReadCheck, ReadGuard, ReadWriteLock, WriteGuard};
use super::reentrant::{Scope, ensure_enterable};
use crate::lease::{Lease, LeaseError};
use crate::manager::in_runtime;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::Released;

/// What a scope holds of one key. Its tasks that ask at once ask each for itself, and enter the
/// hold that one of them gets: none waits for another's request, which perhaps nobody polls.
#[derive(Debug, Default)]
pub(super) struct ReadWritePlace {
    held: Mutex<Entered>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Entered {
    writer: Weak<WriteGuard>,
    readers: Weak<Readers>,
    /// The write hold of the readers is becoming a read hold: nobody enters before it is one.
    is_becoming: bool,
}

/// What a writer of a scope leaves.
enum Left {
    /// It was the last guard of the scope.
    Nothing(WriteGuard),
    /// Readers, with the write hold if it was the last writer.
    Readers(Arc<Readers>, Option<WriteGuard>),
    Writers,
}

/// A write hold becomes a read hold, until this is dropped.
struct Becoming<'a>(&'a ReadWritePlace);

impl Drop for Becoming<'_> {
    fn drop(&mut self) {
        self.0.held.lock().is_becoming = false;
        self.0.changed.notify_waiters();
    }
}

/// What the readers of a scope have in common.
struct Readers {
    /// The lease that they read under; the last one after the end.
    lease: Mutex<Lease>,
    side: Mutex<Side>,
}

enum Side {
    /// The scope's write hold, which lets them read too.
    OfWriter(Arc<WriteGuard>),
    Read(ReadGuard),
    /// The hold has ended, or is becoming a read hold.
    Over,
}

impl ReadWritePlace {
    pub(super) fn is_empty(&self) -> bool {
        let held = self.held.lock();
        held.writer.strong_count() + held.readers.strong_count() == 0
    }

    /// A writer leaves. Of several that leave at once, one is the last.
    fn leave(&self, writer: Arc<WriteGuard>) -> Left {
        let mut held = self.held.lock();
        if let Some(last) = Arc::into_inner(writer) {
            return Left::Nothing(last);
        }
        let Some(readers) = held.readers.upgrade() else {
            return Left::Writers;
        };
        let alone = readers.take_writer();
        held.is_becoming |= alone.is_some();
        Left::Readers(readers, alone)
    }
}

impl Entered {
    /// Another reader of the scope, if it reads or writes.
    fn read(&mut self, lock: &ReadWriteLock) -> Result<Option<ReentrantReadGuard>, Error> {
        if self.is_becoming {
            return Ok(None);
        }
        if let Some(readers) = self.readers.upgrade() {
            let lease = readers.lease.lock().clone();
            ensure_enterable(&lock.reader, &lease)?;
            return Ok(Some(ReentrantReadGuard { readers }));
        }
        let Some(writer) = self.writer.upgrade() else {
            return Ok(None);
        };
        ensure_enterable(&lock.writer, writer.lease())?;
        let lease = writer.lease().clone();
        Ok(Some(self.first_reads(lease, Side::OfWriter(writer))))
    }

    fn first_reads(&mut self, lease: Lease, side: Side) -> ReentrantReadGuard {
        let readers = Arc::new(Readers {
            lease: Mutex::new(lease),
            side: Mutex::new(side),
        });
        self.readers = Arc::downgrade(&readers);
        ReentrantReadGuard { readers }
    }

    /// Another writer of the scope, if it writes.
    fn write(&self, lock: &ReadWriteLock) -> Result<Option<Arc<WriteGuard>>, Error> {
        if let Some(writer) = self.writer.upgrade() {
            ensure_enterable(&lock.writer, writer.lease())?;
            return Ok(Some(writer));
        }
        if self.readers.strong_count() > 0 {
            return Err(Error::invalid(format!(
                "the scope reads, and a reader cannot become a writer: key={}; release its read guards first, or write from the start",
                lock.writer.key()?
            )));
        }
        Ok(None)
    }
}

/// A [`ReadWriteLock`] that a [`Scope`] may acquire again. Nothing is held. Cloning is cheap.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use leasehold::{LockManager, reentrant::Scope, store::MemoryStore};
/// # let locks = LockManager::new(MemoryStore::new()?)?;
/// let prices = locks.read_write("prices").reentrant();
/// let scope = Scope::new();
/// let writer = prices.write(&scope).await?;
/// // The writer may read, without a request to the store.
/// let reader = prices.read(&scope).await?;
/// // Other readers enter now; a writer cannot come in between.
/// assert!(writer.release().await?.is_none());
/// assert!(prices.try_read(&Scope::new()).await?.is_some());
/// assert!(prices.try_write(&Scope::new()).await?.is_none());
/// reader.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a lock holds nothing until it is acquired"]
pub struct ReentrantReadWriteLock {
    pub(super) lock: ReadWriteLock,
}

impl ReadWriteLock {
    /// The same lock, with its TTL and fence, for scopes that acquire it again.
    pub fn reentrant(self) -> ReentrantReadWriteLock {
        ReentrantReadWriteLock { lock: self }
    }
}

impl ReentrantReadWriteLock {
    /// Holds the key for reading, or enters the hold that the scope has, for reading or writing; or
    /// fails when the manager's [`wait`](crate::Settings::wait) is over.
    ///
    /// # Errors
    ///
    /// `Lost` if the scope's hold has lapsed or is about to: drop its guards and begin again.
    /// Otherwise as [`ReadWriteLock::read`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`](crate::Lock::acquire).
    pub async fn read(&self, scope: &Scope) -> Result<ReentrantReadGuard, Error> {
        match self.read_within(scope, self.wait()).await? {
            Some(guard) => Ok(guard),
            None => Err(self.lock.reader.contended().await),
        }
    }

    /// As [`read`](Self::read), without a wait; `None` if the key is busy.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), except for a key that is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn try_read(&self, scope: &Scope) -> Result<Option<ReentrantReadGuard>, Error> {
        self.read_within(scope, Duration::ZERO).await
    }

    /// As [`read`](Self::read); `None` if it had to wait for longer than `wait`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), except for a key that is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn read_within(
        &self,
        scope: &Scope,
        wait: Duration,
    ) -> Result<Option<ReentrantReadGuard>, Error> {
        let entered = self.read_entered(scope, wait);
        in_runtime(self.lock.reader.runtime(), entered).await
    }

    async fn read_entered(
        &self,
        scope: &Scope,
        wait: Duration,
    ) -> Result<Option<ReentrantReadGuard>, Error> {
        let place = self.place(scope)?;
        let mut asked = pin!(self.lock.read_within(wait));
        loop {
            let mut changed = pin!(place.changed.notified());
            // Registered before the check: another task may get a hold in between.
            changed.as_mut().enable();
            let entered = place.held.lock().read(&self.lock)?;
            if entered.is_some() {
                return Ok(entered);
            }
            tokio::select! {
                biased;
                () = changed => {}
                reader = &mut asked => {
                    let Some(reader) = reader? else {
                        return Ok(None);
                    };
                    let mut held = place.held.lock();
                    // Two readers of one scope may be granted at once: the second enters the hold
                    // of the first.
                    if let Ok(Some(entered)) = held.read(&self.lock) {
                        return Ok(Some(entered));
                    }
                    let first = held.first_reads(reader.lease().clone(), Side::Read(reader));
                    drop(held);
                    place.changed.notify_waiters();
                    return Ok(Some(first));
                }
            }
        }
    }

    /// Holds the key alone, or enters the write hold that the scope has; or fails when the
    /// manager's [`wait`](crate::Settings::wait) is over.
    ///
    /// # Errors
    ///
    /// `Invalid` if the scope reads and does not write, at once: there is no upgrade. Otherwise as
    /// [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn write(&self, scope: &Scope) -> Result<ReentrantWriteGuard, Error> {
        match self.write_within(scope, self.wait()).await? {
            Some(guard) => Ok(guard),
            None => Err(self.lock.writer.contended().await),
        }
    }

    /// As [`write`](Self::write), without a wait; `None` if the key is busy.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), except for a key that is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn try_write(&self, scope: &Scope) -> Result<Option<ReentrantWriteGuard>, Error> {
        self.write_within(scope, Duration::ZERO).await
    }

    /// As [`write`](Self::write); `None` if it had to wait for longer than `wait`.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), except for a key that is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn write_within(
        &self,
        scope: &Scope,
        wait: Duration,
    ) -> Result<Option<ReentrantWriteGuard>, Error> {
        let entered = self.write_entered(scope, wait);
        in_runtime(self.lock.writer.runtime(), entered).await
    }

    async fn write_entered(
        &self,
        scope: &Scope,
        wait: Duration,
    ) -> Result<Option<ReentrantWriteGuard>, Error> {
        let place = self.place(scope)?;
        let mut asked = pin!(self.lock.write_within(wait));
        loop {
            let mut changed = pin!(place.changed.notified());
            // As in `read_entered`.
            changed.as_mut().enable();
            let entered = place.held.lock().write(&self.lock)?;
            let writer = if let Some(writer) = entered {
                writer
            } else {
                tokio::select! {
                    biased;
                    () = changed => continue,
                    writer = &mut asked => {
                        let Some(writer) = writer? else {
                            return Ok(None);
                        };
                        let writer = Arc::new(writer);
                        place.held.lock().writer = Arc::downgrade(&writer);
                        place.changed.notify_waiters();
                        writer
                    }
                }
            };
            let place = Arc::clone(&place);
            return Ok(Some(ReentrantWriteGuard { writer, place }));
        }
    }

    fn wait(&self) -> Duration {
        self.lock.reader.handle().context().settings().wait
    }

    fn place(&self, scope: &Scope) -> Result<Arc<ReadWritePlace>, Error> {
        scope.of_read_write(&self.lock.reader)
    }
}

/// One entry of a scope into a write hold. Everything else is as with [`WriteGuard`].
///
/// Dropped while readers of the scope are left, it leaves them the write hold, so other readers
/// wait for them; [`release`](Self::release) makes it a read hold.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the last of its guards is dropped"]
pub struct ReentrantWriteGuard {
    writer: Arc<WriteGuard>,
    place: Arc<ReadWritePlace>,
}

impl ReentrantWriteGuard {
    /// Leaves the hold. The last guard of the scope ends it and gets the result, as
    /// [`LockGuard::release`](crate::LockGuard::release). If only readers of the scope are left,
    /// the hold becomes a read hold, as by [`WriteGuard::downgrade`]. Otherwise it returns `None`.
    ///
    /// # Errors
    ///
    /// As `LockGuard::release`, or as [`WriteGuard::downgrade`]: then nothing is held, and the
    /// readers that are left learn it from their lease.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: when this future is dropped, the hold goes on, or ends in the background.
    ///
    /// # Deadlock
    ///
    /// It waits for runs in progress: do not await it from inside one of them.
    pub async fn release(self) -> Result<Option<Released>, Error> {
        let Self { writer, place } = self;
        let runtime = writer.runtime().clone();
        let left = async {
            match place.leave(writer) {
                Left::Nothing(last) => last.release().await.map(Some),
                Left::Readers(readers, alone) => {
                    if let Some(writer) = alone {
                        let _becoming = Becoming(&place);
                        readers.become_readers(writer).await?;
                    }
                    // The scope's own read guards may have left meanwhile: then this is the last of
                    // its guards.
                    ReentrantReadGuard { readers }.release().await
                }
                Left::Writers => Ok(None),
            }
        };
        in_runtime(&runtime, left).await
    }
}

impl Deref for ReentrantWriteGuard {
    type Target = WriteGuard;

    fn deref(&self) -> &WriteGuard {
        &self.writer
    }
}

impl Readers {
    /// The write hold, if nobody but these readers has it.
    fn take_writer(&self) -> Option<WriteGuard> {
        let mut side = self.side.lock();
        match std::mem::replace(&mut *side, Side::Over) {
            Side::OfWriter(writer) => match Arc::try_unwrap(writer) {
                Ok(writer) => return Some(writer),
                Err(shared) => *side = Side::OfWriter(shared),
            },
            other => *side = other,
        }
        None
    }

    async fn become_readers(&self, writer: WriteGuard) -> Result<(), Error> {
        let reader = writer.downgrade().await?;
        *self.lease.lock() = reader.lease().clone();
        *self.side.lock() = Side::Read(reader);
        Ok(())
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").finish_non_exhaustive()
    }
}

/// One entry of a scope for reading. The hold ends with the last guard of the scope.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the last of its guards is dropped"]
pub struct ReentrantReadGuard {
    readers: Arc<Readers>,
}

impl ReentrantReadGuard {
    /// The lease that it reads under now: when the last writer of the scope has left, another one
    /// with the same token.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.readers.lease.lock().clone()
    }

    /// The key of the lock.
    #[must_use]
    pub fn key(&self) -> Key {
        self.lease().key().clone()
    }

    /// The fencing token of the grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.lease().token()
    }

    /// Reads under the hold, as [`ReadGuard::read`]. A read in another task of the scope during
    /// which the last writer of the scope is released may be refused.
    ///
    /// # Errors
    ///
    /// As [`ReadGuard::read`].
    pub fn read<T>(&self, read: impl FnOnce(&ReadCheck<'_>) -> T) -> Result<T, LeaseError> {
        let lease = self.lease();
        let check = ReadCheck::of(&lease);
        check.check()?;
        let value = read(&check);
        // The lease of now has followed that of before without a gap, if it is another one.
        ReadCheck::of(&self.lease()).check()?;
        Ok(value)
    }

    /// Leaves the hold. The last guard of the scope ends it and gets the result, as
    /// [`LockGuard::release`](crate::LockGuard::release); the others get `None`.
    ///
    /// # Errors
    ///
    /// As `LockGuard::release`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: when this future is dropped, the end continues in the background.
    pub async fn release(self) -> Result<Option<Released>, Error> {
        let Some(last) = Arc::into_inner(self.readers) else {
            return Ok(None);
        };
        match last.side.into_inner() {
            Side::Read(reader) => reader.release().await.map(Some),
            Side::OfWriter(writer) => match Arc::into_inner(writer) {
                Some(writer) => writer.release().await.map(Some),
                None => Ok(None),
            },
            Side::Over => Ok(None),
        }
    }
}
