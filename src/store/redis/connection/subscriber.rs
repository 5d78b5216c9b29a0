//! [`Subscriber`]: the connection that receives the server's wake-up messages, as hints.
//!
//! A lost hint costs its waiter one poll, so nothing here is repaired. When the connection ends, every hint resolves at
//! once, the waiters ask again, and the next one that subscribes makes a new connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::super::names::channel_of_all;
use super::failure::Failure;
use super::grant_message::GrantMessage;
use super::opened::Opened;
use super::target::Target;
use super::waiters::Waiters;
use crate::clock::Clock;
use crate::model::error::{Error, ErrorKind};
use crate::model::holder::OwnerToken;
use crate::store::dial::{self, Health, Pooled, Reconnecting};

/// How many new channels are subscribed to in one round trip.
const BATCH: usize = 256;
/// How often the server is pinged while anybody waits for a message: a connection that a router has forgotten is as silent
/// as one without messages.
const PING_AFTER: Duration = Duration::from_secs(3);

/// The subscriber connection of one runtime. Made on first use.
pub(crate) struct Subscriber {
    target: Arc<Target>,
    inner: Reconnecting<Live>,
}

#[derive(Clone)]
struct Live {
    orders: mpsc::UnboundedSender<Option<Order>>,
    health: Health,
    waiters: Waiters,
}

impl dial::Live for Live {
    fn is_dead(&self) -> bool {
        self.health.is_dead() || self.orders.is_closed()
    }

    /// A message that is missed costs one poll, so it is not worth a connection that is made without a pause. One that lasted
    /// longer than the pause is made again at once.
    fn was_useful(&self) -> bool {
        false
    }
}

/// An order to subscribe to a manager's own channel, to report when that is done, and to report a message. `None` in its place
/// says that somebody waits again.
struct Order {
    channel: String,
    /// Of the claim that waits.
    owner: [u8; 32],
    subscribed: oneshot::Sender<Result<(), Error>>,
    wake: oneshot::Sender<Option<GrantMessage>>,
}

impl Pooled for Subscriber {
    type Target = Target;

    fn new(target: Arc<Target>) -> Self {
        Self {
            inner: Reconnecting::new(target.connecting()),
            target,
        }
    }

    fn is_live(&self) -> bool {
        self.inner.is_live()
    }
}

impl Subscriber {
    /// Returns once subscribed. The receiver resolves with the next message for this claim, and the grant in it if there is one, or
    /// when none can arrive any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a subscription that nobody waits for is ended later.
    pub(in super::super) async fn subscribe(
        &self,
        channel: String,
        owner: [u8; 32],
    ) -> Result<oneshot::Receiver<Option<GrantMessage>>, Error> {
        let (subscribed, when_subscribed) = oneshot::channel();
        let (wake, woken) = oneshot::channel();
        let connect = || connect(Arc::clone(&self.target));
        let orders = self.inner.ready(connect, ended).await?.orders;
        // If the connection is gone, its ends of both channels are gone with the order.
        let _ = orders.send(Some(Order {
            channel,
            owner,
            subscribed,
            wake,
        }));
        when_subscribed.await.map_err(|_| ended())??;
        Ok(woken)
    }

    /// This channel, if there are channels.
    pub(in super::super) fn subscribed(
        &self,
        channel: impl FnOnce() -> String,
    ) -> Option<Subscribed> {
        let live = self.inner.present()?;
        if live.waiters.is_empty() {
            return None;
        }
        Some(Subscribed {
            channel: channel(),
            orders: live.orders,
            waiters: live.waiters,
            clock: self.target.clock().clone(),
        })
    }
}

async fn connect(target: Arc<Target>) -> Result<Live, Error> {
    let waiters = Waiters::default();
    let woken = waiters.clone();
    let clock = target.clock().clone();
    let hears = move |push| woken.push(push, clock.stamp());
    let opened = target.connect(hears).await?;
    let health = opened.health.clone();
    let (orders, received) = mpsc::unbounded_channel();
    let serving = waiters.clone();
    let clock = target.clock().clone();
    tokio::spawn(serve(opened, received, serving, clock));
    Ok(Live {
        orders,
        health,
        waiters,
    })
}

/// A channel of a connection that is subscribed to channels, perhaps to this one.
pub(in super::super) struct Subscribed {
    channel: String,
    orders: mpsc::UnboundedSender<Option<Order>>,
    waiters: Waiters,
    clock: Clock,
}

impl Subscribed {
    /// Resolves with the next message for this claim, if the channel is subscribed to and its lock contended.
    pub(in super::super) fn listen(
        &self,
        owner: &OwnerToken,
    ) -> Option<oneshot::Receiver<Option<GrantMessage>>> {
        let (wake, woken) = oneshot::channel();
        let now = self.clock.stamp();
        let listens = (self.waiters).listen(&self.channel, owner.digits(), wake, &now);
        if listens? {
            // If the connection is gone, it has ended all waits.
            let _ = self.orders.send(None);
        }
        Some(woken)
    }

    /// Whether this claim waits for a message.
    pub(in super::super) fn is_waiting(&self, owner: &OwnerToken) -> bool {
        self.waiters.is_waiting(&self.channel, &owner.digits())
    }
}

fn ended() -> Error {
    Error::unavailable("the subscriber connection to redis ended; no wake-up will come, ask again")
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("is_live", &self.is_live())
            .finish_non_exhaustive()
    }
}

/// Subscribes in the order of the orders, until the connection is dead or the store is closed.
async fn serve(
    opened: Opened,
    mut orders: mpsc::UnboundedReceiver<Option<Order>>,
    waiters: Waiters,
    clock: Clock,
) {
    let Opened {
        mut connection,
        limit,
        ..
    } = opened;
    let mut batch = Vec::new();
    let mut ping_at = clock.stamp().plus(PING_AFTER);
    loop {
        let receiving = orders.recv_many(&mut batch, BATCH);
        let received = if waiters.park() {
            Some(receiving.await)
        } else {
            clock.until(ping_at, receiving).await
        };
        if received == Some(0) {
            break;
        }
        let mut new = Vec::new();
        let mut subscribed = Vec::new();
        for order in batch.drain(..).flatten() {
            if waiters.add(order.channel.clone(), order.owner, order.wake) {
                new.push(order.channel.clone());
            }
            subscribed.push((order.channel, order.subscribed));
        }
        let is_due = ping_at.since(&clock.stamp()).is_zero();
        let asked = if !new.is_empty() {
            let all = new.iter().map(|own| channel_of_all(own));
            let names: Vec<_> = new.iter().map(String::as_str).chain(all).collect();
            limit.of(connection.subscribe(names)).await
        } else if is_due {
            let ping = ::redis::cmd("PING");
            limit.of(ping.query_async(&mut connection)).await
        } else {
            Ok(())
        };
        if is_due {
            ping_at = clock.stamp().plus(PING_AFTER);
        }
        let failure = asked.err().map(Failure::of);
        let is_over = matches!(failure, Some(Failure::Unanswered(_)));
        let failed = failure.map(|failure| match failure.into_error("subscribe") {
            error if error.kind() == ErrorKind::InDoubt => {
                Error::unavailable("no wake-ups from redis now; poll instead").because(error)
            }
            error => error,
        });
        // A server that refuses is there, and has subscribed to none of them.
        if failed.is_some() {
            waiters.forget(&new);
        } else {
            waiters.subscribed(&new);
        }
        for (channel, answer) in subscribed {
            let is_meant = is_over || new.contains(&channel);
            let failed = failed.clone().filter(|_| is_meant);
            let _ = answer.send(failed.map_or(Ok(()), Err));
        }
        if is_over {
            break;
        }
        let idle = waiters.take_idle();
        if !idle.is_empty() && limit.of(connection.unsubscribe(idle)).await.is_err() {
            break;
        }
    }
    waiters.end();
}
