//! From the options of a store to a manager, though its server may not be up yet: a machine starts
//! its services in any order.

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::handler::AccessLog;
use leasehold::{LockManager, LockManagerBuilder, Settings};
use serde_json::json;

use crate::exit::{Failure, with_causes};
use crate::output::Output;

/// The first and the longest pause before another try to connect.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long to try to connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// As long as the settings wait for a busy lock. What it took is gone from that wait.
    AsTheWait,
    Endless,
}

/// Connects, and tries again while the store cannot be reached. The manager writes its access log,
/// which is printed if it is asked for.
pub(super) async fn connect(
    url: &str,
    mut settings: Settings,
    patience: Patience,
    output: Output,
) -> Result<LockManagerBuilder, Failure> {
    let clock = Clock::system()?;
    let began = clock.stamp();
    let wait = settings.wait;
    let mut pause = PAUSE;
    loop {
        let error = match LockManager::builder_for_url(url, settings.clone()).await {
            Ok(builder) => return Ok(builder.observer(AccessLog::new())),
            Err(error) => error,
        };
        let left = wait.saturating_sub(clock.stamp().since(&began));
        let is_over = patience == Patience::AsTheWait && left.is_zero();
        if is_over || !error.is_retryable() {
            return Err(error.into());
        }
        if pause == PAUSE {
            let why = with_causes(&error);
            output.event(
                format!("{why}; trying again"),
                &json!({ "event": "connect_failed", "why": why }),
            );
        }
        if patience == Patience::AsTheWait {
            pause = pause.min(left);
            settings.wait = left.saturating_sub(pause);
        }
        clock.sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}
