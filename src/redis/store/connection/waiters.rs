//! [`Waiters`]: which claims wait for a message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ::redis::{PushInfo, PushKind, Value};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::super::message::Message;
use super::super::names::Names;
use crate::clock::Stamp;

/// Channels without a waiter that stay subscribed: a manager that waited once often waits again.
const IDLE_CHANNELS: usize = 32;

type Owner = [u8; 32];

#[derive(Default)]
struct Waiting {
    /// A number distinguishes the waits of one claim.
    claims: BTreeMap<Owner, (u64, oneshot::Sender<Message>)>,
    last: u64,
    /// Those that the server has subscribed to.
    channels: BTreeSet<String>,
}

impl Waiting {
    fn add(&mut self, owner: Owner) -> (u64, oneshot::Receiver<Message>) {
        let (wake, woken) = oneshot::channel();
        self.last += 1;
        self.claims.insert(owner, (self.last, wake));
        (self.last, woken)
    }
}

/// Which claims wait for a message, over one connection.
#[derive(Clone)]
pub(super) struct Waiters {
    names: Names,
    waiting: Arc<Mutex<Waiting>>,
}

impl Waiters {
    pub(super) fn new(names: Names) -> Self {
        Self {
            names,
            waiting: Arc::default(),
        }
    }

    /// Called by the connection's driver: must return at once.
    pub(super) fn push(&self, push: &PushInfo, now: Stamp) {
        match push.kind {
            PushKind::Message => {
                if let Some(Value::BulkString(message)) = push.data.get(1) {
                    self.hear(message, now);
                }
            }
            PushKind::Disconnection => self.end(),
            _ => {}
        }
    }

    /// A message begins with the owner that is called.
    fn hear(&self, message: &[u8], now: Stamp) {
        let Some((owner, rest)) = message.split_first_chunk() else {
            return;
        };
        let called = self.waiting.lock().claims.remove(owner);
        let message = rest.strip_prefix(b" ");
        let message = message.and_then(|text| Message::read(text, now));
        if let (Some((_, wake)), Some(message)) = (called, message) {
            // An error says that it stopped waiting. Then it asks, or was withdrawn.
            let _ = wake.send(message);
        }
    }

    /// No message can arrive any more.
    pub(super) fn end(&self) {
        *self.waiting.lock() = Waiting::default();
    }

    /// Whether nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.lock().claims.is_empty()
    }

    pub(super) fn has_channel(&self, channel: &str) -> bool {
        self.waiting.lock().channels.contains(channel)
    }

    /// The server has subscribed to this.
    pub(super) fn subscribed(&self, channel: String) {
        self.waiting.lock().channels.insert(channel);
    }

    /// Adds a waiter.
    pub(super) fn add(&self, owner: Owner) -> Wait {
        let (number, woken) = self.waiting.lock().add(owner);
        Wait {
            waiters: self.clone(),
            owner,
            number,
            woken: Some(woken),
        }
    }

    /// Adds a waiter if its messages arrive already.
    pub(super) fn listen(&self, owner: Owner) -> Option<Wait> {
        let channel = self.names.channel(&owner);
        self.has_channel(&channel).then(|| self.add(owner))
    }

    /// Removes the channels that nobody waits for, when there are many, and returns them.
    pub(super) fn take_idle(&self) -> Vec<String> {
        let mut waiting = self.waiting.lock();
        if waiting.channels.len() <= IDLE_CHANNELS {
            return Vec::new();
        }
        let used: BTreeSet<_> = waiting
            .claims
            .keys()
            .map(|owner| self.names.channel(owner))
            .collect();
        let (used, idle) = (std::mem::take(&mut waiting.channels).into_iter())
            .partition::<BTreeSet<_>, _>(|one| used.contains(one));
        waiting.channels = used;
        idle.into_iter().collect()
    }
}

/// The wait of one claim for its next message. Dropped, it waits no more.
pub(in super::super) struct Wait {
    waiters: Waiters,
    owner: Owner,
    number: u64,
    woken: Option<oneshot::Receiver<Message>>,
}

impl Wait {
    /// The next message for the claim; `None` if none can arrive any more.
    pub(in super::super) async fn message(mut self) -> Option<Message> {
        self.woken.take()?.await.ok()
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut waiting = self.waiters.waiting.lock();
        if (waiting.claims.get(&self.owner)).is_some_and(|(number, _)| *number == self.number) {
            waiting.claims.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Stamp {
        Stamp::from_nanos([millis * 1_000_000; 3])
    }

    fn waiters() -> Waiters {
        Waiters::new(Names::parse("app").unwrap())
    }

    fn message(text: &str) -> PushInfo {
        let data = ["app:{leasehold}:wake:x", text].map(|part| Value::BulkString(part.into()));
        PushInfo {
            kind: PushKind::Message,
            data: data.into(),
        }
    }

    fn heard(wait: &mut Wait) -> Option<Message> {
        wait.woken.as_mut()?.try_recv().ok()
    }

    #[test]
    fn only_the_claim_that_is_called_is_woken() {
        let waiters = waiters();
        let mut waits = [b'a', b'b'].map(|digit| waiters.add([digit; 32]));
        waiters.push(&message("short"), at(1));
        waiters.push(&message(&format!("{} gap 25", "b".repeat(32))), at(1));
        assert!(heard(&mut waits[0]).is_none());
        assert!(matches!(heard(&mut waits[1]), Some(Message::Gap(_))));
    }

    #[test]
    fn a_claim_listens_where_messages_arrive() {
        let waiters = waiters();
        let owner = [b'a'; 32];
        assert!(waiters.listen(owner).is_none());
        waiters.subscribed(waiters.names.channel(&owner));
        let first = waiters.listen(owner).unwrap();
        let second = waiters.listen(owner).unwrap();
        drop(first);
        assert!(!waiters.is_idle(), "the second waits");
        drop(second);
        assert!(waiters.is_idle());
        waiters.end();
        assert!(waiters.listen(owner).is_none(), "the connection ended");
    }

    #[test]
    fn channels_that_nobody_waits_for_are_given_up_when_there_are_many() {
        let waiters = waiters();
        let wait = waiters.add([b'0'; 32]);
        waiters.subscribed(waiters.names.channel(&[b'0'; 32]));
        for number in 1..=IDLE_CHANNELS {
            assert!(waiters.take_idle().is_empty());
            waiters.subscribed(format!("app:{{leasehold}}:wake:{number}"));
        }
        assert_eq!(waiters.take_idle().len(), IDLE_CHANNELS);
        assert!(waiters.has_channel(&waiters.names.channel(&[b'0'; 32])));
        drop(wait);
    }
}
