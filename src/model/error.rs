//! [`Error`]: what changed, and what to do.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::model::key::Key;

/// A boxed error of any kind, from the work, a store or a resource.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// What changed, and what the caller can do about it.
///
/// Two errors have different kinds only if a caller would act differently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else holds the lock, or a limit (waiters, flow control) was reached, and the wait
    /// ended. Nothing changed. Try later.
    Contended,
    /// The store grants nothing yet, to anybody: it restarted or lost its data, and may have
    /// forgotten locks whose leases are still live. Nothing changed. Try again after
    /// [`retry_after`](Error::retry_after).
    NotReady,
    /// The lease is gone. Stop, and ask for the lock again.
    Lost(Ended),
    /// A request was sent and no answer came: it may or may not have happened. The manager
    /// withdraws it in the background where that is sound. Check the state before you repeat the
    /// request.
    InDoubt,
    /// The store cannot be reached or cannot decide now. Nothing is held. Try later.
    Unavailable,
    /// The store refuses this caller (credentials, access rights). Nothing changed. Fix the
    /// configuration.
    Denied,
    /// The store cannot do this. Nothing changed. Choose another store or another kind of lock.
    Unsupported,
    /// The store contains something that leasehold did not write. It was not changed. Inspect it
    /// before you continue.
    Corrupt,
    /// The call or the settings break a rule that the message names. Nothing changed. Fix the call.
    Invalid,
    /// The manager was shut down. Nothing changed.
    Closed,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contended => f.write_str("contended"),
            Self::NotReady => f.write_str("not ready"),
            Self::Lost(reason) => write!(f, "lost ({reason})"),
            Self::InDoubt => f.write_str("in doubt"),
            Self::Unavailable => f.write_str("unavailable"),
            Self::Denied => f.write_str("denied"),
            Self::Unsupported => f.write_str("unsupported"),
            Self::Corrupt => f.write_str("corrupt"),
            Self::Invalid => f.write_str("invalid"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// Why a lease, and the hold under it, ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// Its deadline passed without a renewal.
    Lapsed,
    /// The store reports that the lock is not ours any more.
    Gone,
    /// It was released explicitly, or its one-shot run is over.
    Released,
    /// Its guard was dropped.
    Dropped,
    /// It reached its longest time, [`max_hold`](crate::Settings::max_hold).
    MaxHold,
    /// Its manager was shut down.
    Closed,
    /// A clock went backwards, or the clocks disagreed: no deadline can be trusted (I9).
    ClockFault,
    /// This process is a fork of the one that holds the lock (I9).
    Forked,
}

impl Ended {
    /// Whether the lease was lost. Otherwise its own process gave it back while it was live.
    pub(crate) const fn is_loss(self) -> bool {
        !matches!(self, Self::Released | Self::Dropped | Self::Closed)
    }

    /// In one word, for logs.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Lapsed => "lapsed",
            Self::Gone => "gone",
            Self::Released => "released",
            Self::Dropped => "dropped",
            Self::MaxHold => "max_hold",
            Self::Closed => "closed",
            Self::ClockFault => "clock_fault",
            Self::Forked => "forked",
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lapsed => "the deadline passed without a renewal",
            Self::Gone => "the store says that the lock is not ours any more",
            Self::Released => "it was released",
            Self::Dropped => "its guard was dropped",
            Self::MaxHold => "it was held for its longest time, max_hold",
            Self::Closed => "the manager was shut down",
            Self::ClockFault => "a clock went backwards or the clocks disagree",
            Self::Forked => "this process is a fork of the holder",
        })
    }
}

/// An error of leasehold: a [kind](ErrorKind) to decide by, and a message that says what happened
/// and what to do.
///
/// Cloning is cheap. Messages never hold a secret.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    key: Option<Key>,
    retry_after: Option<Duration>,
    may_pass: bool,
    detail: Arc<Detail>,
}

struct Detail {
    message: String,
    source: Option<BoxError>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $kind:ident;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(message: impl Into<String>) -> Self {
            Self::new(ErrorKind::$kind, message)
        }
    )*};
}

impl Error {
    /// An error of a kind, for authors of stores and handlers. The message: lowercase, one line,
    /// what happened, then `key=value`, then what to do; never a secret.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            key: None,
            retry_after: None,
            may_pass: false,
            detail: Arc::new(Detail {
                message: message.into(),
                source: None,
            }),
        }
    }

    /// The same error, caused by `source`.
    #[must_use]
    pub fn because(self, source: impl Into<BoxError>) -> Self {
        let message = self.detail.message.clone();
        Self {
            kind: self.kind,
            key: self.key,
            retry_after: self.retry_after,
            may_pass: self.may_pass,
            detail: Arc::new(Detail {
                message,
                source: Some(source.into()),
            }),
        }
    }

    constructors! {
        /// A [`Contended`](ErrorKind::Contended) error.
        contended => Contended;
        /// An [`InDoubt`](ErrorKind::InDoubt) error.
        in_doubt => InDoubt;
        /// An [`Unavailable`](ErrorKind::Unavailable) error.
        unavailable => Unavailable;
        /// A [`Denied`](ErrorKind::Denied) error.
        denied => Denied;
        /// An [`Unsupported`](ErrorKind::Unsupported) error.
        unsupported => Unsupported;
        /// A [`Corrupt`](ErrorKind::Corrupt) error.
        corrupt => Corrupt;
        /// An [`Invalid`](ErrorKind::Invalid) error.
        invalid => Invalid;
        /// A [`Closed`](ErrorKind::Closed) error.
        closed => Closed;
    }

    /// A [`NotReady`](ErrorKind::NotReady) error of a store that grants nothing for `retry_after`.
    #[must_use]
    pub fn not_ready(message: impl Into<String>, retry_after: Duration) -> Self {
        Self {
            retry_after: Some(retry_after),
            ..Self::new(ErrorKind::NotReady, message)
        }
    }

    /// What kind of error it is: decide by this.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The key of the lock that the call was for, if it was for one.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// For how long nothing is granted, counted from when this error was made: known for
    /// [`NotReady`](ErrorKind::NotReady), and for [`Contended`](ErrorKind::Contended) if the key
    /// [rests](crate::Lock::hold_at_least). An earlier call fails too, or waits for that long. Also
    /// known if the store's queue for the key is full, and then it is when to try again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether asking for the lock again may succeed, without any fix: `Contended`, `NotReady`,
    /// `Unavailable`, `Lost`, and `InDoubt`, because the manager withdraws an unanswered acquire.
    ///
    /// It does not say whether to repeat the *work*: for a run, see
    /// [`RunError::was_applied`](crate::RunError::was_applied).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Contended
                | ErrorKind::NotReady
                | ErrorKind::Unavailable
                | ErrorKind::InDoubt
                | ErrorKind::Lost(_)
        )
    }

    /// The same error, with the time after which a retry may succeed.
    pub(crate) fn retry_in(self, retry_after: Duration) -> Self {
        Self {
            retry_after: Some(retry_after),
            ..self
        }
    }

    /// The same refusal, of credentials that may change.
    #[cfg(any(
        feature = "kubernetes",
        feature = "object-store",
        feature = "postgres",
        feature = "redis",
        feature = "zookeeper"
    ))]
    pub(crate) fn that_may_pass(self) -> Self {
        Self {
            may_pass: true,
            ..self
        }
    }

    /// Whether it is a refusal that nobody takes back: a missing right, or a wrong password that
    /// does not change.
    pub(crate) fn is_denied_for_good(&self) -> bool {
        self.kind == ErrorKind::Denied && !self.may_pass()
    }

    fn may_pass(&self) -> bool {
        let source = self.detail.source.as_ref();
        let source = source.and_then(|source| source.downcast_ref::<Self>());
        self.may_pass || source.is_some_and(Self::may_pass)
    }

    /// The same error with this key, unless it already has one.
    pub(crate) fn of_key(mut self, key: &Key) -> Self {
        self.key.get_or_insert_with(|| key.clone());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.detail.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind)
            .field("message", &self.detail.message)
            .field("source", &self.detail.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.detail.source.as_deref().map(|e| e as _)
    }
}
