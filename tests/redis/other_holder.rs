//! A holder of another process, for what a server may have forgotten of it, and the next one that
//! is let in.

use std::time::Duration;

use leasehold::clock::{Clock, Stamp};
use leasehold::redis::RedisStore;
use leasehold::store::{Acquired, Claim, Grant, Store};

use crate::claims::{claim_for, grant};
use crate::server::{RedisServer, breathe};

const SHORT: Duration = Duration::from_millis(200);

/// Another holder, as this process sees it: nothing but the end of its lease, by its own clock.
pub(crate) struct OtherHolder {
    clock: Clock,
    ends: Stamp,
    pub(crate) held: Grant,
}

impl OtherHolder {
    pub(crate) async fn holding(store: &RedisStore, name: &str, ttl: Duration) -> Self {
        let clock = Clock::system().unwrap();
        // The quarantine that a server begins with is over before the lease begins: else it would
        // end with that.
        let before = wait_for(store, &claim_for(name, SHORT)).await;
        drop(store.release(&before).await);
        let ends = clock.stamp().plus(ttl);
        let held = grant(store, &claim_for(name, ttl)).await;
        Self { clock, ends, held }
    }

    pub(crate) fn is_live(&self) -> bool {
        !self.ends.since(&self.clock.stamp()).is_zero()
    }

    /// The next one has just been let in.
    pub(crate) fn has_given_way_to(&self, next: &Grant) {
        assert!(
            !self.is_live(),
            "granted to a second one while the first held"
        );
        assert!(next.token > self.held.token);
    }
}

/// Asks until it is granted.
pub(crate) async fn wait_for(store: &impl Store, ours: &Claim) -> Grant {
    loop {
        match store.acquire(ours).await {
            Ok(Acquired::Granted(held)) => return held,
            Ok(_) | Err(_) => breathe().await,
        }
    }
}

/// In whole seconds, of a server that works meanwhile: otherwise nobody believes it.
pub(crate) fn age(server: &RedisServer) -> u64 {
    server.cli(&["EVAL", "for i = 1, 20000000 do end", "0"]);
    uptime(server)
}

/// In whole seconds.
pub(crate) fn uptime(server: &RedisServer) -> u64 {
    let info = server.cli(&["INFO", "server"]);
    let reported = (info.lines()).find_map(|line| line.strip_prefix("uptime_in_seconds:"));
    reported
        .and_then(|seconds| seconds.trim().parse().ok())
        .expect("its age")
}
