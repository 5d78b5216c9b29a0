//! The leader: it gives writes their order, commits what a majority has, and counts sessions.

use std::sync::Arc;

use crate::state::State;
use crate::truth::{in_truth, on_clock};

use super::connections::{Origin, Reply};
use super::peers::ToFollower;
use super::tree::{Mark, One};
use super::{Ensemble, SERVERS};

/// One write, as every server applies it.
pub(super) struct Entry {
    pub(super) mark: Mark,
    pub(super) ones: Vec<One>,
    pub(super) reply: Reply,
    pub(super) origin: Option<Origin>,
}

/// What the leader knows about a session.
#[derive(Debug)]
pub(super) struct Record {
    timeout: u64,
    /// By the leader's clock.
    pub(super) expiry: u64,
    /// The connection that may write for it.
    owner: u64,
}

/// 2023, in milliseconds since 1970.
const WALL: i64 = 1_700_000_000_000;

impl Ensemble {
    fn clock(&self, now: u64) -> u64 {
        let ppm = self.leader.map_or(0, |leader| self.servers[leader].ppm);
        on_clock(now, ppm)
    }

    /// The end of a session that is heard of now: rounded up to the next tick.
    fn expiry(&self, timeout: u64, now: u64) -> u64 {
        ((self.clock(now) + timeout) / self.tick + 1) * self.tick
    }

    /// The leader learns that a session is alive.
    pub(super) fn touch(&mut self, session: i64, now: u64) {
        if let Some(record) = self.records.get(&session) {
            let expiry = self.expiry(record.timeout, now);
            if let Some(record) = self.records.get_mut(&session) {
                record.expiry = record.expiry.max(expiry);
            }
        }
    }

    /// A session comes with another connection. False if there is no such session any more.
    pub(super) fn revalidate(&mut self, session: i64, connection: u64, now: u64) -> bool {
        self.touch(session, now);
        match self.records.get_mut(&session) {
            Some(record) => {
                record.owner = connection;
                true
            }
            None => false,
        }
    }
}

impl State {
    /// The leader gets a write. Each has its place in the log, also one that is refused.
    pub(super) fn propose(&mut self, session: i64, ones: Vec<One>, origin: Option<Origin>) {
        let now = self.now;
        let zookeeper = self.zookeeper();
        let clock = zookeeper.clock(now);
        let record = zookeeper.records.get(&session);
        let is_moved = origin
            .zip(record)
            .is_some_and(|(origin, record)| record.owner != origin.connection);
        if is_moved {
            // Its connection is one that the client has left.
            return self
                .coverage
                .sometimes("a request came over a connection that was left");
        }
        zookeeper.counter += 1;
        let mark = Mark {
            zxid: zookeeper.epoch << 32 | zookeeper.counter,
            time: WALL + (clock / 1_000_000) as i64,
            session,
        };
        let is_open = record.is_some() || session == 0 || matches!(&*ones, [One::Open { .. }]);
        let (ones, reply) = if is_open {
            zookeeper.execute(mark, ones)
        } else {
            (Vec::new(), Reply::Expired)
        };
        for one in &ones {
            match *one {
                One::Open { session, timeout } => {
                    let expiry = zookeeper.expiry(timeout, now);
                    let owner = origin.map_or(0, |origin| origin.connection);
                    let record = Record {
                        timeout,
                        expiry,
                        owner,
                    };
                    zookeeper.records.insert(session, record);
                }
                One::Close { session } => drop(zookeeper.records.remove(&session)),
                _ => {}
            }
        }
        zookeeper.log.push(Arc::new(Entry {
            mark,
            ones,
            reply,
            origin,
        }));
        let length = zookeeper.log.len();
        if let Some(leader) = zookeeper.leader {
            zookeeper.servers[leader].logged = length;
        }
        let number = length as u64;
        self.log
            .note(now, "propose", [mark.zxid as u64, session as u64, number]);
        for server in 0..SERVERS {
            self.send_to_follower(server, ToFollower::Propose(length));
        }
    }

    /// A majority has this much of the log.
    pub(super) fn commit(&mut self) {
        let now = self.now;
        let zookeeper = self.zookeeper();
        let Some(leader) = zookeeper.leader else {
            return;
        };
        let acked = zookeeper
            .servers
            .iter()
            .filter_map(|server| server.link.as_ref());
        let most = acked.map(|link| link.acked).max().unwrap_or_default();
        if most <= zookeeper.committed {
            return;
        }
        zookeeper.committed = most;
        self.log.note(now, "commit", [most as u64, 0, 0]);
        self.apply(leader, most);
        for server in 0..SERVERS {
            self.send_to_follower(server, ToFollower::Commit(most));
        }
        self.answer_syncs();
    }

    /// A client waits until its server has everything that the leader has now.
    pub(super) fn sync(&mut self, server: usize, origin: Origin) {
        let zookeeper = self.zookeeper();
        let length = zookeeper.log.len();
        zookeeper.syncs.push((length, server, origin));
        self.answer_syncs();
    }

    fn answer_syncs(&mut self) {
        let zookeeper = self.zookeeper();
        let committed = zookeeper.committed;
        let (due, wait) = std::mem::take(&mut zookeeper.syncs)
            .into_iter()
            .partition(|(length, _, _)| *length <= committed);
        zookeeper.syncs = wait;
        let due: Vec<(usize, usize, Origin)> = due;
        for (_, server, origin) in due {
            if self.zookeeper().leader == Some(server) {
                self.synced(origin);
            } else {
                self.send_to_follower(server, ToFollower::Synced(origin));
            }
        }
    }

    /// Twice in a tick the leader pings its followers, and gives up those that are silent.
    pub(super) fn ping(&mut self, epoch: i64) {
        let now = self.now;
        let zookeeper = self.zookeeper();
        if zookeeper.epoch != epoch || zookeeper.leader.is_none() || now > zookeeper.stops_at {
            return;
        }
        let tick = zookeeper.true_tick();
        for server in 0..SERVERS {
            let is_silent =
                |link: &super::peers::Link| link.answered + super::SYNC_LIMIT * tick < now;
            let link = self.zookeeper().servers[server].link.as_ref();
            if link.is_some_and(is_silent) {
                self.unlink(server, false);
            }
            self.send_to_follower(server, ToFollower::Ping);
        }
        if self
            .zookeeper()
            .servers
            .iter()
            .all(|server| server.link.is_none())
        {
            let zookeeper = self.zookeeper();
            zookeeper.alone += 1;
            // Nobody follows it.
            if zookeeper.alone > 2 * super::SYNC_LIMIT {
                return self.depose();
            }
        } else {
            self.zookeeper().alone = 0;
        }
        self.later(tick / 2, move |state| state.ping(epoch));
    }

    /// At each of its ticks the leader closes the sessions that are over.
    pub(super) fn expire(&mut self, epoch: i64) {
        let now = self.now;
        let zookeeper = self.zookeeper();
        if zookeeper.epoch != epoch || now > zookeeper.stops_at {
            return;
        }
        let Some(leader) = zookeeper.leader else {
            return;
        };
        let (clock, ppm, tick) = (
            zookeeper.clock(now),
            zookeeper.servers[leader].ppm,
            zookeeper.tick,
        );
        let over = zookeeper
            .records
            .iter()
            .filter(|(_, record)| record.expiry <= clock);
        let over: Vec<_> = over.map(|(session, _)| *session).collect();
        for session in over {
            self.coverage.sometimes("a session expired");
            self.log.note(now, "expire", [session as u64, 0, 0]);
            self.close_session(session, None);
        }
        let next = (clock / tick + 1) * tick - clock;
        self.later(in_truth(next, ppm), move |state| state.expire(epoch));
    }

    /// A session and all its nodes end, in one write.
    pub(super) fn close_session(&mut self, session: i64, origin: Option<Origin>) {
        let paths = self.zookeeper().head.ephemerals(session);
        let delete = |path| One::Delete {
            path,
            version: None,
        };
        let mut ones: Vec<_> = paths.into_iter().map(delete).collect();
        ones.push(One::Close { session });
        self.propose(session, ones, origin);
    }

    /// Containers that are empty are deleted, now and then.
    pub(super) fn reap(&mut self) {
        let pause = self.zookeeper().dice.ms(2_000.0, 9_000.0);
        if self.now > self.zookeeper().stops_at {
            return;
        }
        if self.zookeeper().leader.is_some() {
            for path in self.zookeeper().head.empty_containers() {
                self.coverage.sometimes("a container was deleted");
                self.propose(
                    0,
                    vec![One::Delete {
                        path,
                        version: None,
                    }],
                    None,
                );
            }
        }
        self.later(pause, Self::reap);
    }
}

impl Ensemble {
    /// What a write does to the newest tree: all of it, or nothing.
    fn execute(&mut self, mark: Mark, ones: Vec<One>) -> (Vec<One>, Reply) {
        let before = (ones.len() > 1).then(|| self.head.clone());
        let mut made = None;
        let mut deleted = Vec::new();
        for (index, one) in ones.iter().enumerate() {
            if let One::Delete { path, .. } = one {
                deleted.extend(self.head.czxid_of(path));
            }
            match self.head.apply(mark, one) {
                Ok(known) => made = made.or(known),
                Err(code) => {
                    if let Some(before) = before {
                        self.head = before;
                    }
                    return (Vec::new(), Reply::Refused(index, code));
                }
            }
        }
        if made.is_some() {
            self.barriers
                .extend(deleted.into_iter().map(|czxid| (czxid, mark.zxid)));
        }
        let reply = match (&*ones, made) {
            ([One::Open { session, .. }], _) => Reply::Opened(*session),
            ([One::Create { .. }], Some(made)) => Reply::Made(made),
            _ => Reply::Done(mark.time),
        };
        (ones, reply)
    }

    pub(super) fn recount(&mut self, now: u64) {
        let sessions = self.head.sessions.clone();
        self.records = sessions
            .into_iter()
            .map(|(session, timeout)| {
                let expiry = self.expiry(timeout, now);
                (
                    session,
                    Record {
                        timeout,
                        expiry,
                        owner: 0,
                    },
                )
            })
            .collect();
    }
}
