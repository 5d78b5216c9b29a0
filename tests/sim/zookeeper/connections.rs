//! The connections of clients, at the side of the servers: requests are answered in their order.

use std::collections::VecDeque;

use leasehold::zookeeper::simulation::{Made, Node};
use tokio::sync::mpsc::UnboundedSender;

use crate::net::To;
use crate::state::State;

use super::peers::ToLeader;
use super::tree::{Code, One};
use super::{Ensemble, SERVERS};

/// Which request of which connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    pub(super) connection: u64,
    pub(super) request: u64,
}

/// What a client sends.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    /// A session of this number, or a new one for zero, with what the client has seen.
    Connect {
        session: i64,
        timeout: u64,
        seen: i64,
    },
    /// Watches from an earlier connection, and what their client had seen.
    Watches {
        watches: Vec<(String, u64)>,
        seen: i64,
    },
    Ask {
        request: u64,
        ask: Ask,
    },
    Ping,
    End,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Write(Vec<One>),
    Children(String),
    Read(String),
    Watch(String, u64),
    Sync,
    Close,
}

/// An answer to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Done(i64),
    Made(Made),
    Names(Vec<String>),
    Node(Node),
    Refused(usize, Code),
    Opened(i64),
    Expired,
}

/// What a server sends.
#[derive(Clone, Debug)]
pub(crate) enum ToClient {
    Opened(i64),
    Expired,
    Reply {
        request: u64,
        reply: Reply,
        zxid: i64,
    },
    Pong,
    Fired(u64),
    Closed,
}

pub(super) struct Connection {
    node: usize,
    life: u64,
    pub(super) server: usize,
    /// Zero until it is known.
    pub(super) session: i64,
    is_established: bool,
    /// It swallows what is sent: out, back.
    is_mute: [bool; 2],
    last: [u64; 2],
    waiting: VecDeque<Waiting>,
    client: UnboundedSender<ToClient>,
}

struct Waiting {
    request: u64,
    what: What,
}

enum What {
    Read(Ask),
    Ping,
    /// A write or a sync, and its answer once there is one.
    Other(Option<Reply>),
}

const OUT: usize = 0;
const BACK: usize = 1;

/// Real connections seldom break: as many messages are lost here as there.
const SELDOM: f64 = 0.1;

impl State {
    /// A client connects to some server. Its number.
    pub(super) fn connect(
        &mut self,
        node: usize,
        life: u64,
        client: UnboundedSender<ToClient>,
    ) -> u64 {
        let now = self.now;
        let zookeeper = self.zookeeper();
        let server = zookeeper.dice.below(SERVERS);
        zookeeper.last_connection += 1;
        let number = zookeeper.last_connection;
        let connection = Connection {
            node,
            life,
            server,
            session: 0,
            is_established: false,
            is_mute: [false; 2],
            last: [now; 2],
            waiting: VecDeque::new(),
            client,
        };
        zookeeper.connections.insert(number, connection);
        self.log
            .note(now, "connect", [node as u64, server as u64, number]);
        number
    }

    /// A client sends something.
    pub(super) fn send_to_server(&mut self, number: u64, packet: Packet) {
        let now = self.now;
        let Some(node) = self
            .zookeeper()
            .connections
            .get(&number)
            .map(|known| known.node)
        else {
            return;
        };
        let (delay, passes) = self.passage(node, OUT);
        let stalled = self.stalled[node].saturating_sub(now);
        let Some(known) = self.zookeeper().connections.get_mut(&number) else {
            return;
        };
        known.is_mute[OUT] |= !passes;
        if known.is_mute[OUT] {
            return;
        }
        let when = (now + delay + stalled).max(known.last[OUT] + 1);
        known.last[OUT] = when;
        self.later(when - now, move |state| state.server_hears(number, packet));
    }

    /// How long one message takes, and whether it arrives.
    fn passage(&mut self, node: usize, direction: usize) -> (u64, bool) {
        let rates = &self.setup.rates;
        let lost = if direction == OUT {
            rates.lost
        } else {
            rates.answer_lost
        };
        let fate = self.fate(lost * SELDOM, false);
        let passes = match direction {
            OUT => self.links.passes_out(node, To::Resource),
            _ => self.links.passes_back(node, To::Resource),
        };
        (fate.delay, passes && !fate.lost)
    }

    fn send_to_client(&mut self, number: u64, message: ToClient) {
        let now = self.now;
        let Some(known) = self.zookeeper().connections.get(&number) else {
            return;
        };
        let (node, life) = (known.node, known.life);
        let (delay, passes) = self.passage(node, BACK);
        let Some(known) = self.zookeeper().connections.get_mut(&number) else {
            return;
        };
        if !passes && !known.is_mute[BACK] {
            known.is_mute[BACK] = true;
            self.coverage
                .sometimes("an answer was lost with its connection");
        }
        let Some(known) = self.zookeeper().connections.get_mut(&number) else {
            return;
        };
        if known.is_mute[BACK] {
            return;
        }
        let when = (now + delay).max(known.last[BACK] + 1);
        known.last[BACK] = when;
        let client = known.client.clone();
        let deliver = Box::new(move || drop(client.send(message)));
        self.answer(node, life, when - now, deliver);
    }

    /// A server ends connections. `silently`: their clients hear nothing of it.
    pub(super) fn disconnect(&mut self, which: impl Fn(&Connection) -> bool, silently: bool) {
        let known = self.zookeeper().connections.iter();
        let such: Vec<_> = known
            .filter(|(_, known)| which(known))
            .map(|(number, _)| *number)
            .collect();
        for number in such {
            if !silently {
                self.send_to_client(number, ToClient::Closed);
            }
            self.zookeeper().connections.remove(&number);
        }
    }

    fn server_hears(&mut self, number: u64, packet: Packet) {
        let now = self.now;
        let Some(known) = self.zookeeper().connections.get(&number) else {
            return;
        };
        let (server, session) = (known.server, known.session);
        if !self.zookeeper().serves(server) {
            return self.disconnect(|known| known.server == server, false);
        }
        self.zookeeper().hears_of(server, session, now);
        match packet {
            Packet::Connect {
                session,
                timeout,
                seen,
            } => self.greet(number, session, timeout, seen),
            Packet::Watches { watches, seen } => {
                for (path, watch) in watches {
                    let this = &mut self.zookeeper().servers[server];
                    if this.tree.has_changed(&path, seen) {
                        self.fire(number, watch);
                    } else {
                        this.watches.push((path, watch, number));
                    }
                }
            }
            Packet::Ping => self.wait(number, 0, What::Ping),
            Packet::Ask { request, ask } => {
                let origin = Origin {
                    connection: number,
                    request,
                };
                match ask {
                    Ask::Write(ones) => {
                        self.wait(number, request, What::Other(None));
                        self.forward(server, ToLeader::Write(session, ones, origin));
                    }
                    Ask::Sync => {
                        self.wait(number, request, What::Other(None));
                        self.forward(server, ToLeader::Sync(origin));
                    }
                    Ask::Close => {
                        self.wait(number, request, What::Other(None));
                        self.forward(server, ToLeader::Close(session, origin));
                    }
                    read => self.wait(number, request, What::Read(read)),
                }
            }
            Packet::End => drop(self.zookeeper().connections.remove(&number)),
        }
        self.pump(number);
    }

    /// A client wants a session, or its session.
    fn greet(&mut self, number: u64, session: i64, timeout: u64, seen: i64) {
        let zookeeper = self.zookeeper();
        let Some(server) = zookeeper.connections.get(&number).map(|known| known.server) else {
            return;
        };
        if seen > zookeeper.zxid_of(server) {
            self.coverage
                .sometimes("a server that was behind its client refused it");
            self.send_to_client(number, ToClient::Closed);
            self.zookeeper().connections.remove(&number);
            return;
        }
        let origin = Origin {
            connection: number,
            request: 0,
        };
        if session == 0 {
            zookeeper.last_session += 1;
            let session = zookeeper.last_session;
            let open = vec![One::Open { session, timeout }];
            return self.forward(server, ToLeader::Write(session, open, origin));
        }
        // An earlier connection of it to this server is over.
        let others: Vec<_> = zookeeper
            .connections
            .iter()
            .filter(|(known, other)| {
                **known != number && other.server == server && other.session == session
            })
            .map(|(known, _)| *known)
            .collect();
        for other in others {
            zookeeper.connections.remove(&other);
        }
        if let Some(known) = zookeeper.connections.get_mut(&number) {
            known.session = session;
        }
        self.forward(server, ToLeader::Revalidate(session, number));
    }

    /// To the leader, which may be this server.
    fn forward(&mut self, server: usize, message: ToLeader) {
        let now = self.now;
        if self.zookeeper().leader != Some(server) {
            return self.send_to_leader(server, message);
        }
        match message {
            ToLeader::Write(session, ones, origin) => self.propose(session, ones, Some(origin)),
            ToLeader::Close(session, origin) => self.close_session(session, Some(origin)),
            ToLeader::Sync(origin) => self.sync(server, origin),
            ToLeader::Revalidate(session, connection) => {
                let is_open = self.zookeeper().revalidate(session, connection, now);
                self.revalidated(connection, is_open);
            }
            ToLeader::Ack(_) | ToLeader::Pong(_) => {}
        }
    }

    pub(super) fn opened(&mut self, number: u64, session: i64) {
        if let Some(known) = self.zookeeper().connections.get_mut(&number) {
            known.session = session;
            known.is_established = true;
            self.send_to_client(number, ToClient::Opened(session));
            self.pump(number);
        }
    }

    pub(super) fn revalidated(&mut self, number: u64, is_open: bool) {
        let known = self.zookeeper().connections.get(&number);
        match known.map(|known| known.session) {
            Some(session) if is_open => {
                self.coverage
                    .sometimes("a session came with another connection");
                self.opened(number, session);
            }
            Some(_) => {
                self.send_to_client(number, ToClient::Expired);
                self.zookeeper().connections.remove(&number);
            }
            None => {}
        }
    }

    /// The leader's answer has arrived with the write itself.
    pub(super) fn answered(&mut self, origin: Origin, reply: Reply) {
        let known = self.zookeeper().connections.get_mut(&origin.connection);
        let waiting = known.and_then(|known| {
            let mut waiting = known.waiting.iter_mut();
            waiting.find(|waiting| waiting.request == origin.request)
        });
        if let Some(Waiting {
            what: What::Other(answer),
            ..
        }) = waiting
        {
            *answer = Some(reply);
            self.pump(origin.connection);
        }
    }

    pub(super) fn synced(&mut self, origin: Origin) {
        self.answered(origin, Reply::Done(0));
    }

    pub(super) fn fire(&mut self, number: u64, watch: u64) {
        self.send_to_client(number, ToClient::Fired(watch));
    }

    fn wait(&mut self, number: u64, request: u64, what: What) {
        if let Some(known) = self.zookeeper().connections.get_mut(&number) {
            known.waiting.push_back(Waiting { request, what });
        }
    }

    /// Answers what is next, for as long as its answer is known.
    fn pump(&mut self, number: u64) {
        loop {
            let zookeeper = self.zookeeper();
            let Some(known) = zookeeper.connections.get_mut(&number) else {
                return;
            };
            let is_next = |next: &mut Waiting| !matches!(next.what, What::Other(None));
            if !known.is_established || !known.waiting.front_mut().is_some_and(is_next) {
                return;
            }
            let server = known.server;
            let Some(Waiting { request, what }) = known.waiting.pop_front() else {
                return;
            };
            let zxid = zookeeper.zxid_of(server);
            let reply = match what {
                What::Other(Some(reply)) => reply,
                What::Other(None) => return,
                What::Read(ask) => {
                    if zxid
                        < zookeeper
                            .log
                            .get(zookeeper.committed.wrapping_sub(1))
                            .map_or(0, |e| e.mark.zxid)
                    {
                        self.coverage.sometimes("a read was behind");
                    }
                    self.zookeeper().read(number, server, ask)
                }
                What::Ping => {
                    self.send_to_client(number, ToClient::Pong);
                    continue;
                }
            };
            if matches!(reply, Reply::Expired) {
                self.send_to_client(number, ToClient::Expired);
                self.zookeeper().connections.remove(&number);
                return;
            }
            let is_write = matches!(reply, Reply::Done(1..) | Reply::Made(_));
            self.send_to_client(
                number,
                ToClient::Reply {
                    request,
                    reply,
                    zxid,
                },
            );
            if is_write {
                self.aim_at(server);
            }
        }
    }
}

impl Ensemble {
    /// A server hears something of a session.
    fn hears_of(&mut self, server: usize, session: i64, now: u64) {
        if self.leader == Some(server) {
            self.touch(session, now);
        } else if session != 0 {
            self.servers[server].touched.insert(session);
        }
    }

    fn read(&mut self, number: u64, server: usize, ask: Ask) -> Reply {
        let this = &mut self.servers[server];
        let read = match ask {
            Ask::Children(path) => this.tree.children(&path).map(Reply::Names),
            Ask::Read(path) => this.tree.read(&path).map(Reply::Node),
            Ask::Watch(path, watch) => {
                let read = this.tree.read(&path).map(Reply::Node);
                if read.is_ok() {
                    this.watches.push((path, watch, number));
                }
                read
            }
            Ask::Write(_) | Ask::Sync | Ask::Close => return Reply::Done(0),
        };
        read.unwrap_or_else(|code| Reply::Refused(0, code))
    }
}
