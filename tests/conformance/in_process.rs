//! The stores that need no server, on the manual clock.

use leasehold::clock::ManualClock;
use leasehold::store::MemoryStore;
use leasehold::store::observed::{MemoryRegister, ObservedStore};
use leasehold::store::quorum::{Member, Quorum};
use leasehold::testing::conformance::{OnManualClock, Report};
use leasehold::testing::{Faulty, conformance};

pub(crate) async fn suite<S: Member>(
    wrap: impl Fn(MemoryStore, ManualClock) -> S + Sync,
) -> Report {
    let clock = ManualClock::new();
    let memory = MemoryStore::with_clock(clock.clone());
    let server = clock.clone();
    conformance::run_member(&OnManualClock::new(clock, || {
        wrap(memory.clone(), server.clone())
    }))
    .await
}

pub(crate) async fn memory() -> Report {
    suite(|memory, _| memory).await
}

/// With its faults off.
pub(crate) async fn faulty() -> Report {
    suite(|memory, clock| Faulty::new(memory, clock, 1)).await
}

/// Each client has a quorum of its own over the same three members.
pub(crate) async fn quorum() -> Report {
    let clock = ManualClock::new();
    let members = [(); 3].map(|()| MemoryStore::with_clock(clock.clone()));
    let server = clock.clone();
    let client = || Quorum::with_clock(members.clone(), server.clone()).unwrap();
    conformance::run(&OnManualClock::new(clock, client)).await
}

/// Each client observes the same register.
pub(crate) async fn observed() -> Report {
    let (clock, register) = (ManualClock::new(), MemoryRegister::new());
    let observer = clock.clone();
    let client = || ObservedStore::with_clock(register.clone(), observer.clone());
    conformance::run(&OnManualClock::new(clock, client)).await
}
