//! [`Connecting`]: an attempt to connect, which continues when those who wait for it give up.
//!
//! A caller may have less patience than a connection needs. If its own future connected, the
//! attempt would start again and again, and never succeed. So a task of its own connects, within
//! its own limits, and all callers wait for that one. [`Redial`] limits how often an attempt
//! begins.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::redial::{MAX_WAIT, Redial};
use super::runtime;
use crate::clock::Clock;
use crate::model::error::Error;

/// An attempt to connect. Those who wait for it are woken in the order in which they came.
#[derive(Debug, Default)]
struct Attempt {
    outcome: Mutex<Option<Result<(), Error>>>,
    ended: Notify,
}

impl Attempt {
    fn is_under_way(&self) -> bool {
        self.outcome.lock().is_none()
    }

    /// The first outcome counts.
    fn end(&self, outcome: Result<(), Error>) {
        self.outcome.lock().get_or_insert(outcome);
        self.ended.notify_waiters();
    }

    async fn outcome(&self) -> Result<(), Error> {
        loop {
            // From here on no end is missed.
            let ended = self.ended.notified();
            if let Some(outcome) = self.outcome.lock().clone() {
                return outcome;
            }
            ended.await;
        }
    }
}

/// Ends an attempt whose task is dropped, as the end of its runtime does.
struct EndsWithTask {
    attempt: Arc<Attempt>,
    server: &'static str,
}

impl Drop for EndsWithTask {
    fn drop(&mut self) {
        let server = self.server;
        self.attempt.end(Err(Error::unavailable(format!(
            "the runtime that connected to {server} ended; try again"
        ))));
    }
}

/// At most one attempt at a time, of one runtime.
#[derive(Debug)]
pub(crate) struct Connecting {
    last: Mutex<Option<Arc<Attempt>>>,
    redial: Arc<Mutex<Redial>>,
    clock: Clock,
    server: &'static str,
}

/// What a caller that needs a connection finds.
pub(crate) enum Found {
    /// A connection.
    Present,
    /// None. `was_useful`: the last one served a caller, and has not been reported before.
    Nothing { was_useful: bool },
}

impl Connecting {
    /// `server`: what kind of server it is, for messages. `max_ttl`: the longest lease, which an
    /// attempt must not be late for.
    pub(crate) fn new(server: &'static str, clock: Clock, max_ttl: Duration) -> Self {
        Self {
            last: Mutex::default(),
            redial: Arc::new(Mutex::new(Redial::new(max_ttl))),
            clock,
            server,
        }
    }

    /// Whether an attempt runs. A runtime that ended has ended its attempt too.
    pub(crate) fn is_under_way(&self) -> bool {
        let last = self.last.lock();
        last.as_ref().is_some_and(|last| last.is_under_way())
    }

    /// Why the last connection was of no use: the error that callers get until the next attempt may
    /// begin.
    #[cfg(feature = "redis")]
    pub(crate) fn blame(&self, error: Error) {
        self.redial.lock().last_error = Some(error);
    }

    /// Waits for the attempt that runs, or for a new one. All who wait share its result, so that a
    /// crowd does not fail one after the other. `look` is called once more before a new attempt
    /// begins.
    ///
    /// # Errors
    ///
    /// That of the attempt; that of the last attempt if the next one may not begin soon.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the attempt continues without the caller.
    pub(crate) async fn wait<F>(
        &self,
        look: impl Fn() -> Found,
        connect: impl FnOnce() -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        match self.join(look, connect)? {
            Some(attempt) => attempt.outcome().await,
            None => Ok(()),
        }
    }

    fn join<F>(
        &self,
        look: impl Fn() -> Found,
        connect: impl FnOnce() -> F,
    ) -> Result<Option<Arc<Attempt>>, Error>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let mut last = self.last.lock();
        if let Some(attempt) = last.as_ref().filter(|attempt| attempt.is_under_way()) {
            return Ok(Some(Arc::clone(attempt)));
        }
        let Found::Nothing { was_useful } = look() else {
            return Ok(None);
        };
        let delay = self.next_attempt(was_useful)?;
        let runtime = runtime::handle(self.server)?;
        let attempt = Arc::new(Attempt::default());
        let task = EndsWithTask {
            attempt: Arc::clone(&attempt),
            server: self.server,
        };
        let connect = connect();
        let (clock, redial) = (self.clock.clone(), Arc::clone(&self.redial));
        runtime.spawn(async move {
            let task = task;
            if !delay.is_zero() {
                clock.sleep(delay).await;
            }
            redial.lock().begin(clock.stamp());
            let outcome = connect.await;
            redial.lock().last_error = outcome.clone().err();
            task.attempt.end(outcome);
        });
        *last = Some(Arc::clone(&attempt));
        Ok(Some(attempt))
    }

    /// After what pause the next attempt may begin.
    fn next_attempt(&self, was_useful: bool) -> Result<Duration, Error> {
        let mut redial = self.redial.lock();
        if was_useful {
            redial.reset();
        }
        let delay = redial.delay(&self.clock.stamp());
        if delay <= MAX_WAIT {
            return Ok(delay);
        }
        Err(redial.last_error.clone().unwrap_or_else(|| {
            Error::unavailable(format!(
                "connections to {} end before they serve: the next attempt is in {delay:?}; check the server and what is between",
                self.server
            ))
        }))
    }
}
