//! [`AccessLog`]: one line for each acquire, release and loss.

use std::time::Duration;

use tracing::Level;

use super::event::{AcquireOutcome, Event};
use super::observer::Observer;
use crate::store::Released;

/// The target of every line of the [`AccessLog`], by which a subscriber sends it to a place of its own.
pub const ACCESS_LOG_TARGET: &str = "leasehold::access";

/// An observer that writes who used which lock, through `tracing`: target `leasehold::access`, level info; warn for a lease
/// that was lost, and for a release that the store did not confirm.
///
/// | `event` | fields |
/// |---|---|
/// | `acquire` | `key`, `holder` (the label, in quotes), `outcome` (`held`, `busy`, `failed`, `abandoned`), `wait_us`; `token` if held, `error` if failed |
/// | `release` | `key`, `holder`, `token`, `reason` (`released`, `dropped`, `lost`, `closed`), `outcome` (`released`, `already gone`, `unknown`, `withheld`), `hold_us`, `release_us`; `error` if unknown, `why` if withheld |
/// | `lost` | `key`, `holder`, `token`, `reason` |
///
/// Times are in microseconds. Locks are used often: send the log to a file of its own, as `examples/access_log.rs` does.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct AccessLog {}

impl AccessLog {
    /// The access log.
    #[must_use]
    pub const fn new() -> Self {
        Self {}
    }
}

macro_rules! line {
    ($level:expr, $($fields:tt)*) => {
        tracing::event!(target: ACCESS_LOG_TARGET, $level, $($fields)*)
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
                let wait_us = micros(wait);
                match outcome {
                    AcquireOutcome::Held { lease } => {
                        let token = lease.token();
                        line!(Level::INFO, event = "acquire", %key, holder = label.as_str(), outcome = "held", wait_us, %token);
                    }
                    AcquireOutcome::Busy => {
                        line!(Level::INFO, event = "acquire", %key, holder = label.as_str(), outcome = "busy", wait_us);
                    }
                    AcquireOutcome::Failed(error) => {
                        line!(Level::INFO, event = "acquire", %key, holder = label.as_str(), outcome = "failed", wait_us, error = error.to_string());
                    }
                    AcquireOutcome::Abandoned => {
                        line!(Level::INFO, event = "acquire", %key, holder = label.as_str(), outcome = "abandoned", wait_us);
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
                let (outcome, hold_us, release_us) =
                    (word(released), micros(held_for), micros(took));
                if let Released::Unknown(error) = released {
                    line!(Level::WARN, event = "release", %key, holder = label.as_str(), %token, %reason, outcome, hold_us, release_us, error = error.to_string());
                } else if let Released::Withheld { why } = released {
                    line!(Level::INFO, event = "release", %key, holder = label.as_str(), %token, %reason, outcome, hold_us, release_us, %why);
                } else {
                    line!(Level::INFO, event = "release", %key, holder = label.as_str(), %token, %reason, outcome, hold_us, release_us);
                }
            }
            Event::Lost {
                key,
                label,
                token,
                reason,
            } => {
                line!(Level::WARN, event = "lost", %key, holder = label.as_str(), %token, reason = reason.to_string());
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
