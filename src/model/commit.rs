//! The types of an effect outside the process: [`CommitPermit`], [`Applied`] and [`EffectError`].
//!
//! The executor and the fences share them.

use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Stamp;
use crate::model::error::{BoxError, Error};
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::model::txn::{Mark, TxnId};
use crate::model::uses::{Use, Uses};

/// One lock of a run: its key, and the fencing token of its hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldKey {
    /// The key of the lock. A fence remembers one token for each key.
    pub key: Key,
    /// The fencing token of the hold. A fence at the resource refuses smaller ones.
    pub token: FencingToken,
}

/// The keys and fencing tokens of all locks that a run is under, sorted by key; never empty.
/// Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locks(pub(crate) Arc<[HeldKey]>);

impl Locks {
    /// The fencing token of the lock of one key.
    ///
    /// # Errors
    ///
    /// `Invalid` if the run is not under a lock of the key.
    pub fn token_of(&self, key: &str) -> Result<FencingToken, Error> {
        let lock = self.iter().find(|lock| lock.key.as_str() == key);
        lock.map(|lock| lock.token)
            .ok_or_else(|| not_held(self.iter().map(|lock| &lock.key)))
    }
}

impl Deref for Locks {
    type Target = [HeldKey];

    fn deref(&self) -> &[HeldKey] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a Locks {
    type Item = &'a HeldKey;
    type IntoIter = std::slice::Iter<'a, HeldKey>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One value of each lock of a run, for people: in the order of the keys, separated by commas.
pub(crate) struct Listed<'a> {
    locks: &'a [HeldKey],
    value: fn(&HeldKey) -> &dyn fmt::Display,
}

/// The keys of some locks.
pub(crate) fn keys(locks: &[HeldKey]) -> Listed<'_> {
    Listed {
        locks,
        value: |lock| &lock.key,
    }
}

/// The tokens of some locks.
pub(crate) fn tokens(locks: &[HeldKey]) -> Listed<'_> {
    Listed {
        locks,
        value: |lock| &lock.token,
    }
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, lock) in self.locks.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{}", (self.value)(lock))?;
        }
        Ok(())
    }
}

/// What distinguishes some locks from others, whatever their order: the sum of the FNV-1a of each
/// one's key and token. It is against mistakes; it proves nothing to somebody who wants to deceive.
pub(crate) fn mark(locks: &[HeldKey]) -> Mark {
    let of_one = |lock: &HeldKey| {
        let token = lock.token.number().to_be_bytes();
        let bytes = lock.key.as_str().bytes().chain(token);
        bytes.fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    };
    let sum = locks.iter().map(of_one).fold(0, u32::wrapping_add);
    sum.to_be_bytes()
}

/// Whether a run of this name is under these locks, all of them and no others.
pub(crate) fn is_of(txn_id: TxnId, locks: &[HeldKey]) -> bool {
    txn_id.mark() == mark(locks)
}

/// The error for a key that is none of those that are held.
pub(crate) fn not_held<'a>(held: impl Iterator<Item = &'a Key>) -> Error {
    let held = held.map(Key::as_str).collect::<Vec<_>>().join(" ");
    Error::invalid(format!(
        "the key is none of those that are held: keys={held}; name one of them"
    ))
}

/// The argument of a commit call: the right to make one durable change, now.
///
/// It is over with the run: a fence refuses a copy that was kept. If the call reports that nothing
/// was applied while a fence is still at work under a copy, the run is in doubt.
///
/// Cloning is cheap.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CommitPermit {
    locks: Locks,
    uses: Uses,
    /// Write it together with the change, so that a commit in doubt can be looked up.
    pub txn_id: TxnId,
    /// The remaining time of the lease: use it as the time-out of the call. An awaited commit is
    /// not polled after it, and is then in doubt; if the process was stopped before the send until
    /// this time had passed, the fence has one more second to refuse it.
    pub remaining: Duration,
    /// The end of `remaining` on each of this machine's clocks, to compare with a later
    /// [`Clock::stamp`](crate::clock::Clock::stamp).
    pub not_after: Stamp,
}

impl CommitPermit {
    pub(crate) fn new(locks: Locks, txn_id: TxnId, remaining: Duration, not_after: Stamp) -> Self {
        Self {
            locks,
            uses: Uses::default(),
            txn_id,
            remaining,
            not_after,
        }
    }

    /// Begins the use of this permit by a fence, which says when it [sends](Self::sends) its
    /// change, and [ends](Use::end) the use when it knows what became of that.
    pub(crate) fn begin(&self) -> Result<Use<'_>, EffectError> {
        self.uses.begin().ok_or_else(|| {
            EffectError::unknown(
                "the run of this permit is over, and nothing was sent; do not keep a permit",
            )
        })
    }

    /// For authors of fences: does `change` under this permit, unless its run is over. A change
    /// that is dropped before it has answered stays in use, and leaves its run in doubt. So does
    /// one that ends as unknown, whatever a second use is refused. Only one that is applied ends
    /// that doubt.
    ///
    /// # Errors
    ///
    /// [`EffectError::Unknown`] if the run is over, and nothing was sent; otherwise that of
    /// `change`.
    ///
    /// # Cancel safety
    ///
    /// That of `change`.
    pub async fn used_for<V, R>(
        &self,
        change: impl Future<Output = Result<Result<Applied<V>, R>, EffectError>>,
    ) -> Result<Result<Applied<V>, R>, EffectError> {
        let used = self.begin()?;
        // Nobody knows from where on it may be applied.
        self.sends();
        let answer = change.await;
        self.answered(&answer);
        used.end();
        answer
    }

    /// The same for a fence that says when it [sends](Self::sends) its change. One that is dropped
    /// before that is not in use.
    #[cfg(any(
        feature = "kubernetes",
        feature = "postgres",
        feature = "redis",
        feature = "zookeeper"
    ))]
    pub(crate) async fn used_to_send<T: FenceAnswer>(
        &self,
        change: impl Future<Output = Result<T, EffectError>>,
    ) -> Result<T, EffectError> {
        let used = self.begin()?;
        let answer = change.await;
        self.answered(&answer);
        used.end();
        answer
    }

    /// A fence has answered. What it has applied, or may have, no later error takes back.
    pub(crate) fn answered<T: FenceAnswer>(&self, answer: &Result<T, EffectError>) {
        match answer {
            Ok(answer) if answer.is_applied() => self.uses.applied(),
            Err(EffectError::Unknown(_)) => self.uses.in_doubt(),
            _ => {}
        }
    }

    /// A fence is about to send what may apply its change. What it has sent before can't.
    pub(crate) fn sends(&self) {
        self.uses.sends();
    }

    /// The commit call is that of a fence, and does nothing else.
    pub(crate) fn is_for_a_fence(&self) {
        self.uses.are_of_a_fence();
    }

    /// Ends the permit of a commit call that was dropped. Whether that proves that nothing was
    /// applied: the call was that of a fence, which has not sent its change.
    pub(crate) fn end_unsent(&self) -> bool {
        self.uses.end_unsent()
    }

    /// Ends the permit with its run. Why an answer that nothing was applied proves nothing, if it
    /// does not.
    pub(crate) fn end(&self) -> Option<&'static str> {
        self.uses.end()
    }

    /// All locks that the run is under, sorted by key; never empty. It is one lock, unless the run
    /// is under a [`MultiLock`](crate::multi::MultiLock).
    ///
    /// A fence compares *all* of these tokens in one step with the change: each lock excludes only
    /// the other holders of its own key.
    #[must_use]
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// The only lock of the run, for a resource that can compare one token.
    ///
    /// # Errors
    ///
    /// [`EffectError::NotApplied`] if the run is under several locks. A resource that compared one
    /// of their tokens would let a former holder of the other keys write.
    pub fn single(&self) -> Result<&HeldKey, EffectError> {
        match &*self.locks {
            [only] => Ok(only),
            several => Err(EffectError::not_applied(Error::unsupported(format!(
                "this resource compares one fencing token, and the run is under several locks: locks={}; use a fence that compares all of CommitPermit::locks, or one lock",
                several.len()
            )))),
        }
    }
}

/// The answer of a fence that reached its resource.
pub(crate) trait FenceAnswer {
    /// Or its work was refused, by itself.
    fn is_applied(&self) -> bool;
}

impl<V> FenceAnswer for Applied<V> {
    fn is_applied(&self) -> bool {
        true
    }
}

impl<V, R> FenceAnswer for Result<Applied<V>, R> {
    fn is_applied(&self) -> bool {
        self.is_ok()
    }
}

/// The resource confirms that the commit is applied, with a value that the commit computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied<V = ()> {
    value: V,
    is_fenced: bool,
}

impl Applied {
    /// Applied by a resource that compares no tokens.
    #[must_use]
    pub const fn plain() -> Self {
        Self {
            value: (),
            is_fenced: false,
        }
    }

    /// Applied by a resource that compared the tokens of *all* locks of the permit with the largest
    /// that it had seen of each key, and accepted them, in one step with the change. Where the
    /// store does not promise that its tokens grow this proves nothing, and the outcome of the run
    /// depends on its lease.
    #[must_use]
    pub const fn fenced() -> Self {
        Self {
            value: (),
            is_fenced: true,
        }
    }

    /// The same, with a value.
    #[must_use]
    pub fn with<V>(self, value: V) -> Applied<V> {
        Applied {
            value,
            is_fenced: self.is_fenced,
        }
    }

    pub(crate) const fn is_fenced(self) -> bool {
        self.is_fenced
    }
}

impl<V> Applied<V> {
    pub(crate) fn split(self) -> (Applied, V) {
        let applied = Applied {
            value: (),
            is_fenced: self.is_fenced,
        };
        (applied, self.value)
    }
}

impl From<()> for Applied {
    fn from((): ()) -> Self {
        Self::plain()
    }
}

/// Why an effect outside the process, a step or a commit, did not succeed.
///
/// A bare `?` on an error means [`Unknown`](Self::Unknown): once the call has begun, only proof
/// makes it "not applied" (I7). The exception is an [`io::Error`] of the operating system which
/// says that a path leads nowhere (`NotFound`, `NotADirectory`, `IsADirectory`): a call that fails
/// in this way has changed nothing, and `?` means [`NotApplied`](Self::NotApplied). In an effect of
/// several calls, return [`EffectError::unknown`] for what fails after the first. A client of a
/// Unix socket that connects again by itself makes several calls, and so may a network file system
/// that sends a rename or a removal again.
#[derive(Debug)]
#[non_exhaustive]
pub enum EffectError {
    /// Proven: nothing was applied and nothing will be. A constraint refused it, or it was never
    /// sent.
    NotApplied(BoxError),
    /// No answer, or one that proves nothing: it may be applied, now or later. The hold is not
    /// released; it expires.
    Unknown(BoxError),
    /// A fence refused the token, and the change was sent *once*. After a resend return
    /// [`Unknown`](Self::Unknown): the refused copy may be the second.
    Fenced {
        /// The larger token that the fence has seen, if it reports it.
        seen: Option<FencingToken>,
    },
}

impl EffectError {
    /// Proven: nothing was applied and nothing will be.
    pub fn not_applied(error: impl Into<BoxError>) -> Self {
        Self::NotApplied(error.into())
    }

    /// It may be applied, or may be applied later.
    pub fn unknown(error: impl Into<BoxError>) -> Self {
        Self::Unknown(error.into())
    }
}

impl<E: Into<BoxError>> From<E> for EffectError {
    fn from(error: E) -> Self {
        let error = error.into();
        if error.downcast_ref().is_some_and(changed_nothing) {
            return Self::NotApplied(error);
        }
        Self::Unknown(error)
    }
}

/// Whether a call that failed with this error changed nothing. These prove nothing: a refusal of
/// rights, a full disk or a read-only file system, which may come in the middle of a write; a file
/// that exists, which the same call may have made when it was sent before; a refused connection,
/// which may be the second one; and an error that a library made up.
fn changed_nothing(error: &io::Error) -> bool {
    let is_of_a_path = matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory
    );
    is_of_a_path && error.raw_os_error().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(error: impl Into<BoxError>) -> EffectError {
        error.into().into()
    }

    #[test]
    fn a_path_that_leads_nowhere_proves_that_nothing_was_applied() {
        let nowhere = std::fs::File::create("/dev/null/a").unwrap_err();
        assert!(matches!(judged(nowhere), EffectError::NotApplied(_)));
        let nowhere = std::fs::File::create("/proc/no-such-folder/a").unwrap_err();
        assert!(matches!(judged(nowhere), EffectError::NotApplied(_)));
        let folder = std::fs::File::create("/proc").unwrap_err();
        assert!(matches!(judged(folder), EffectError::NotApplied(_)));
    }

    #[test]
    fn an_error_that_may_come_after_a_change_proves_nothing() {
        for number in [
            rustix::io::Errno::ACCESS,
            rustix::io::Errno::NOSPC,
            rustix::io::Errno::ROFS,
            rustix::io::Errno::EXIST,
            rustix::io::Errno::CONNREFUSED,
            rustix::io::Errno::PIPE,
            rustix::io::Errno::IO,
        ] {
            let error = io::Error::from(number);
            assert!(matches!(judged(error), EffectError::Unknown(_)), "{number}");
        }
        // A library may say so of an object, after it has sent something.
        let made_up = io::Error::new(ErrorKind::NotFound, "404");
        assert!(matches!(judged(made_up), EffectError::Unknown(_)));
        assert!(matches!(judged("a text"), EffectError::Unknown(_)));
    }
}
