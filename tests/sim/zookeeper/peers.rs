//! The servers, and the connections from followers to their leader: first in, first out, slow, cut
//! off.

use std::collections::BTreeSet;

use crate::state::State;

use super::connections::{Origin, Reply};
use super::tree::{One, Tree};
use super::{Ensemble, SERVERS, SYNC_LIMIT};

pub(super) struct Server {
    /// How fast its clock runs.
    pub(super) ppm: i64,
    pub(super) is_up: bool,
    pub(super) tree: Tree,
    /// How much of the log it has on disk, and how much in its tree.
    pub(super) logged: usize,
    pub(super) applied: usize,
    /// Nothing reaches its peers; nothing reaches it from them.
    pub(super) is_cut: [bool; 2],
    /// How long everything from its leader takes in addition.
    pub(super) lag: u64,
    /// To its leader.
    pub(super) link: Option<Link>,
    /// Sessions that it heard of since its last answer to a ping.
    pub(super) touched: BTreeSet<i64>,
    /// The path and number of each watch, and its connection.
    pub(super) watches: Vec<(String, u64, u64)>,
}

/// One connection of a follower to its leader.
pub(super) struct Link {
    number: u64,
    /// When the last message arrives at each end.
    last: [u64; 2],
    last_ping: u64,
    /// When each end last heard of the other.
    heard: u64,
    pub(super) answered: u64,
    pub(super) acked: usize,
}

#[derive(Clone, Debug)]
pub(super) enum ToFollower {
    Propose(usize),
    Commit(usize),
    Ping,
    Revalidated(u64, bool),
    Synced(Origin),
}

#[derive(Clone, Debug)]
pub(super) enum ToLeader {
    Ack(usize),
    Pong(BTreeSet<i64>),
    Write(i64, Vec<One>, Origin),
    Close(i64, Origin),
    Revalidate(i64, u64),
    Sync(Origin),
}

const OUT: usize = 0;
const IN: usize = 1;

impl Server {
    pub(super) fn new(ppm: i64) -> Self {
        Self {
            ppm,
            is_up: true,
            tree: Tree::new(),
            logged: 0,
            applied: 0,
            is_cut: [false; 2],
            lag: 0,
            link: None,
            touched: BTreeSet::new(),
            watches: Vec::new(),
        }
    }

    fn reaches(&self, direction: usize) -> bool {
        self.is_up && !self.is_cut[direction]
    }

    fn is_whole(&self) -> bool {
        self.reaches(OUT) && self.reaches(IN)
    }
}

impl Ensemble {
    fn is_link(&self, server: usize, number: u64) -> bool {
        let link = self.servers[server].link.as_ref();
        link.is_some_and(|link| link.number == number)
    }
}

impl State {
    pub(super) fn send_to_follower(&mut self, server: usize, message: ToFollower) {
        let now = self.now;
        let zookeeper = self.zookeeper();
        let tick = zookeeper.true_tick();
        let leads = zookeeper
            .leader
            .is_some_and(|leader| zookeeper.servers[leader].reaches(OUT));
        let delay = zookeeper.dice.ms(0.1, 1.5) + zookeeper.servers[server].lag;
        let reaches = leads && zookeeper.servers[server].reaches(IN);
        let Some(link) = zookeeper.servers[server].link.as_mut().filter(|_| reaches) else {
            return;
        };
        // A follower that falls behind falls behind slowly: its pings are less than a tick apart.
        let latest = link.last_ping + tick * 9 / 10;
        let when = (now + delay).min(latest).max(link.last[IN]).max(now + 1);
        link.last[IN] = when;
        if matches!(message, ToFollower::Ping) {
            link.last_ping = when;
        }
        let number = link.number;
        self.later(when - now, move |state| {
            state.follower_hears(server, number, message)
        });
    }

    pub(super) fn send_to_leader(&mut self, server: usize, message: ToLeader) {
        let now = self.now;
        let zookeeper = self.zookeeper();
        let delay = zookeeper.dice.ms(0.1, 1.5);
        let leads = zookeeper
            .leader
            .is_some_and(|leader| zookeeper.servers[leader].reaches(IN));
        let reaches = leads && zookeeper.servers[server].reaches(OUT);
        let Some(link) = zookeeper.servers[server].link.as_mut().filter(|_| reaches) else {
            return;
        };
        let when = (now + delay).max(link.last[OUT]).max(now + 1);
        link.last[OUT] = when;
        let number = link.number;
        self.later(when - now, move |state| {
            state.leader_hears(server, number, message)
        });
    }

    fn follower_hears(&mut self, server: usize, number: u64, message: ToFollower) {
        let now = self.now;
        let zookeeper = self.zookeeper();
        if !zookeeper.is_link(server, number) {
            return;
        }
        let this = &mut zookeeper.servers[server];
        if let Some(link) = &mut this.link {
            link.heard = now;
        }
        match message {
            ToFollower::Propose(length) => {
                this.logged = this.logged.max(length);
                self.send_to_leader(server, ToLeader::Ack(length));
            }
            ToFollower::Commit(length) => self.apply(server, length),
            ToFollower::Ping => {
                let touched = std::mem::take(&mut this.touched);
                self.send_to_leader(server, ToLeader::Pong(touched));
            }
            ToFollower::Revalidated(connection, is_open) => self.revalidated(connection, is_open),
            ToFollower::Synced(origin) => self.synced(origin),
        }
    }

    fn leader_hears(&mut self, server: usize, number: u64, message: ToLeader) {
        let now = self.now;
        let zookeeper = self.zookeeper();
        if !zookeeper.is_link(server, number) {
            return;
        }
        if let Some(link) = &mut zookeeper.servers[server].link {
            link.answered = now;
            if let ToLeader::Ack(length) = message {
                link.acked = link.acked.max(length);
            }
        }
        match message {
            ToLeader::Ack(_) => self.commit(),
            ToLeader::Pong(touched) => {
                for session in touched {
                    zookeeper.touch(session, now);
                }
            }
            ToLeader::Write(session, ones, origin) => self.propose(session, ones, Some(origin)),
            ToLeader::Close(session, origin) => self.close_session(session, Some(origin)),
            ToLeader::Revalidate(session, connection) => {
                let is_open = zookeeper.revalidate(session, connection, now);
                self.send_to_follower(server, ToFollower::Revalidated(connection, is_open));
            }
            ToLeader::Sync(origin) => self.sync(server, origin),
        }
    }

    /// A server's tree takes in this much of the log, and its clients hear of it.
    pub(super) fn apply(&mut self, server: usize, length: usize) {
        loop {
            let zookeeper = self.zookeeper();
            let this = &mut zookeeper.servers[server];
            if this.applied >= length {
                return;
            }
            let entry = std::sync::Arc::clone(&zookeeper.log[this.applied]);
            this.applied += 1;
            let mut fired = Vec::new();
            let mut closed = None;
            for one in &entry.ones {
                let done = this.tree.apply(entry.mark, one);
                if let (Some(path), Ok(_)) = (one.changes(), &done) {
                    let (now, wait) = std::mem::take(&mut this.watches)
                        .into_iter()
                        .partition(|(known, ..)| known == path);
                    this.watches = wait;
                    let now: Vec<(String, u64, u64)> = now;
                    fired.extend(now);
                }
                if let One::Close { session } = one {
                    closed = Some(*session);
                }
                if let Err(code) = done {
                    let what = format!("server {server} could not apply {one:?}: {code:?}");
                    return self.fail("the model", || what);
                }
            }
            for (_, watch, connection) in fired {
                self.fire(connection, watch);
            }
            let here = |state: &mut Self, origin: Origin| {
                let known = state.zookeeper().connections.get(&origin.connection);
                known.is_some_and(|known| known.server == server)
            };
            if let Some(origin) = entry.origin
                && here(self, origin)
            {
                match &entry.reply {
                    Reply::Opened(session) => self.opened(origin.connection, *session),
                    reply => self.answered(origin, reply.clone()),
                }
            }
            if let Some(session) = closed {
                self.disconnect(
                    |known| known.server == server && known.session == session,
                    false,
                );
            }
        }
    }

    /// A server becomes a follower of the leader.
    pub(super) fn join(&mut self, server: usize) {
        let now = self.now;
        let zookeeper = self.zookeeper();
        let Some(leader) = zookeeper.leader else {
            return;
        };
        let is_there = zookeeper.servers[leader].is_whole() && zookeeper.servers[server].is_whole();
        if leader == server || zookeeper.servers[server].link.is_some() || !is_there {
            return;
        }
        zookeeper.last_link += 1;
        let (length, committed) = (zookeeper.log.len(), zookeeper.committed);
        let number = zookeeper.last_link;
        let this = &mut zookeeper.servers[server];
        this.logged = length;
        this.touched.clear();
        this.watches.clear();
        this.link = Some(Link {
            number,
            last: [now; 2],
            last_ping: now,
            heard: now,
            answered: now,
            acked: 0,
        });
        self.apply(server, committed);
        self.send_to_leader(server, ToLeader::Ack(length));
    }

    /// A follower and its leader give each other up; the follower's clients are sent away.
    pub(super) fn unlink(&mut self, server: usize, silently: bool) {
        let this = &mut self.zookeeper().servers[server];
        this.link = None;
        this.watches.clear();
        this.touched.clear();
        self.disconnect(|known| known.server == server, silently);
    }

    /// There is no leader any more.
    pub(super) fn depose(&mut self) {
        let zookeeper = self.zookeeper();
        if let Some(leader) = zookeeper.leader.take() {
            zookeeper.syncs.clear();
            self.unlink(leader, false);
            for server in 0..SERVERS {
                self.unlink(server, false);
            }
        }
    }

    /// The server with the longest log becomes the leader, if a majority can agree.
    pub(super) fn elect(&mut self) {
        let now = self.now;
        let zookeeper = self.zookeeper();
        zookeeper.elects = false;
        let whole: Vec<_> = (0..SERVERS)
            .filter(|&server| zookeeper.servers[server].is_whole())
            .collect();
        let longest = whole
            .iter()
            .map(|&server| zookeeper.servers[server].logged)
            .max();
        if whole.len() <= SERVERS / 2 || zookeeper.leader.is_some() {
            return;
        }
        let is_longest = |server: &usize| Some(zookeeper.servers[*server].logged) == longest;
        let able: Vec<_> = whole.iter().copied().filter(is_longest).collect();
        let leader = able[zookeeper.dice.below(able.len())];
        let length = zookeeper.servers[leader].logged;
        if length < zookeeper.committed {
            return self.fail("the model", || "a committed write was forgotten".to_owned());
        }
        let is_forgetful = length < zookeeper.log.len();
        zookeeper.log.truncate(length);
        for server in &mut zookeeper.servers {
            server.logged = server.logged.min(length);
        }
        zookeeper.epoch += 1;
        zookeeper.counter = 0;
        zookeeper.alone = 0;
        zookeeper.leader = Some(leader);
        let epoch = zookeeper.epoch;
        self.log
            .note(now, "elect", [leader as u64, epoch as u64, length as u64]);
        let zookeeper = self.zookeeper();
        // The rest is committed when a follower has it.
        let this = &zookeeper.servers[leader];
        let mut head = this.tree.clone();
        for entry in &zookeeper.log[this.applied..] {
            for one in &entry.ones {
                let done = head.apply(entry.mark, one);
                debug_assert!(done.is_ok(), "{one:?}: {done:?}");
            }
        }
        zookeeper.head = head;
        zookeeper.recount(now);
        if epoch > 1 {
            self.coverage.sometimes("a new leader was elected");
        }
        if is_forgetful {
            self.coverage
                .sometimes("a write without a majority was forgotten");
        }
        self.ping(epoch);
        self.expire(epoch);
    }

    /// Followers that hear nothing look for a leader; servers without one join it, or elect one.
    pub(super) fn check_peers(&mut self) {
        let now = self.now;
        let zookeeper = self.zookeeper();
        let tick = zookeeper.tick;
        if now > zookeeper.stops_at {
            return;
        }
        for server in 0..SERVERS {
            let link = self.zookeeper().servers[server].link.as_ref();
            if link.is_some_and(|link| link.heard + SYNC_LIMIT * tick < now) {
                self.unlink(server, false);
            }
            let zookeeper = self.zookeeper();
            if zookeeper.leader.is_some() && zookeeper.servers[server].link.is_none() {
                let pause = zookeeper.dice.ms(1.0, 200.0);
                self.later(pause, move |state| state.join(server));
            }
        }
        self.depose_if_passed_over();
        let zookeeper = self.zookeeper();
        if zookeeper.leader.is_none() && !zookeeper.elects {
            zookeeper.elects = true;
            let pause = zookeeper.dice.ms(50.0, 1_500.0);
            self.later(pause, Self::elect);
        }
        self.later(tick / 2, Self::check_peers);
    }

    /// A leader that nobody hears is passed over by a majority that can hear each other.
    fn depose_if_passed_over(&mut self) {
        let zookeeper = self.zookeeper();
        let Some(leader) = zookeeper.leader else {
            return;
        };
        let others = || {
            zookeeper
                .servers
                .iter()
                .enumerate()
                .filter(|(server, _)| *server != leader)
        };
        let is_alone = others().all(|(_, server)| server.link.is_none());
        if is_alone
            && others().all(|(_, server)| server.is_whole())
            && !zookeeper.servers[leader].is_whole()
        {
            self.depose();
        }
    }
}
