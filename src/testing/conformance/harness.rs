//! [`Harness`]: what the suite needs to know about a store.

use std::fmt;
use std::time::Duration;

use crate::clock::Clock;
use crate::model::error::Error;
use crate::store::Store;

/// How the suite uses a store: how a client is made, how long a TTL is, how time passes.
pub trait Harness: Sync {
    /// The store.
    type Store: Store;

    /// One more client of the same store, over a connection of its own where there are connections:
    /// each case makes two and [closes](Store::close) them at its end.
    ///
    /// # Errors
    ///
    /// If none can be made: the case fails with this error.
    fn client(&self) -> impl Future<Output = Result<Self::Store, Error>> + Send;

    /// The TTL that the cases ask for: short, and long enough for a dozen requests. Where the
    /// capability says that the store has one TTL for all, this is it.
    fn ttl(&self) -> Duration;

    /// The clock of the clients. [`pass`](Self::pass) lets time pass by it.
    fn clock(&self) -> Clock;

    /// Lets `span` pass, for the clients and for the store.
    ///
    /// The default really waits, by [`clock`](Self::clock).
    fn pass(&self, span: Duration) -> impl Future<Output = ()> + Send {
        let clock = self.clock();
        async move { clock.sleep(span).await }
    }

    /// Ends a client as if its machine had died: what it holds stays until the store's time ends
    /// it.
    ///
    /// The default drops it. A store whose connection ends its session must cut the connection
    /// here.
    fn crash(&self, client: Self::Store) -> impl Future<Output = ()> + Send {
        drop(client);
        std::future::ready(())
    }
}

/// A harness for a store that counts by a [`ManualClock`](crate::clock::ManualClock): no case
/// really waits.
pub struct OnManualClock<F> {
    clock: crate::clock::ManualClock,
    client: F,
}

impl<F> OnManualClock<F> {
    /// `client` makes one more client of the store, which counts by `clock`.
    pub fn new(clock: crate::clock::ManualClock, client: F) -> Self {
        Self { clock, client }
    }
}

impl<F> fmt::Debug for OnManualClock<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnManualClock")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// How often other tasks get a turn when the manual clock was moved.
const TURNS: usize = 64;

impl<S: Store, F: Fn() -> S + Sync> Harness for OnManualClock<F> {
    type Store = S;

    async fn client(&self) -> Result<S, Error> {
        Ok((self.client)())
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn clock(&self) -> Clock {
        self.clock.clone().into()
    }

    /// Moves the clock, and lets the tasks that a store may have started finish.
    async fn pass(&self, span: Duration) {
        self.clock.advance(span);
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }
}
