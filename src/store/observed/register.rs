//! [`Register`]: what can load a record and replace it if nobody else has.

use std::fmt::Debug;

use super::record::Record;
use crate::clock::Stamp;
use crate::model::error::Error;
use crate::model::key::Key;
use crate::store::Hint;

/// A service that keeps one [`Record`] for each key, and replaces it in one step with a comparison:
/// an object storage, or an API server with versions. It needs no clock.
/// [`MemoryRegister`](super::MemoryRegister) specifies it.
///
/// # Contract
///
/// For one key, over all clients:
///
/// 1. **Linearizable.** A load returns the record of the latest swap that took effect before the
///    load was answered and not before it was sent. A cache or a replica that is behind may not
///    answer.
/// 2. **Compared.** A swap takes effect at one instant, and only if the key's version is the
///    expected one; `None` expects that there is no record. It may take effect late, after its
///    caller has given it up.
/// 3. **Versions do not return.** A version that was replaced is never the key's version again. It
///    may be a hash of the content, and a swap to the same content may leave it as it is: every
///    record that is swapped in has a [`beat`](Record::beat) of its own.
/// 4. **Records stay.** Nobody deletes them: the last token is in them.
/// 5. **Honesty.** A swap that fails with [`InDoubt`](crate::ErrorKind::InDoubt) may have taken
///    effect, or may do so later. With every other kind of error it did not, and never will.
///    [`Moved`](Swapped::Moved) says that the swap that was sent last did not take effect. If the
///    client has sent it twice, the first one may have.
///
/// Every method may be called from many tasks at once, and may be dropped at every await. Callers
/// limit the time of every call by dropping it.
pub trait Register: Debug + Send + Sync + 'static {
    /// A version of a key's record, as the service names it. It is only compared for equality.
    type Version: Clone + PartialEq + Debug + Send + Sync + 'static;

    /// A short name for messages. Never an address with a password.
    fn name(&self) -> &'static str;

    /// Loads a key's record, with its version; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the service does not answer, or refuses the caller; `Corrupt` if there is something that
    /// is no record.
    fn load(
        &self,
        key: &Key,
    ) -> impl Future<Output = Result<Option<(Record, Self::Version)>, Error>> + Send;

    /// Replaces a key's record, if its version is `expected`.
    ///
    /// # Errors
    ///
    /// `InDoubt` if it may have taken effect or may do so later; any other kind if neither.
    fn swap(
        &self,
        key: &Key,
        expected: Option<&Self::Version>,
        record: &Record,
    ) -> impl Future<Output = Result<Swapped<Self::Version>, Error>> + Send;

    /// Loads the records whose key starts with `prefix`, in any order. What is no record, or no
    /// key, is left out.
    ///
    /// # Errors
    ///
    /// If the service does not answer, or refuses the caller.
    fn list(
        &self,
        prefix: &str,
    ) -> impl Future<Output = Result<Vec<Listed<Self::Version>>, Error>> + Send;

    /// Whether the hints of [`watch`](Self::watch) resolve. If not, callers poll.
    fn watches(&self) -> bool {
        false
    }

    /// Subscribes to the end of the current hold, and returns once subscribed. The hint resolves
    /// when the record became [free](super::State::Free) after that; it may be early, late or
    /// never. A renewal should not resolve it: each hint costs its waiter a load. The default
    /// implementation never resolves.
    ///
    /// # Errors
    ///
    /// If the service cannot subscribe: the caller polls.
    fn watch(&self, key: &Key) -> impl Future<Output = Result<Hint, Error>> + Send {
        let _ = key;
        std::future::ready(Ok(Hint::never()))
    }

    /// What a live [`watch`](Self::watch) of the key has shown last, with its version, and a stamp
    /// that was read after it had arrived; `None` without one. It may be behind: a waiter that was
    /// refused by a load is refused by it again, without a request, for half of the TTL of what was
    /// shown. The default implementation has none, and each attempt of a waiter loads.
    fn watched(&self, key: &Key) -> Option<(Record, Self::Version, Stamp)> {
        let _ = key;
        None
    }

    /// Closes the connections. The default implementation has none.
    ///
    /// # Errors
    ///
    /// If something could not be closed cleanly; it is closed anyway.
    fn close(&self) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }
}

/// The answer to a swap.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a swap that was refused changed nothing"]
pub enum Swapped<V> {
    /// The record is the new one, with this version.
    Swapped(V),
    /// The key has another version. Nothing was changed.
    Moved,
}

/// One record of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed<V> {
    /// Its key.
    pub key: Key,
    /// The record.
    pub record: Record,
    /// Its version.
    pub version: V,
}
