//! [`Waiters`]: who waits for a message, by channel.

use std::collections::HashMap;
use std::sync::Arc;

use ::redis::{PushInfo, PushKind, Value};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Channels without a waiter that stay subscribed, since a lock that was waited for is often waited for again.
const IDLE_CHANNELS: usize = 64;

/// A claim that waits.
struct Waiter {
    owner: [u8; 32],
    wake: oneshot::Sender<()>,
}

impl Waiter {
    /// A message is a list of owners, of those who may hold now; an empty one is for everybody.
    fn is_called(&self, message: &[u8]) -> bool {
        let mut owners = message.split(|byte| *byte == b' ');
        message.is_empty() || owners.any(|owner| owner == self.owner)
    }
}

/// Who waits, by channel. A channel that is here is subscribed to, or soon will be.
#[derive(Clone, Default)]
pub(super) struct Waiters(Arc<Mutex<HashMap<String, Vec<Waiter>>>>);

impl Waiters {
    /// Called by the connection's driver: must return at once.
    pub(super) fn push(&self, push: PushInfo) {
        match push.kind {
            PushKind::Message => {
                if let Some(Value::BulkString(channel)) = push.data.first()
                    && let Ok(channel) = std::str::from_utf8(channel)
                    && let Some(waiters) = self.0.lock().get_mut(channel)
                {
                    let message = match push.data.get(1) {
                        Some(Value::BulkString(message)) => message.as_slice(),
                        _ => &[],
                    };
                    wake(waiters.extract_if(.., |waiter| waiter.is_called(message)));
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
    pub(super) fn add(&self, channel: String, owner: [u8; 32], wake: oneshot::Sender<()>) -> bool {
        let mut channels = self.0.lock();
        let is_new = !channels.contains_key(&channel);
        let waiters = channels.entry(channel).or_default();
        waiters.retain(|waiter| !waiter.wake.is_closed());
        waiters.push(Waiter { owner, wake });
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

fn is_idle(waiters: &[Waiter]) -> bool {
    waiters.iter().all(|waiter| waiter.wake.is_closed())
}

fn wake(waiters: impl Iterator<Item = Waiter>) {
    for waiter in waiters {
        // An error says that it stopped waiting.
        let _ = waiter.wake.send(());
    }
}
