//! Waits for other programs: no clock of ours moves them.

use std::cell::OnceCell;
use std::time::Duration;

use leasehold::clock::{Clock, Stamp};

const PAUSE: Duration = Duration::from_millis(5);
/// How long one test may wait in all: longer than any needs on a busy machine, and shorter than
/// tests/run.sh waits for a program.
const PATIENCE: Duration = Duration::from_secs(300);

#[allow(clippy::disallowed_methods, reason = "see above")]
pub(crate) fn pause() {
    end_what_waits_in_vain();
    std::thread::sleep(PAUSE);
}

/// As [`pause`], for a task.
#[allow(clippy::disallowed_methods, reason = "see above")]
pub(crate) async fn breathe() {
    end_what_waits_in_vain();
    tokio::time::sleep(PAUSE).await;
}

/// A test has a thread of its own, so the time counts from the first pause of that thread.
fn end_what_waits_in_vain() {
    thread_local! {
        static BEGAN: OnceCell<(Clock, Stamp)> = const { OnceCell::new() };
    }
    BEGAN.with(|began| {
        let (clock, began) = began.get_or_init(|| {
            let clock = Clock::system().expect("clocks");
            let now = clock.stamp();
            (clock, now)
        });
        let waited = clock.stamp().since(began);
        assert!(waited < PATIENCE, "it waits in vain");
    });
}
