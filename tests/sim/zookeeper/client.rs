//! [`Client`]: the task that keeps one session connected, as the crate `zookeeper-client` does it.
//!
//! It gives a connection up that is silent for two fifths of the time-out, and the session after
//! seven fifths. What was sent is then in doubt; what was not waits for the next connection, and so
//! do watches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, Stamp};
use leasehold::zookeeper::simulation::Fault;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};

use crate::net::Net;

use super::connections::{Ask, Packet, Reply, ToClient};

/// A request, and who waits for its answer. A watch notifies another.
pub(super) struct Order {
    pub(super) ask: Ask,
    pub(super) answer: oneshot::Sender<Result<Reply, Fault>>,
    pub(super) watcher: Option<oneshot::Sender<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Connecting,
    Connected,
    Over,
}

/// How a session is, for those who wait for a change.
#[derive(Debug)]
pub(super) struct Status {
    phase: Mutex<Phase>,
    changed: Notify,
}

impl Status {
    fn set(&self, phase: Phase) {
        *self.phase.lock() = phase;
        self.changed.notify_waiters();
    }

    pub(super) fn get(&self) -> Phase {
        *self.phase.lock()
    }

    /// The first phase that is not `Connecting`, or the last.
    pub(super) async fn settled(&self, waits_for_the_end: bool) -> Phase {
        loop {
            let changed = self.changed.notified();
            match self.get() {
                Phase::Connecting => {}
                Phase::Connected if waits_for_the_end => {}
                phase => return phase,
            }
            changed.await;
        }
    }
}

/// A client's end of a connection. Dropped, it ends.
pub(super) struct Line {
    net: Net,
    number: u64,
    messages: UnboundedReceiver<ToClient>,
    /// Kept, so that a server that drops its end says nothing by that.
    _open: UnboundedSender<ToClient>,
}

impl Line {
    fn new(net: &Net) -> Self {
        let (client, messages) = unbounded_channel();
        let number = net
            .shared
            .lock()
            .connect(net.node, net.life, client.clone());
        Self {
            net: net.clone(),
            number,
            messages,
            _open: client,
        }
    }

    fn send(&self, packet: Packet) {
        let mut state = self.net.shared.lock();
        if state.lives[self.net.node] == self.net.life {
            state.send_to_server(self.number, packet);
        }
    }

    async fn next(&mut self) -> ToClient {
        self.messages.recv().await.unwrap_or(ToClient::Closed)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.send(Packet::End);
    }
}

/// Why a connection is over.
enum Broken {
    /// Another one may follow.
    Lost,
    Expired,
    /// The session was closed, or left.
    Ended,
}

pub(super) struct Client {
    pub(super) net: Net,
    pub(super) clock: Clock,
    pub(super) timeout: Duration,
    pub(super) is_left_to_time_out: bool,
    pub(super) session: i64,
    pub(super) status: Arc<Status>,
    seen: i64,
    heard_at: Stamp,
    requests: u64,
    watches: BTreeMap<u64, (String, oneshot::Sender<()>)>,
    in_flight: VecDeque<(u64, Order)>,
}

/// The pause after all servers refused at once.
const RETRY: Duration = Duration::from_millis(20);

impl Client {
    pub(super) fn new(
        net: &Net,
        clock: &Clock,
        timeout: Duration,
        is_left_to_time_out: bool,
    ) -> Self {
        Self {
            net: net.clone(),
            clock: clock.clone(),
            timeout,
            is_left_to_time_out,
            session: 0,
            status: Arc::new(Status {
                phase: Mutex::new(Phase::Connecting),
                changed: Notify::new(),
            }),
            seen: 0,
            heard_at: clock.stamp(),
            requests: 0,
            watches: BTreeMap::new(),
            in_flight: VecDeque::new(),
        }
    }

    fn silence(&self) -> Duration {
        self.clock.stamp().since(&self.heard_at)
    }

    /// Connects to one server after the other, for as long as the session may live.
    pub(super) async fn connect(&mut self) -> Option<Line> {
        let limit = match self.session {
            0 => self.timeout,
            _ => self.timeout * 7 / 5,
        };
        let begin = self.heard_at;
        while self.clock.stamp().since(&begin) < limit {
            let mut line = Line::new(&self.net);
            line.send(Packet::Connect {
                session: self.session,
                timeout: self.timeout.as_nanos() as u64,
                seen: self.seen,
            });
            let greeting = self.clock.timeout(self.timeout * 2 / 5, line.next()).await;
            match greeting {
                Some(ToClient::Opened(session)) => {
                    self.session = session;
                    self.heard_at = self.clock.stamp();
                    let watches = self.watches.iter();
                    let watches: Vec<_> = watches
                        .map(|(number, (path, _))| (path.clone(), *number))
                        .collect();
                    if !watches.is_empty() {
                        line.send(Packet::Watches {
                            watches,
                            seen: self.seen,
                        });
                    }
                    return Some(line);
                }
                Some(ToClient::Expired) => return None,
                _ => self.clock.sleep(RETRY).await,
            }
        }
        None
    }

    /// Serves the session to its end.
    pub(super) async fn serve(mut self, line: Line, mut orders: UnboundedReceiver<Order>) {
        let mut next = Some(line);
        while let Some(mut line) = next.take() {
            self.status.set(Phase::Connected);
            let broken = self.serve_once(&mut line, &mut orders).await;
            drop(line);
            if !matches!(broken, Broken::Lost) {
                self.fail(|| Fault::Expired);
                break;
            }
            self.status.set(Phase::Connecting);
            self.fail(|| Fault::InDoubt("the connection broke".into()));
            next = self.connect().await;
        }
        self.status.set(Phase::Over);
        orders.close();
        while let Ok(order) = orders.try_recv() {
            let _ = order.answer.send(Err(Fault::Expired));
        }
    }

    fn fail(&mut self, fault: impl Fn() -> Fault) {
        for (_, order) in self.in_flight.drain(..) {
            let _ = order.answer.send(Err(fault()));
        }
    }

    async fn serve_once(
        &mut self,
        line: &mut Line,
        orders: &mut UnboundedReceiver<Order>,
    ) -> Broken {
        let clock = self.clock.clone();
        let (most, idle) = (self.timeout * 2 / 5, self.timeout * 3 / 20);
        let mut is_left = false;
        let mut sent_at = clock.stamp();
        let mut is_pinged = false;
        loop {
            if is_left && self.in_flight.is_empty() {
                return Broken::Ended;
            }
            let until_silent = most.saturating_sub(self.silence());
            let until_idle = if is_pinged {
                most
            } else {
                idle.saturating_sub(clock.stamp().since(&sent_at))
            };
            tokio::select! {
                biased;
                message = line.next() => {
                    self.heard_at = clock.stamp();
                    match message {
                        ToClient::Closed => return Broken::Lost,
                        ToClient::Expired => return Broken::Expired,
                        ToClient::Opened(_) => {}
                        ToClient::Pong => is_pinged = false,
                        ToClient::Fired(watch) => drop(self.watches.remove(&watch)),
                        ToClient::Reply { request, reply, zxid } => self.answered(request, reply, zxid),
                    }
                }
                order = orders.recv(), if !is_left => {
                    sent_at = clock.stamp();
                    match order {
                        Some(order) => self.send(line, order),
                        None => {
                            is_left = true;
                            if !self.is_left_to_time_out {
                                let (answer, _) = oneshot::channel();
                                self.send(line, Order { ask: Ask::Close, answer, watcher: None });
                            }
                        }
                    }
                }
                () = clock.sleep(until_silent.min(until_idle)) => {
                    if self.silence() >= most {
                        return Broken::Lost;
                    }
                    if !is_pinged && clock.stamp().since(&sent_at) >= idle {
                        sent_at = clock.stamp();
                        is_pinged = true;
                        line.send(Packet::Ping);
                    }
                }
            }
        }
    }

    fn send(&mut self, line: &Line, order: Order) {
        self.requests += 1;
        let mut ask = order.ask.clone();
        if let Ask::Watch(_, watch) = &mut ask {
            *watch = self.requests;
        }
        line.send(Packet::Ask {
            request: self.requests,
            ask,
        });
        self.in_flight.push_back((self.requests, order));
    }

    fn answered(&mut self, request: u64, reply: Reply, zxid: i64) {
        self.seen = self.seen.max(zxid);
        let Some(at) = self
            .in_flight
            .iter()
            .position(|(known, _)| *known == request)
        else {
            return;
        };
        let Some((_, order)) = self.in_flight.remove(at) else {
            return;
        };
        if let (Ask::Watch(path, _), Some(watcher), Reply::Node(_)) =
            (order.ask, order.watcher, &reply)
        {
            self.watches.insert(request, (path, watcher));
        }
        let _ = order.answer.send(Ok(reply));
    }
}
