//! [`Connecting`]: an attempt to connect, which goes on when those who wait for it do not.
//!
//! A caller has less patience than a connection may need: were it made within the caller's future, it would be begun again and
//! again, and never be made. So it is made by a task of its own, within its own limits, and all who need it wait for that one.

use parking_lot::Mutex;
use tokio::sync::watch;

use super::links::handle;
use crate::model::error::Error;

/// What came of an attempt; `None`: it is under way.
type Outcome = Option<Result<(), Error>>;

/// At most one attempt at a time, of one runtime.
#[derive(Debug, Default)]
pub(super) struct Connecting(Mutex<Option<watch::Receiver<Outcome>>>);

impl Connecting {
    /// Whether somebody connects. A runtime that ended has taken its attempt along.
    pub(super) fn is_under_way(&self) -> bool {
        self.0.lock().as_ref().is_some_and(is_under_way)
    }

    /// Waits for the attempt that is under way, or for a new one. All who wait share its outcome: else a crowd would fail one
    /// after the other. `is_there` is asked once more before a new one begins.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the attempt goes on without who was dropped.
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
        let (told, attempt) = watch::channel(None);
        let connect = connect();
        handle()?.spawn(async move {
            let outcome = connect.await;
            // That nobody waits any more is no loss.
            let _ = told.send(Some(outcome));
        });
        *last = Some(attempt.clone());
        Ok(Some(attempt))
    }
}

fn is_under_way(attempt: &watch::Receiver<Outcome>) -> bool {
    attempt.borrow().is_none() && attempt.has_changed().is_ok()
}
