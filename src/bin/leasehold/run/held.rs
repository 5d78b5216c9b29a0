//! [`Held`]: what a command runs under. A lock, a share of one, or a term of office.

use leasehold::store::Released;
use leasehold::{Leadership, Lease, LockGuard, ReadGuard};

#[derive(Debug)]
pub(super) enum Held {
    Alone(LockGuard),
    Shared(ReadGuard),
    Term(Leadership),
}

impl Held {
    pub(super) fn lease(&self) -> &Lease {
        match self {
            Self::Alone(guard) => guard.lease(),
            Self::Shared(guard) => guard.lease(),
            Self::Term(leadership) => leadership.lease(),
        }
    }

    pub(super) async fn release(self) -> Released {
        match self {
            Self::Alone(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
            Self::Term(leadership) => leadership.resign().await,
        }
    }
}
