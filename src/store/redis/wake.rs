//! [`Waker`]: the subscriber connection, which turns the server's wake-ups into hints.
//!
//! A hint that is lost costs its waiter one poll, so nothing here is repaired: when the connection ends, every hint
//! resolves at once, their holders look again, and whoever subscribes next makes a new connection.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{PushInfo, PushKind, Value};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::connecting::Connecting;
use super::link::{Failure, Target};
use super::session::Health;
use crate::clock::Clock;
use crate::model::error::{Error, ErrorKind};

/// Channels without a waiter that stay subscribed, since a lock that was waited for is often waited for again.
const IDLE_CHANNELS: usize = 64;
/// How many new channels are subscribed to in one round trip.
const BATCH: usize = 256;
/// How often the server is asked whether it is there, while anybody waits for a wake-up: a connection that a router on the way
/// has forgotten is as silent as one for which there is no news.
const LOOK_AFTER: Duration = Duration::from_secs(3);

/// The subscriber connection of one runtime. Made on first use.
pub(super) struct Waker {
    target: Arc<Target>,
    connecting: Connecting,
    live: Arc<Mutex<Option<Subscriber>>>,
}

struct Subscriber {
    orders: mpsc::UnboundedSender<Order>,
    health: Health,
}

impl Subscriber {
    fn is_live(&self) -> bool {
        !self.health.is_dead() && !self.orders.is_closed()
    }
}

/// Subscribe to a channel; say when it is done; say when there is a wake-up.
struct Order {
    channel: String,
    subscribed: oneshot::Sender<Result<(), Error>>,
    wake: oneshot::Sender<()>,
}

impl Waker {
    pub(super) fn new(target: Arc<Target>) -> Self {
        Self {
            target,
            connecting: Connecting::default(),
            live: Arc::default(),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.connecting.is_under_way() || self.present().is_some()
    }

    /// Returns once subscribed; what it returns resolves with the next wake-up, or when none can come any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a subscription that nobody waits for is given up later.
    pub(super) async fn subscribe(&self, channel: String) -> Result<oneshot::Receiver<()>, Error> {
        let (subscribed, when_subscribed) = oneshot::channel();
        let (wake, woken) = oneshot::channel();
        let orders = self.orders().await?;
        // If the subscriber is gone, its ends of both channels are gone with the order.
        let _ = orders.send(Order {
            channel,
            subscribed,
            wake,
        });
        when_subscribed.await.map_err(|_| ended())??;
        Ok(woken)
    }

    async fn orders(&self) -> Result<mpsc::UnboundedSender<Order>, Error> {
        if let Some(orders) = self.present() {
            return Ok(orders);
        }
        let is_there = || self.present().is_some();
        self.connecting.wait(is_there, || self.connect()).await?;
        self.present().ok_or_else(ended)
    }

    fn present(&self) -> Option<mpsc::UnboundedSender<Order>> {
        let live = self.live.lock();
        let live = live.as_ref().filter(|subscriber| subscriber.is_live());
        live.map(|subscriber| subscriber.orders.clone())
    }

    fn connect(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (target, live) = (Arc::clone(&self.target), Arc::clone(&self.live));
        async move {
            let waiting = Waiting::default();
            let told = waiting.clone();
            let (connection, health) = target.connect(move |push| told.push(push)).await?;
            let (orders, received) = mpsc::unbounded_channel();
            let clock = target.clock().clone();
            tokio::spawn(serve(connection, received, waiting, clock));
            *live.lock() = Some(Subscriber { orders, health });
            Ok(())
        }
    }
}

fn ended() -> Error {
    Error::unavailable("the subscriber connection to redis ended; no wake-up will come, look again")
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker")
            .field("is_live", &self.is_live())
            .finish_non_exhaustive()
    }
}

/// Who waits, by channel. A channel that is here is subscribed to, or about to be.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<HashMap<String, Vec<oneshot::Sender<()>>>>>);

impl Waiting {
    /// Called by the connection's driver: must return at once.
    fn push(&self, push: PushInfo) {
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

    /// No wake-up can come any more.
    fn end(&self) {
        wake(self.0.lock().drain().flat_map(|(_, waiters)| waiters));
    }

    /// Whether nobody waits.
    fn is_idle(&self) -> bool {
        self.0.lock().values().all(|waiters| is_idle(waiters))
    }

    /// The server has not subscribed to these.
    fn forget(&self, channels: &[String]) {
        self.0
            .lock()
            .retain(|channel, _| !channels.contains(channel));
    }

    /// Adds a waiter; whether the channel is new.
    fn add(&self, channel: String, waiter: oneshot::Sender<()>) -> bool {
        let mut channels = self.0.lock();
        let is_new = !channels.contains_key(&channel);
        let waiters = channels.entry(channel).or_default();
        waiters.retain(|waiter| !waiter.is_closed());
        waiters.push(waiter);
        is_new
    }

    /// Takes out channels that nobody waits for, when there are many.
    fn take_idle(&self) -> Vec<String> {
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
        // Who stopped waiting needs no wake-up.
        let _ = waiter.send(());
    }
}

/// Subscribes in the order of the orders, until the connection is dead or the store is closed.
async fn serve(
    mut connection: MultiplexedConnection,
    mut orders: mpsc::UnboundedReceiver<Order>,
    waiting: Waiting,
    clock: Clock,
) {
    let mut batch = Vec::new();
    let mut look_at = clock.stamp().plus(LOOK_AFTER);
    loop {
        let receiving = orders.recv_many(&mut batch, BATCH);
        let received = if waiting.is_idle() {
            Some(receiving.await)
        } else {
            clock.until(look_at, receiving).await
        };
        if received == Some(0) {
            break;
        }
        let mut new = Vec::new();
        let mut subscribed = Vec::new();
        for order in batch.drain(..) {
            if waiting.add(order.channel.clone(), order.wake) {
                new.push(order.channel.clone());
            }
            subscribed.push((order.channel, order.subscribed));
        }
        let is_due = look_at.since(&clock.stamp()).is_zero();
        let asked = if !new.is_empty() {
            connection.subscribe(&new).await
        } else if is_due {
            ::redis::cmd("PING").query_async(&mut connection).await
        } else {
            Ok(())
        };
        if is_due {
            look_at = clock.stamp().plus(LOOK_AFTER);
        }
        let failure = asked.err().map(Failure::of);
        let is_over = matches!(failure, Some(Failure::Unanswered(_)));
        let failed = failure.map(|failure| match failure.into_error("subscribe") {
            error if error.kind() == ErrorKind::InDoubt => {
                Error::unavailable("no wake-ups from redis now; look again instead").because(error)
            }
            error => error,
        });
        // A server that refuses is there, and has subscribed to none of them.
        if failed.is_some() {
            waiting.forget(&new);
        }
        for (channel, answer) in subscribed {
            let is_meant = is_over || new.contains(&channel);
            let failed = failed.clone().filter(|_| is_meant);
            let _ = answer.send(failed.map_or(Ok(()), Err));
        }
        if is_over {
            break;
        }
        let idle = waiting.take_idle();
        if !idle.is_empty() && connection.unsubscribe(idle).await.is_err() {
            break;
        }
    }
    waiting.end();
}
