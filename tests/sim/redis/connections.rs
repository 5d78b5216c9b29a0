//! Connections: bytes in order, late, cut off anywhere, or lost with everything that follows them.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::resp;
use super::stream::{End, Inbox};
use crate::net::To;
use crate::state::State;

const OUT: usize = 0;
const BACK: usize = 1;

/// A connection carries many messages, and a loss ends all of them.
const SELDOM: f64 = 0.1;
/// After so long what did not pass is sent again, in milliseconds.
const RESEND: (f64, f64) = (20.0, 300.0);

/// One way of a connection.
struct Way {
    /// What is under way, and when it arrives if nothing is cut. `None`: the end.
    parts: VecDeque<(u64, Option<Vec<u8>>)>,
    /// Nothing arrives any more, and nobody is told.
    is_mute: bool,
}

pub(super) struct Connection {
    node: usize,
    life: u64,
    inbox: Arc<Inbox>,
    ways: [Way; 2],
    /// Of a command that has not arrived as a whole.
    heard: Vec<u8>,
    /// Of a dial that nobody answers.
    unanswered: Option<oneshot::Sender<bool>>,
    /// The server has it.
    is_accepted: bool,
}

impl State {
    /// A process connects. `answer` learns whether it was accepted; of what is lost nobody learns.
    pub(super) fn dial(
        &mut self,
        node: usize,
        life: u64,
        inbox: Arc<Inbox>,
        answer: oneshot::Sender<bool>,
    ) -> u64 {
        let now = self.now;
        let way = || Way {
            parts: VecDeque::new(),
            is_mute: false,
        };
        let redis = self.redis();
        redis.last_connection += 1;
        let number = redis.last_connection;
        let connection = Connection {
            node,
            life,
            inbox,
            ways: [way(), way()],
            heard: Vec::new(),
            unanswered: None,
            is_accepted: false,
        };
        redis.connections.insert(number, connection);
        self.log.note(now, "dial", [node as u64, number, 0]);
        let fate = self.fate(self.setup.rates.lost * SELDOM, false);
        if fate.lost || !self.links.passes_out(node, To::Resource) {
            self.leave_unanswered(number, answer);
            return number;
        }
        let stalled = self.stalled[node].saturating_sub(now);
        self.soon(fate.delay + stalled, move |state| {
            state.accept(number, answer)
        });
        number
    }

    fn accept(&mut self, number: u64, answer: oneshot::Sender<bool>) {
        let redis = self.redis();
        let is_up = redis.is_up;
        let Some(connection) = redis.connections.get_mut(&number) else {
            return;
        };
        connection.is_accepted = is_up;
        let (node, life) = (connection.node, connection.life);
        let fate = self.fate(self.setup.rates.answer_lost * SELDOM, false);
        if fate.lost || !self.links.passes_back(node, To::Resource) {
            return self.leave_unanswered(number, answer);
        }
        let deliver = Box::new(move || {
            // An error says that the client has given up.
            let _ = answer.send(is_up);
        });
        self.answer(node, life, fate.delay, deliver);
    }

    /// Nobody learns of it: the client waits until its limit.
    fn leave_unanswered(&mut self, number: u64, answer: oneshot::Sender<bool>) {
        if let Some(connection) = self.redis().connections.get_mut(&number) {
            connection.unanswered = Some(answer);
            connection
                .ways
                .iter_mut()
                .for_each(|way| way.is_mute = true);
        }
    }

    /// A client sends bytes, or ends its connection.
    pub(super) fn send_to_redis(&mut self, number: u64, part: Option<Vec<u8>>) {
        self.send_part(number, OUT, part);
    }

    /// The kernel of a process that was killed ends its connections. Its runtime would drop them in
    /// any order.
    pub(crate) fn crashed(&mut self, node: usize) {
        let now_living = self.lives[node];
        let known = self.redis().connections.iter();
        let dead = known.filter(|(_, known)| known.node == node && known.life < now_living);
        let numbers: Vec<_> = dead.map(|(number, _)| *number).collect();
        for number in numbers {
            self.send_to_redis(number, None);
        }
    }

    fn send_part(&mut self, number: u64, way: usize, part: Option<Vec<u8>>) {
        let now = self.now;
        let rates = &self.setup.rates;
        let lost = [rates.lost, rates.answer_lost][way];
        let fate = self.fate(lost * SELDOM, false);
        let dice = &mut self.redis().dice;
        let (is_reset, prefix) = (dice.falls(0.5), dice.part());
        let size = part.as_ref().map_or(0, Vec::len);
        self.log
            .note(now, "part", [number, way as u64, size as u64]);
        let Some(connection) = self.redis().connections.get(&number) else {
            return;
        };
        let (node, is_mute) = (connection.node, connection.ways[way].is_mute);
        if is_mute {
            return;
        }
        if let Some(part) = part.as_ref().filter(|_| fate.lost) {
            // The beginning arrives.
            self.coverage
                .sometimes(["a request was cut", "an answer was cut"][way]);
            let beginning = part[..(part.len() as f64 * prefix) as usize].to_vec();
            self.put_part(number, way, fate.delay, Some(beginning));
            if is_reset {
                self.soon(fate.delay, move |state| state.reset(number));
            }
            if let Some(connection) = self.redis().connections.get_mut(&number) {
                connection.ways[way].is_mute = true;
            }
            return;
        }
        if fate.delay > 100_000_000 {
            self.coverage
                .sometimes(["a request was late", "an answer was late"][way]);
        }
        let stalled = if way == OUT {
            self.stalled[node].saturating_sub(now)
        } else {
            0
        };
        self.put_part(number, way, fate.delay + stalled, part);
    }

    fn put_part(&mut self, number: u64, way: usize, delay: u64, part: Option<Vec<u8>>) {
        let when = self.now + delay;
        let Some(connection) = self.redis().connections.get_mut(&number) else {
            return;
        };
        let parts = &mut connection.ways[way].parts;
        let last = parts.back().map_or(0, |(when, _)| *when);
        parts.push_back((when.max(last), part));
        self.soon(delay, move |state| state.move_parts(number, way));
    }

    /// Delivers everything that is due on one way.
    fn move_parts(&mut self, number: u64, way: usize) {
        let now = self.now;
        loop {
            let Some(connection) = self.redis().connections.get_mut(&number) else {
                return;
            };
            let (node, parts) = (connection.node, &mut connection.ways[way].parts);
            let Some((when, _)) = parts.front() else {
                return;
            };
            let wait = when.saturating_sub(now);
            if wait > 0 {
                return self.soon(wait, move |state| state.move_parts(number, way));
            }
            let passes = match way {
                OUT => self.links.passes_out(node, To::Resource),
                _ => self.links.passes_back(node, To::Resource),
            };
            if !passes {
                self.coverage.sometimes("bytes were sent again after a cut");
                let wait = self.redis().dice.ms(RESEND.0, RESEND.1);
                return self.soon(wait, move |state| state.move_parts(number, way));
            }
            let Some(connection) = self.redis().connections.get_mut(&number) else {
                return;
            };
            let Some((_, part)) = connection.ways[way].parts.pop_front() else {
                return;
            };
            if way == OUT {
                self.redis_hears(number, part);
            } else {
                self.client_hears(number, part);
            }
        }
    }

    fn client_hears(&mut self, number: u64, part: Option<Vec<u8>>) {
        let Some(connection) = self.redis().connections.get(&number) else {
            return;
        };
        let node = connection.node;
        match part {
            Some(bytes) => connection.inbox.put(&bytes, None),
            None => connection.inbox.put(&[], Some(End::Closed)),
        }
        self.touched.insert(node);
    }

    /// The client learns at once that nothing arrives any more, and the server forgets the
    /// connection.
    fn reset(&mut self, number: u64) {
        let redis = self.redis();
        redis.server.forget(number);
        let Some(connection) = redis.connections.remove(&number) else {
            return;
        };
        connection.inbox.put(&[], Some(End::Reset));
        self.touched.insert(connection.node);
    }

    /// Something arrives at the host of the server. While its process is paused it waits there.
    fn redis_hears(&mut self, number: u64, part: Option<Vec<u8>>) {
        let redis = self.redis();
        let is_known = redis
            .connections
            .get(&number)
            .is_some_and(|known| known.is_accepted);
        if !is_known {
            // A host that is up knows nothing of connections of an earlier run.
            if redis.is_up {
                self.reset(number);
            }
            return;
        }
        if redis.is_paused {
            self.coverage
                .sometimes("a request waited for a paused server");
            self.redis().backlog.push_back((number, part));
            return;
        }
        self.serve(number, part);
    }

    pub(super) fn serve(&mut self, number: u64, part: Option<Vec<u8>>) {
        let now = self.now;
        let redis = self.redis();
        let Some(connection) = redis.connections.get_mut(&number) else {
            return;
        };
        let Some(bytes) = part else {
            redis.server.forget(number);
            redis.connections.remove(&number);
            return;
        };
        let node = connection.node;
        connection.heard.extend(bytes);
        let mut replies: Vec<(u64, Vec<u8>)> = Vec::new();
        loop {
            let redis = self.redis();
            redis.advance(now);
            let Some(connection) = redis.connections.get_mut(&number) else {
                break;
            };
            let Some(words) = resp::next_command(&mut connection.heard) else {
                break;
            };
            let said = redis.server.execute(number, &words);
            self.redis_published(node);
            for (to, reply) in said {
                if to == number {
                    self.redis_answered(node, &words, &reply);
                } else {
                    self.coverage.sometimes("a waiter was called");
                }
                self.log.note(now, "reply", [number, to, 0]);
                let mut bytes = Vec::new();
                reply.write(&mut bytes);
                match replies.last_mut() {
                    Some((last, known)) if *last == to => known.extend(bytes),
                    _ => replies.push((to, bytes)),
                }
            }
        }
        for (to, bytes) in replies {
            self.send_part(to, BACK, Some(bytes));
        }
    }

    /// The server ends connections. `silently`: as a host that has lost its power does.
    pub(super) fn disconnect_redis(&mut self, which: impl Fn(u64) -> bool, silently: bool) {
        let redis = self.redis();
        let numbers: Vec<_> = redis
            .connections
            .keys()
            .copied()
            .filter(|number| which(*number))
            .collect();
        for number in numbers {
            let redis = self.redis();
            redis.server.forget(number);
            let Some(connection) = redis.connections.get_mut(&number) else {
                continue;
            };
            let was_accepted = std::mem::take(&mut connection.is_accepted);
            if was_accepted && !silently {
                self.send_part(number, BACK, None);
            }
        }
        self.redis().backlog.retain(|(number, _)| !which(*number));
    }
}
