//! [`Connecting`]: an attempt to connect, which continues when those who wait for it give up.
//!
//! A caller may have less patience than a connection needs. If its own future connected, the attempt would start again and
//! again, and never succeed. So a task of its own connects, within its own limits, and all callers wait for that one.

use parking_lot::Mutex;
use tokio::sync::watch;

use super::runtime;
use crate::model::error::Error;

/// The result of an attempt; `None`: it has none yet.
type Outcome = Option<Result<(), Error>>;

/// At most one attempt at a time, of one runtime.
#[derive(Debug, Default)]
pub(super) struct Connecting(Mutex<Option<watch::Receiver<Outcome>>>);

impl Connecting {
    /// Whether an attempt runs. A runtime that ended has ended its attempt too.
    pub(super) fn is_under_way(&self) -> bool {
        self.0.lock().as_ref().is_some_and(is_under_way)
    }

    /// Waits for the attempt that runs, or for a new one. All who wait share its result, so that a crowd does not fail one
    /// after the other. `is_there` is asked once more before a new attempt begins.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the attempt continues without the caller.
    pub(super) async fn wait<F>(
        &self,
        is_there: impl Fn() -> bool,
        connect: impl FnOnce() -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let Some(mut attempt) = self.join(is_there, connect)? else {
            return Ok(());
        };
        let outcome = attempt.wait_for(Option::is_some).await;
        let outcome = outcome.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| {
            Err(Error::unavailable(
                "the runtime that connected to redis ended; try again",
            ))
        })
    }

    fn join<F>(
        &self,
        is_there: impl Fn() -> bool,
        connect: impl FnOnce() -> F,
    ) -> Result<Option<watch::Receiver<Outcome>>, Error>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let mut last = self.0.lock();
        if let Some(attempt) = last.as_ref().filter(|attempt| is_under_way(attempt)) {
            return Ok(Some(attempt.clone()));
        }
        if is_there() {
            return Ok(None);
        }
        let (result, attempt) = watch::channel(None);
        let connect = connect();
        runtime::handle()?.spawn(async move {
            let outcome = connect.await;
            // An error says that nobody waits any more.
            let _ = result.send(Some(outcome));
        });
        *last = Some(attempt.clone());
        Ok(Some(attempt))
    }
}

fn is_under_way(attempt: &watch::Receiver<Outcome>) -> bool {
    attempt.borrow().is_none() && attempt.has_changed().is_ok()
}
