//! [`Connecting`]: an attempt to connect, which continues when those who wait for it give up.
//!
//! A caller may have less patience than a connection needs. If its own future connected, the attempt would start again and
//! again, and never succeed. So a task of its own connects, within its own limits, and all callers wait for that one.
//! [`Redial`] limits how often an attempt begins.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::redial::{MAX_WAIT, Redial};
use super::runtime;
use crate::clock::Clock;
use crate::model::error::Error;

/// The result of an attempt; `None`: it has none yet.
type Outcome = Option<Result<(), Error>>;

/// At most one attempt at a time, of one runtime.
#[derive(Debug)]
pub(crate) struct Connecting {
    last: Mutex<Option<watch::Receiver<Outcome>>>,
    redial: Arc<Mutex<Redial>>,
    clock: Clock,
    server: &'static str,
}

/// What a caller that needs a connection finds.
pub(crate) enum Found {
    /// A connection.
    Present,
    /// None. `was_useful`: the last one answered a request, and has not been reported before.
    Nothing { was_useful: bool },
}

impl Connecting {
    /// `server`: what kind of server it is, for messages. `max_ttl`: the longest lease, which an attempt must not be late for.
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
        self.last.lock().as_ref().is_some_and(is_under_way)
    }

    /// Waits for the attempt that runs, or for a new one. All who wait share its result, so that a crowd does not fail one
    /// after the other. `look` is called once more before a new attempt begins.
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
        let Some(mut attempt) = self.join(look, connect)? else {
            return Ok(());
        };
        let outcome = attempt.wait_for(Option::is_some).await;
        let outcome = outcome.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| {
            Err(Error::unavailable(format!(
                "the runtime that connected to {} ended; try again",
                self.server
            )))
        })
    }

    fn join<F>(
        &self,
        look: impl Fn() -> Found,
        connect: impl FnOnce() -> F,
    ) -> Result<Option<watch::Receiver<Outcome>>, Error>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let mut last = self.last.lock();
        if let Some(attempt) = last.as_ref().filter(|attempt| is_under_way(attempt)) {
            return Ok(Some(attempt.clone()));
        }
        let Found::Nothing { was_useful } = look() else {
            return Ok(None);
        };
        let delay = self.next_attempt(was_useful)?;
        let (result, attempt) = watch::channel(None);
        let connect = connect();
        let (clock, redial) = (self.clock.clone(), Arc::clone(&self.redial));
        runtime::handle(self.server)?.spawn(async move {
            if !delay.is_zero() {
                clock.sleep(delay).await;
            }
            redial.lock().begin(clock.stamp());
            let outcome = connect.await;
            redial.lock().last_error = outcome.clone().err();
            // An error says that nobody waits any more.
            let _ = result.send(Some(outcome));
        });
        *last = Some(attempt.clone());
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
                "connections to {} end before they answer: the next attempt is in {delay:?}; check the server and what is between",
                self.server
            ))
        }))
    }
}

fn is_under_way(attempt: &watch::Receiver<Outcome>) -> bool {
    attempt.borrow().is_none() && attempt.has_changed().is_ok()
}
