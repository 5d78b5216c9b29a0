//! [`Waiters`]: who waits for a message, by channel.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{PushInfo, PushKind, Value};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::super::names::channel_of_all;
use super::grant_message::GrantMessage;
use crate::clock::Stamp;

/// For how long a lock counts as contended after a message about it.
const HOT: Duration = Duration::from_millis(100);
/// Channels without a waiter that stay subscribed, since a lock that was waited for is often waited for again.
const IDLE_CHANNELS: usize = 32;

/// A claim that waits.
struct Waiter {
    owner: [u8; 32],
    wake: oneshot::Sender<Option<GrantMessage>>,
}

impl Waiter {
    /// A message begins with the owner that is called; an empty one is for everybody.
    fn is_called(&self, message: &[u8]) -> bool {
        let called = message.split(|byte| *byte == b' ').next();
        message.is_empty() || called == Some(&self.owner)
    }
}

/// A manager's own channel for a lock. It is subscribed to together with the channel of what everybody is to know, or soon
/// will be.
#[derive(Default)]
struct Channel {
    waiters: Vec<Waiter>,
    is_subscribed: bool,
    /// When the last message came.
    heard: Option<Stamp>,
}

impl Channel {
    fn is_idle(&self) -> bool {
        self.waiters.iter().all(|waiter| waiter.wake.is_closed())
    }

    fn add(&mut self, owner: [u8; 32], wake: oneshot::Sender<Option<GrantMessage>>) {
        self.waiters.retain(|waiter| !waiter.wake.is_closed());
        self.waiters.push(Waiter { owner, wake });
    }
}

#[derive(Default)]
struct Waiting {
    /// By the names of the managers' own channels. The channel of what everybody is to know has the beginning of such a name.
    channels: BTreeMap<String, Channel>,
    /// Nobody waited when the connection's task looked, so it pings no more until it is notified.
    is_parked: bool,
}

impl Waiting {
    fn hear(&mut self, name: &str, message: &[u8], now: &Stamp) {
        let from = (Bound::Included(name), Bound::Unbounded);
        let channels = self.channels.range_mut::<str, _>(from);
        for (_, channel) in channels.take_while(|(own, _)| own.starts_with(name)) {
            channel.heard = Some(*now);
            let is_called = |waiter: &mut Waiter| waiter.is_called(message);
            let grant = message.get(33..);
            let grant = grant.and_then(|grant| GrantMessage::read(grant, *now));
            wake(channel.waiters.extract_if(.., is_called), grant.as_ref());
        }
    }

    /// Whether the channel of what everybody is to know is that of a known channel.
    fn needs(&self, all: &str) -> bool {
        let from = (Bound::Included(all), Bound::Unbounded);
        let next = self.channels.range::<str, _>(from).next();
        next.is_some_and(|(own, _)| own.starts_with(all))
    }
}

/// Who waits, by channel.
#[derive(Clone, Default)]
pub(super) struct Waiters(Arc<Mutex<Waiting>>);

impl Waiters {
    /// Called by the connection's driver: must return at once.
    pub(super) fn push(&self, push: PushInfo, now: Stamp) {
        match push.kind {
            PushKind::Message => {
                if let Some(Value::BulkString(channel)) = push.data.first()
                    && let Ok(channel) = std::str::from_utf8(channel)
                {
                    let message = match push.data.get(1) {
                        Some(Value::BulkString(message)) => message.as_slice(),
                        _ => &[],
                    };
                    self.0.lock().hear(channel, message, &now);
                }
            }
            PushKind::Disconnection => self.end(),
            _ => {}
        }
    }

    /// No message can arrive any more.
    pub(super) fn end(&self) {
        let mut waiting = self.0.lock();
        let channels = std::mem::take(&mut waiting.channels);
        let waiters = channels.into_values().flat_map(|channel| channel.waiters);
        wake(waiters, None);
    }

    /// Whether nobody waits. Then whoever listens next has to report it.
    pub(super) fn park(&self) -> bool {
        let mut waiting = self.0.lock();
        waiting.is_parked = waiting.channels.values().all(Channel::is_idle);
        waiting.is_parked
    }

    /// Whether no channel is known.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().channels.is_empty()
    }

    /// The server has subscribed to these.
    pub(super) fn subscribed(&self, channels: &[String]) {
        let mut waiting = self.0.lock();
        for channel in channels {
            if let Some(channel) = waiting.channels.get_mut(channel) {
                channel.is_subscribed = true;
            }
        }
    }

    /// Adds a waiter to a channel that is subscribed to and where others wait, or did a moment ago. True if the connection's
    /// task has to be notified.
    pub(super) fn listen(
        &self,
        channel: &str,
        owner: [u8; 32],
        wake: oneshot::Sender<Option<GrantMessage>>,
        now: &Stamp,
    ) -> Option<bool> {
        let mut waiting = self.0.lock();
        let channel = waiting.channels.get_mut(channel)?;
        let is_hot = channel.heard.is_some_and(|heard| now.since(&heard) < HOT);
        if !channel.is_subscribed || !is_hot && channel.is_idle() {
            return None;
        }
        channel.add(owner, wake);
        Some(std::mem::take(&mut waiting.is_parked))
    }

    /// Whether this claim waits.
    pub(super) fn is_waiting(&self, channel: &str, owner: &[u8; 32]) -> bool {
        let waiting = self.0.lock();
        let mut waiters = waiting
            .channels
            .get(channel)
            .into_iter()
            .flat_map(|channel| &channel.waiters);
        waiters.any(|waiter| waiter.owner == *owner && !waiter.wake.is_closed())
    }

    /// The server has not subscribed to these.
    pub(super) fn forget(&self, channels: &[String]) {
        let mut waiting = self.0.lock();
        (waiting.channels).retain(|channel, _| !channels.contains(channel));
    }

    /// Adds a waiter, and returns whether the channel is new.
    pub(super) fn add(
        &self,
        channel: String,
        owner: [u8; 32],
        wake: oneshot::Sender<Option<GrantMessage>>,
    ) -> bool {
        let mut waiting = self.0.lock();
        let is_new = !waiting.channels.contains_key(&channel);
        let channel = waiting.channels.entry(channel).or_default();
        channel.add(owner, wake);
        is_new
    }

    /// Removes the channels that nobody waits for, when there are many, and returns them and what was subscribed to with them.
    pub(super) fn take_idle(&self) -> Vec<String> {
        let mut waiting = self.0.lock();
        let idle: Vec<_> = (waiting.channels.iter())
            .filter(|(_, channel)| channel.is_idle())
            .map(|(name, _)| name.clone())
            .collect();
        if idle.len() <= IDLE_CHANNELS {
            return Vec::new();
        }
        waiting.channels.retain(|_, channel| !channel.is_idle());
        let all = idle.iter().map(|own| channel_of_all(own));
        let all: Vec<_> = (all.filter(|all| !waiting.needs(all)))
            .map(str::to_owned)
            .collect();
        idle.into_iter().chain(all).collect()
    }
}

fn wake(waiters: impl Iterator<Item = Waiter>, grant: Option<&GrantMessage>) {
    for waiter in waiters {
        // An error says that it stopped waiting. Then it asks, or was withdrawn.
        let _ = waiter.wake.send(grant.cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: [u8; 32] = [b'a'; 32];

    fn at(millis: u64) -> Stamp {
        Stamp::from_nanos([millis * 1_000_000; 3])
    }

    type Woken = oneshot::Receiver<Option<GrantMessage>>;

    fn listen(waiters: &Waiters, millis: u64) -> Option<(bool, Woken)> {
        let (wake, woken) = oneshot::channel();
        let has_to_tell = waiters.listen("a", OWNER, wake, &at(millis))?;
        Some((has_to_tell, woken))
    }

    fn message(text: &str) -> PushInfo {
        let data = ["a", text].map(|part| Value::BulkString(part.into()));
        PushInfo {
            kind: PushKind::Message,
            data: data.into(),
        }
    }

    #[test]
    fn what_everybody_is_to_know_wakes_the_waiters_of_all_managers_at_one_lock() {
        let waiters = Waiters::default();
        let mut woken = ["a:free:0", "a:free:1", "b:free:0"].map(|own| {
            let (wake, woken) = oneshot::channel();
            assert!(waiters.add(own.to_owned(), OWNER, wake));
            woken
        });
        let on = |channel: &str| PushInfo {
            kind: PushKind::Message,
            data: [channel, ""]
                .map(|part| Value::BulkString(part.into()))
                .into(),
        };
        waiters.push(on("a:free:1"), at(1));
        assert_eq!(
            woken.each_mut().map(|woken| woken.try_recv().is_ok()),
            [false, true, false]
        );
        waiters.push(on("a:free"), at(2));
        assert!(woken[0].try_recv().is_ok() && woken[2].try_recv().is_err());
    }

    #[test]
    fn what_everybody_is_to_know_is_subscribed_to_as_long_as_one_manager_waits() {
        let waiters = Waiters::default();
        let waits = |own: String| {
            let (wake, woken) = oneshot::channel();
            assert!(waiters.add(own, OWNER, wake));
            woken
        };
        let _waits = waits("a:free:0".to_owned());
        for number in 1..=IDLE_CHANNELS {
            drop(waits(format!("a:free:{number}")));
        }
        assert!(waiters.take_idle().is_empty());
        drop(waits("b:free:0".to_owned()));
        let idle = waiters.take_idle();
        assert_eq!(idle.len(), IDLE_CHANNELS + 2);
        assert!(idle.contains(&"b:free".to_owned()) && !idle.contains(&"a:free".to_owned()));
    }

    #[test]
    fn a_claim_listens_where_messages_arrive_about_a_contended_lock() {
        let waiters = Waiters::default();
        assert!(listen(&waiters, 0).is_none(), "nobody has subscribed");
        let (wake, woken) = oneshot::channel();
        assert!(waiters.add("a".to_owned(), [b'b'; 32], wake));
        assert!(
            listen(&waiters, 0).is_none(),
            "the server has not confirmed"
        );
        waiters.subscribed(&["a".to_owned()]);
        let (_, mut listening) = listen(&waiters, 0).expect("another claim waits");
        assert!(waiters.is_waiting("a", &OWNER));
        waiters.push(message(str::from_utf8(&OWNER).unwrap()), at(1_000));
        assert!(listening.try_recv().is_ok());
        assert!(!waiters.is_waiting("a", &OWNER));

        drop(woken);
        assert!(waiters.park());
        let (has_to_tell, listening) = listen(&waiters, 1_099).expect("a message came");
        assert!(has_to_tell && !waiters.park());
        drop(listening);
        assert!(listen(&waiters, 1_100).is_none(), "nothing happens there");
        waiters.end();
        assert!(listen(&waiters, 1_001).is_none(), "the connection ended");
    }
}
