//! [`AccessLog`]: one line for each acquire, release and loss.

use std::fmt::{self, Write as _};
use std::io;
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;
use tracing::Level;

use super::event::{AcquireOutcome, Event};
use super::observer::Observer;
use crate::clock::wall_millis;
use crate::store::Released;

/// The target of every line of the [`AccessLog`], by which a subscriber sends it to a place of its
/// own.
pub const ACCESS_LOG_TARGET: &str = "leasehold::access";

/// An observer that writes who used which lock, through `tracing`: target `leasehold::access`,
/// level info; warn for a lease that was lost, and for a release that the store did not confirm. Or
/// [to a writer of its own](Self::to).
///
/// | `event` | fields |
/// |---|---|
/// | `acquire` | `key`, `holder` (the label with its purpose, in quotes), `outcome` (`held`, `busy`, `failed`, `abandoned`), `wait_us`; `token` if held, `error` if failed |
/// | `release` | `key`, `holder`, `token`, `reason` (`released`, `dropped`, `closed`; of a lease that was lost: `lapsed`, `gone`, `max_hold`, `clock_fault`, `forked`), `outcome` (`released`, `already gone`, `unknown`, `withheld`), `hold_us`, `release_us`; `error` if unknown, `why` if withheld |
/// | `lost` | `key`, `holder`, `token`, `reason` |
///
/// Times are in microseconds. Locks are used often: send the log to a file of its own, as
/// `examples/access_log.rs` does.
#[derive(Default)]
pub struct AccessLog {
    to: Option<Mutex<Box<dyn io::Write + Send>>>,
}

impl AccessLog {
    /// The access log, through `tracing`.
    #[must_use]
    pub const fn new() -> Self {
        Self { to: None }
    }

    /// The access log in a writer of its own, whatever the process does with its other logs: on
    /// each line the time (UTC), the level and the fields.
    ///
    /// The writer gets a whole line at a time, on the thread where the event happens, which may be
    /// the manager's own. So it must not block: pass one that hands the lines to another thread, as
    /// `tracing_appender::non_blocking` does, and `access_log = "locks.log"` of a
    /// [configuration](crate::config::Config). A line that it refuses is dropped.
    ///
    /// ```
    /// use std::io;
    /// use std::sync::mpsc::{SyncSender, sync_channel};
    ///
    /// use leasehold::handler::AccessLog;
    /// use leasehold::{LockManager, store::MemoryStore};
    ///
    /// struct Lines(SyncSender<Vec<u8>>);
    ///
    /// impl io::Write for Lines {
    ///     fn write(&mut self, line: &[u8]) -> io::Result<usize> {
    ///         // A line for which there is no room is dropped.
    ///         drop(self.0.try_send(line.to_vec()));
    ///         Ok(line.len())
    ///     }
    ///
    ///     fn flush(&mut self) -> io::Result<()> {
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let (lines, to_write) = sync_channel(10_000);
    /// let locks = LockManager::builder(MemoryStore::new()?)
    ///     .observer(AccessLog::to(Lines(lines)))
    ///     .build()?;
    /// # drop((locks, to_write));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn to(writer: impl io::Write + Send + 'static) -> Self {
        Self {
            to: Some(Mutex::new(Box::new(writer))),
        }
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog").finish_non_exhaustive()
    }
}

/// A field and its value; text is in quotes, unless it is marked by `%`.
macro_rules! field {
    ($name:ident) => {
        format_args!(" {}={:?}", stringify!($name), $name)
    };
    (% $name:ident) => {
        format_args!(" {}={}", stringify!($name), $name)
    };
}

/// One line about an event. Its other fields are the variables of these names.
macro_rules! line {
    ($log:expr, $level:ident, $event:literal, $($name:ident $(($mark:tt))?),*) => {
        match &$log.to {
            None => tracing::event!(target: ACCESS_LOG_TARGET, Level::$level, event = $event, $($($mark)? $name),*),
            Some(writer) => {
                let time = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(wall_millis()));
                let mut line = format!("{time} {:>5} event={:?}", Level::$level, $event);
                // Text takes every line; a writer that does not loses this one.
                $(let _ = line.write_fmt(field!($($mark)? $name));)*
                line.push('\n');
                let _ = writer.lock().write_all(line.as_bytes());
            }
        }
    };
}

impl Observer for AccessLog {
    fn event(&self, event: &Event<'_>) {
        match *event {
            Event::Acquire {
                key,
                label,
                outcome,
                wait,
            } => {
                let (holder, wait_us) = (label.to_string(), micros(wait));
                match outcome {
                    AcquireOutcome::Held { lease } => {
                        let (outcome, token) = ("held", lease.token());
                        line!(self, INFO, "acquire", key(%), holder, outcome, wait_us, token(%));
                    }
                    AcquireOutcome::Busy => {
                        let outcome = "busy";
                        line!(self, INFO, "acquire", key(%), holder, outcome, wait_us);
                    }
                    AcquireOutcome::Failed(error) => {
                        let (outcome, error) = ("failed", error.to_string());
                        line!(self, INFO, "acquire", key(%), holder, outcome, wait_us, error);
                    }
                    AcquireOutcome::Abandoned => {
                        let outcome = "abandoned";
                        line!(self, INFO, "acquire", key(%), holder, outcome, wait_us);
                    }
                }
            }
            Event::Release {
                key,
                label,
                token,
                reason,
                released,
                held_for,
                took,
                ..
            } => {
                let (holder, outcome) = (label.to_string(), word(released));
                let reason = reason.word();
                let (hold_us, release_us) = (micros(held_for), micros(took));
                if let Released::Unknown(error) = released {
                    let error = error.to_string();
                    line!(self, WARN, "release", key(%), holder, token(%), reason(%), outcome, hold_us, release_us, error);
                } else if let Released::Withheld { why } = released {
                    line!(self, INFO, "release", key(%), holder, token(%), reason(%), outcome, hold_us, release_us, why(%));
                } else {
                    line!(self, INFO, "release", key(%), holder, token(%), reason(%), outcome, hold_us, release_us);
                }
            }
            Event::Lost {
                key,
                label,
                token,
                reason,
            } => {
                let (holder, reason) = (label.to_string(), reason.to_string());
                line!(self, WARN, "lost", key(%), holder, token(%), reason);
            }
            _ => {}
        }
    }
}

fn word(released: &Released) -> &'static str {
    match released {
        Released::Released => "released",
        Released::AlreadyGone => "already gone",
        Released::Unknown(_) => "unknown",
        Released::Withheld { .. } => "withheld",
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
