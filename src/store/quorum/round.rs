//! [`Round`]: one question to all members at once.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;

use crate::clock::{Clock, Stamp};
use crate::model::error::Error;

/// How long a member may take to answer what nobody waits for any more. Its own limits should end it long before.
const LEFTOVER_BOUND: Duration = Duration::from_secs(60);
/// What part of a TTL the slower members are waited for, once a majority answered and that does not decide.
const PATIENCE_PARTS: u32 = 30;

/// A question to all members. What is unanswered when it is dropped is driven to its end in the background: a request whose
/// future is dropped may be sent or not, and a lock that nobody knows of stays until its TTL ends.
pub(super) struct Round<T: Send + 'static> {
    pending: FuturesUnordered<BoxFuture<'static, (usize, T)>>,
    home: Handle,
    clock: Clock,
    patience: Duration,
    /// Since when a majority has answered; more may be asked after that.
    quorate_at: Option<Stamp>,
}

impl<T: Send + 'static> Round<T> {
    pub(super) fn new(home: Handle, clock: Clock, ttl: Duration) -> Self {
        Self {
            pending: FuturesUnordered::new(),
            home,
            clock,
            patience: ttl / PATIENCE_PARTS,
            quorate_at: None,
        }
    }

    pub(super) fn ask(&mut self, member: usize, ask: impl Future<Output = T> + Send + 'static) {
        self.pending
            .push(Box::pin(async move { (member, ask.await) }));
    }

    /// The next answer; `None` when there is none to come, or when a majority answered and the rest takes too long.
    pub(super) async fn next(&mut self, is_quorate: bool) -> Option<(usize, T)> {
        if !is_quorate {
            self.quorate_at = None;
            return self.pending.next().await;
        }
        let now = self.clock.stamp();
        let since = self.quorate_at.get_or_insert(now);
        let left = self.patience.saturating_sub(now.since(since));
        self.clock
            .timeout(left, self.pending.next())
            .await
            .flatten()
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }
}

impl<T: Send + 'static> Drop for Round<T> {
    fn drop(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let leftover = std::mem::take(&mut self.pending);
        let clock = self.clock.clone();
        self.home.spawn(async move {
            let drive = leftover.for_each(|_| std::future::ready(()));
            if clock.timeout(LEFTOVER_BOUND, drive).await.is_none() {
                tracing::warn!(
                    "a member gave no answer in {LEFTOVER_BOUND:?}; what it may still do ends with the ttl"
                );
            }
        });
    }
}

/// The runtime that leftovers run in.
pub(super) fn home() -> Result<Handle, Error> {
    Handle::try_current().map_err(|e| {
        Error::invalid("a quorum was asked outside of a tokio runtime; ask it within one")
            .because(e)
    })
}
