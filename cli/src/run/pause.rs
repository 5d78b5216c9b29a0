//! How long a lock that is busy is not asked for again.

use std::time::Duration;

use leasehold::Error;
use leasehold::clock::Clock;

/// An operator may end a rest early.
const LONGEST: Duration = Duration::from_secs(1);

/// Waits as long as the refusal of a busy lock says. Where the queue of a key is full, it comes at
/// once.
pub(super) async fn pause_after(refusal: &Error) -> Result<(), Error> {
    let pause = refusal.retry_after().unwrap_or_default();
    Clock::system()?.sleep(pause.min(LONGEST)).await;
    Ok(())
}
