//! The store over the register that specifies it.

use super::{MemoryRegister, ObservedStore};
use crate::clock::ManualClock;
use crate::testing::conformance::{self, OnManualClock};

#[tokio::test]
async fn an_observed_store_keeps_the_contract() {
    let (clock, register) = (ManualClock::new(), MemoryRegister::new());
    let observer = clock.clone();
    let client = || ObservedStore::with_clock(register.clone(), observer.clone());
    let report = conformance::run(&OnManualClock::new(clock, client)).await;
    println!("{report}");
    report.assert_passed();
}
