//! [`HoldOfRun`]: what a command runs under. A lock, a share or a slot of one, several locks, or a
//! term of leadership.

use std::time::Duration;

use leasehold::election::Leadership;
use leasehold::multi::MultiGuard;
use leasehold::read_write::{ReadGuard, WriteGuard};
use leasehold::semaphore::SemaphorePermit;
use leasehold::{Ended, Error, Key, Lease, LockGuard};
use serde_json::{Value, json};

use crate::exit::with_causes;
use crate::output::Output;

#[derive(Debug)]
pub(super) enum HoldOfRun<'a> {
    Alone(LockGuard),
    /// The lock of a one-time job, which ends it.
    Job(&'a LockGuard),
    Shared(ReadGuard),
    Written(WriteGuard),
    Slot(SemaphorePermit),
    All(MultiGuard),
    Term(Leadership),
}

impl HoldOfRun<'_> {
    /// The lease; `None` for several locks, which have one each.
    fn lease(&self) -> Option<&Lease> {
        Some(match self {
            Self::Alone(guard) => guard.lease(),
            Self::Job(guard) => guard.lease(),
            Self::Shared(guard) => guard.lease(),
            Self::Written(guard) => guard.lease(),
            Self::Slot(permit) => permit.lease(),
            Self::Term(leadership) => leadership.lease(),
            Self::All(_) => return None,
        })
    }

    /// The keys in their order, separated by commas, which no key contains.
    pub(super) fn keys(&self) -> String {
        match (self, self.lease()) {
            (_, Some(lease)) => lease.key().to_string(),
            (Self::All(guard), None) => join(guard.keys()),
            (_, None) => String::new(),
        }
    }

    /// The fencing tokens, in the order of the keys.
    pub(super) fn tokens(&self) -> String {
        match (self, self.lease()) {
            (_, Some(lease)) => lease.token().to_string(),
            (Self::All(guard), None) => join(
                guard
                    .keys()
                    .filter_map(|key| guard.token(key.as_str()).ok()),
            ),
            (_, None) => String::new(),
        }
    }

    /// Keys and tokens for scripts: a string and a number, or a list of each for several locks.
    pub(super) fn to_json(&self) -> (Value, Value) {
        match self {
            Self::All(guard) => {
                let token = |key: &Key| Some(guard.token(key.as_str()).ok()?.number());
                let tokens: Vec<_> = guard.keys().filter_map(token).collect();
                (
                    json!(guard.keys().map(Key::as_str).collect::<Vec<_>>()),
                    json!(tokens),
                )
            }
            _ => (
                json!(self.keys()),
                json!(self.lease().map(|lease| lease.token().number())),
            ),
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        match (self, self.lease()) {
            (_, Some(lease)) => lease.remaining(),
            (Self::All(guard), None) => guard.remaining(),
            (_, None) => Duration::ZERO,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Completes when the lease, or one of several, has ended.
    pub(super) async fn lost(&self) -> Ended {
        match (self, self.lease()) {
            (_, Some(lease)) => lease.lost().await,
            (Self::All(guard), None) => guard.lost().await,
            (_, None) => Ended::Lapsed,
        }
    }

    /// Completes when a leader is asked to leave.
    pub(super) async fn asked_to_leave(&self) {
        match self {
            Self::Term(leadership) => leadership.asked_to_leave().await,
            _ => std::future::pending().await,
        }
    }

    /// Releases what is held, except a job's. Returns the error of a release that was not
    /// confirmed.
    pub(super) async fn release(self) -> Option<Error> {
        let released = match self {
            Self::Alone(guard) => guard.release().await.map(drop),
            Self::Job(_) => Ok(()),
            Self::Shared(guard) => guard.release().await.map(drop),
            Self::Written(guard) => guard.release().await.map(drop),
            Self::Slot(permit) => permit.release().await.map(drop),
            Self::Term(leadership) => leadership.resign().await.map(drop),
            Self::All(guard) => guard.release().await.map(drop),
        };
        released.err()
    }
}

/// Releases what is held, and reports a release that had no answer.
pub(super) async fn release(held: HoldOfRun<'_>, output: Output) {
    if let Some(error) = held.release().await {
        let why = with_causes(&error);
        output.event(
            format!("the lock could not be released, and ends with its ttl: {why}"),
            &json!({ "event": "release_unknown", "why": why }),
        );
    }
}

fn join(parts: impl Iterator<Item = impl ToString>) -> String {
    let parts: Vec<String> = parts.map(|part| part.to_string()).collect();
    parts.join(",")
}
