//! [`Round`]: one question to all members at once.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::runtime::Handle;

use crate::clock::{Clock, Stamp};
use crate::model::error::Error;

/// How long a member may take to answer what nobody waits for any more. Its own limits should end
/// it long before.
pub(super) const LEFTOVER_BOUND: Duration = Duration::from_secs(60);
/// What part of a TTL the slower members are waited for, once a majority answered and that does not
/// decide.
const PATIENCE_PARTS: u32 = 30;
/// The longest that they are waited for when a lock is acquired.
const MAX_PATIENCE: Duration = Duration::from_millis(100);

/// How long a round that acquires or gives back waits for the slower members.
pub(super) fn patience(ttl: Duration) -> Duration {
    patience_of(ttl).min(MAX_PATIENCE)
}

/// The same where nobody else waits.
pub(super) fn patience_of(ttl: Duration) -> Duration {
    ttl / PATIENCE_PARTS
}

/// A question to all members. What is unanswered when it is dropped is driven to its end in the
/// background: a request whose future is dropped may be sent or not, and a lock that nobody knows
/// of stays until its TTL ends.
pub(super) struct Round<T: Send + 'static> {
    pending: Vec<(usize, BoxFuture<'static, T>)>,
    answered: VecDeque<(usize, T)>,
    home: Handle,
    clock: Clock,
    patience: Duration,
    /// The members whose answers are not there, as bits.
    waited_for: u16,
    /// Since when a majority has answered; more may be asked after that.
    quorate_at: Option<Stamp>,
}

impl<T: Send + 'static> Round<T> {
    pub(super) fn new(home: Handle, clock: Clock, patience: Duration) -> Self {
        Self {
            pending: Vec::new(),
            answered: VecDeque::new(),
            home,
            clock,
            patience,
            waited_for: 0,
            quorate_at: None,
        }
    }

    pub(super) fn ask(&mut self, member: usize, ask: impl Future<Output = T> + Send + 'static) {
        self.waited_for |= 1 << member;
        self.pending.push((member, Box::pin(ask)));
    }

    /// The next answer; `None` when there is none to come, or when a majority answered and the rest
    /// takes too long.
    pub(super) async fn next(&mut self, is_quorate: bool) -> Option<(usize, T)> {
        if !is_quorate {
            self.quorate_at = None;
            return self.answer().await;
        }
        let now = self.clock.stamp();
        let since = self.quorate_at.get_or_insert(now);
        let left = self.patience.saturating_sub(now.since(since));
        let clock = self.clock.clone();
        clock.timeout(left, self.answer()).await.flatten()
    }

    async fn answer(&mut self) -> Option<(usize, T)> {
        std::future::poll_fn(|cx| {
            self.poll_all(cx);
            match self.answered.pop_front() {
                None if !self.pending.is_empty() => Poll::Pending,
                answer => Poll::Ready(answer),
            }
        })
        .await
    }

    /// Polls every request, so that each is on its connection before an answer is looked at.
    fn poll_all(&mut self, cx: &mut Context<'_>) {
        let (answered, waited_for) = (&mut self.answered, &mut self.waited_for);
        self.pending
            .retain_mut(|(member, ask)| match ask.as_mut().poll(cx) {
                Poll::Ready(answer) => {
                    *waited_for &= !(1 << *member);
                    answered.push_back((*member, answer));
                    false
                }
                Poll::Pending => true,
            });
    }

    /// Since when the rest is waited for with a limit.
    pub(super) fn quorate_at(&self) -> Option<Stamp> {
        self.quorate_at
    }

    /// The members whose answers are not there.
    pub(super) fn waited_for(&self) -> impl Iterator<Item = usize> + use<T> {
        let members = self.waited_for;
        (0..u16::BITS as usize).filter(move |member| members & (1 << member) != 0)
    }

    /// How long the slower members are waited for.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len() + self.answered.len()
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
            let drive = join_all(leftover.into_iter().map(|(_, ask)| ask));
            if clock.timeout(LEFTOVER_BOUND, drive).await.is_none() {
                tracing::warn!(
                    target: "leasehold::quorum", "a member gave no answer in {LEFTOVER_BOUND:?}; what it may still do ends with the ttl"
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
