//! [`Waiters`]: who waits for a message, by channel.

use std::collections::HashMap;
use std::sync::Arc;

use ::redis::{PushInfo, PushKind, Value};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Channels without a waiter that stay subscribed, since a lock that was waited for is often waited for again.
const IDLE_CHANNELS: usize = 64;

/// Who waits, by channel. A channel that is here is subscribed to, or soon will be.
#[derive(Clone, Default)]
pub(super) struct Waiters(Arc<Mutex<HashMap<String, Vec<oneshot::Sender<()>>>>>);

impl Waiters {
    /// Called by the connection's driver: must return at once.
    pub(super) fn push(&self, push: PushInfo) {
        match push.kind {
            PushKind::Message => {
                if let Some(Value::BulkString(channel)) = push.data.first()
                    && let Ok(channel) = std::str::from_utf8(channel)
                    && let Some(waiters) = self.0.lock().get_mut(channel)
                {
                    wake(waiters.drain(..));
                }
            }
            PushKind::Disconnection => self.end(),
            _ => {}
        }
    }

    /// No message can arrive any more.
    pub(super) fn end(&self) {
        wake(self.0.lock().drain().flat_map(|(_, waiters)| waiters));
    }

    /// Whether nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.0.lock().values().all(|waiters| is_idle(waiters))
    }

    /// The server has not subscribed to these.
    pub(super) fn forget(&self, channels: &[String]) {
        self.0
            .lock()
            .retain(|channel, _| !channels.contains(channel));
    }

    /// Adds a waiter, and returns whether the channel is new.
    pub(super) fn add(&self, channel: String, waiter: oneshot::Sender<()>) -> bool {
        let mut channels = self.0.lock();
        let is_new = !channels.contains_key(&channel);
        let waiters = channels.entry(channel).or_default();
        waiters.retain(|waiter| !waiter.is_closed());
        waiters.push(waiter);
        is_new
    }

    /// Removes the channels that nobody waits for, when there are many, and returns them.
    pub(super) fn take_idle(&self) -> Vec<String> {
        let mut channels = self.0.lock();
        let idle: Vec<_> = (channels.iter())
            .filter(|(_, waiters)| is_idle(waiters))
            .map(|(channel, _)| channel.clone())
            .collect();
        if idle.len() <= IDLE_CHANNELS {
            return Vec::new();
        }
        channels.retain(|_, waiters| !is_idle(waiters));
        idle
    }
}

fn is_idle(waiters: &[oneshot::Sender<()>]) -> bool {
    waiters.iter().all(oneshot::Sender::is_closed)
}

fn wake(waiters: impl Iterator<Item = oneshot::Sender<()>>) {
    for waiter in waiters {
        // An error says that it stopped waiting.
        let _ = waiter.send(());
    }
}
