//! [`Subscriber`]: the connection that receives the messages to the managers of a store, each of
//! which has one channel.
//!
//! A lost message costs its waiter one poll, so nothing here is repaired. When the connection ends,
//! every wait ends at once, the waiters ask again, and the next one that subscribes makes a new
//! connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::failure::Failure;
use super::opened::Opened;
use super::target::Target;
use super::waiters::{Wait, Waiters};
use crate::clock::Clock;
use crate::model::error::{Error, ErrorKind};
use crate::store::dial::{self, Health, Pooled, Reconnecting};

/// How often the server is pinged while anybody waits for a message: a connection that a router has
/// forgotten is as silent as one without messages.
const PING_AFTER: Duration = Duration::from_secs(3);

/// The subscriber connection of one runtime. Made on first use.
pub(crate) struct Subscriber {
    target: Arc<Target>,
    inner: Reconnecting<Live>,
}

#[derive(Clone)]
struct Live {
    orders: mpsc::UnboundedSender<Order>,
    health: Health,
    waiters: Waiters,
}

impl dial::Live for Live {
    fn is_dead(&self) -> bool {
        self.health.is_dead() || self.orders.is_closed()
    }

    /// A message that is missed costs one poll, so it is not worth a connection that is made
    /// without a pause. One that lasted longer than the pause is made again at once.
    fn was_useful(&self) -> bool {
        false
    }
}

/// An order to subscribe to a manager's channel, and to report when that is done.
struct Order {
    channel: String,
    subscribed: oneshot::Sender<Result<(), Error>>,
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
    /// Returns once the messages to the claim's manager arrive.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a channel that nobody waits for is given up later.
    pub(in super::super) async fn subscribe(&self, owner: [u8; 32]) -> Result<Wait, Error> {
        let connect = || connect(Arc::clone(&self.target));
        let live = self.inner.ready(connect, ended).await?;
        // Before the order: an idle channel is given up.
        let wait = live.waiters.add(owner);
        let channel = self.target.options.names.channel(&owner);
        if !live.waiters.has_channel(&channel) {
            let (subscribed, when_subscribed) = oneshot::channel();
            let order = Order {
                channel,
                subscribed,
            };
            // If the connection is gone, its end of the answer is gone with the order.
            let _ = live.orders.send(order);
            when_subscribed.await.map_err(|_| ended())??;
        }
        Ok(wait)
    }

    /// The wait of a claim to whose manager messages arrive already.
    pub(in super::super) fn listen(&self, owner: [u8; 32]) -> Option<Wait> {
        self.inner.present()?.waiters.listen(owner)
    }
}

async fn connect(target: Arc<Target>) -> Result<Live, Error> {
    let waiters = Waiters::new(target.options.names.clone());
    let woken = waiters.clone();
    let clock = target.clock().clone();
    let hears = move |push| woken.push(&push, clock.stamp());
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
    mut orders: mpsc::UnboundedReceiver<Order>,
    waiters: Waiters,
    clock: Clock,
) {
    let Opened {
        mut connection,
        limit,
        ..
    } = opened;
    loop {
        let ordered = clock.timeout(PING_AFTER, orders.recv()).await;
        let order = match ordered {
            Some(None) => break,
            Some(Some(order)) => Some(order),
            None => None,
        };
        let asked = match &order {
            Some(order) => limit.of(connection.subscribe(&order.channel)).await,
            None if waiters.is_idle() => Ok(()),
            None => {
                let ping = ::redis::cmd("PING");
                limit.of(ping.query_async(&mut connection)).await
            }
        };
        let failure = asked.err().map(Failure::of);
        let is_over = failure.as_ref().is_some_and(ends_the_connection);
        if let Some(order) = order {
            let answer = match failure {
                None => {
                    waiters.subscribed(order.channel);
                    Ok(())
                }
                Some(failure) => Err(not_subscribed(failure)),
            };
            let _ = order.subscribed.send(answer);
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

/// A server that has forgotten our login (a token that has expired) sends no message either.
fn ends_the_connection(failure: &Failure) -> bool {
    match failure {
        Failure::Unanswered(_) => true,
        Failure::Refused(error) => matches!(error.code(), Some("NOAUTH" | "WRONGPASS")),
        _ => false,
    }
}

fn not_subscribed(failure: Failure) -> Error {
    match failure.into_error("subscribe") {
        error if error.kind() == ErrorKind::InDoubt => {
            Error::unavailable("no wake-ups from redis now; poll instead").because(error)
        }
        error => error,
    }
}
