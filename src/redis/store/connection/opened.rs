//! [`Opened`]: a connection that was just made, and [`Limit`], how long it waits for an answer.

use ::redis::RedisResult;
use ::redis::aio::MultiplexedConnection;

use super::dialled::Driver;
use crate::store::dial::Health;

/// A connection that was just made.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    pub(super) health: Health,
    pub(super) limit: Limit,
}

/// The time limit of each request over one connection. The client counts it by the timer of tokio,
/// except in a simulation, where the clock of the store counts it. Dropped together with the
/// connection.
#[derive(Default)]
pub(super) struct Limit {
    #[cfg(feature = "testing")]
    pub(super) simulated: Option<simulated::Simulated>,
    pub(super) _driver: Driver,
}

impl Limit {
    #[cfg_attr(
        not(feature = "testing"),
        allow(clippy::unused_self, reason = "the client counts the time")
    )]
    pub(super) async fn of<T>(
        &self,
        request: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        #[cfg(feature = "testing")]
        if let Some(simulated) = &self.simulated {
            return simulated.limit(request).await;
        }
        request.await
    }
}

#[cfg(feature = "testing")]
pub(super) mod simulated {
    use std::io;
    use std::time::Duration;

    use ::redis::RedisResult;

    use crate::clock::Clock;

    /// What the client does by itself for a connection that it makes.
    pub(in super::super) struct Simulated {
        pub(in super::super) clock: Clock,
        pub(in super::super) timeout: Duration,
    }

    impl Simulated {
        pub(super) async fn limit<T>(
            &self,
            request: impl Future<Output = RedisResult<T>>,
        ) -> RedisResult<T> {
            let answer = self.clock.timeout(self.timeout, request).await;
            answer.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
        }
    }
}
