//! [`Fault`]: what the nemesis does, and which faults each store has.

use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;

use crate::crew::Crew;
use crate::event::Point;
use crate::plan::StoreKind;
use crate::servers::{Are, Servers};
use crate::support::proxy::{Fate, Proxy};
use crate::support::zookeeper::Server;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// SIGSTOP of a worker at a point, or anywhere.
    Pause(Option<Point>),
    /// SIGKILL, the same.
    Kill(Option<Point>),
    /// The worker's link to every server.
    Cut(Cut, Option<Point>),
    /// SIGSTOP of so many servers.
    ServersPause(usize),
    /// kill -9 of so many servers, which are started again.
    ServersKill(usize),
    /// Every server, one after the other.
    Rolling,
    /// Every connection, by the server.
    Disconnect,
    /// Redis forgets its scripts.
    ForgetScripts,
    LeaderPause,
    LeaderKill,
    FollowerPause,
    FollowerKill,
    /// A follower from the other servers.
    FollowerCut,
    /// The primary is killed, and its standby promoted.
    Promotion,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cut {
    Both,
    /// Requests are held back, and delivered in the end.
    Requests,
    /// Answers are lost.
    Answers,
    /// Connections are closed.
    Reset,
}

/// The faults of a store, aimed.
pub fn menu(kind: StoreKind) -> Vec<Fault> {
    use Point::{Commit, Held, InCommit, InRelease};
    let mut menu = Vec::new();
    for point in [Commit, Held, InCommit, InRelease] {
        menu.push(Fault::Pause(Some(point)));
        menu.push(Fault::Kill(Some(point)));
    }
    if kind != StoreKind::Files {
        menu.extend([
            Fault::Cut(Cut::Both, Some(Held)),
            Fault::Cut(Cut::Requests, Some(Commit)),
            Fault::Cut(Cut::Answers, Some(Commit)),
            Fault::Cut(Cut::Reset, Some(Commit)),
        ]);
    }
    menu.extend(match kind {
        StoreKind::Redis => vec![
            Fault::ServersPause(1),
            Fault::ServersKill(1),
            Fault::Disconnect,
            Fault::ForgetScripts,
        ],
        StoreKind::Redlock => vec![
            Fault::ServersPause(2),
            Fault::ServersPause(3),
            Fault::ServersKill(1),
            Fault::ServersKill(2),
            Fault::Disconnect,
        ],
        StoreKind::ZooKeeper => vec![
            Fault::LeaderPause,
            Fault::LeaderKill,
            Fault::FollowerPause,
            Fault::FollowerKill,
            Fault::FollowerCut,
            Fault::Rolling,
        ],
        StoreKind::Postgres => vec![
            Fault::ServersPause(1),
            Fault::ServersKill(1),
            Fault::Disconnect,
        ],
        StoreKind::Files => vec![],
    });
    menu
}

impl Fault {
    /// The same, at a random moment.
    pub fn unaimed(self) -> Self {
        match self {
            Self::Pause(_) => Self::Pause(None),
            Self::Kill(_) => Self::Kill(None),
            Self::Cut(cut, _) => Self::Cut(cut, None),
            other => other,
        }
    }
}

/// From less than a TTL to more than two.
pub fn length(ttl: Duration, dice: &mut Rng) -> Duration {
    ttl.mul_f64(0.3 + 2.2 * dice.f64())
}

/// Lets the fault happen, and ends it. False if a worker never came to the point.
pub fn strike(
    fault: Fault,
    servers: &mut Servers,
    crew: &mut Crew,
    ttl: Duration,
    dice: &mut Rng,
) -> bool {
    let seat = dice.usize(0..crew.processes.len());
    let length = length(ttl, dice);
    let moment = Duration::from_millis(dice.u64(0..300));
    match fault {
        Fault::Pause(point) => {
            let is_there = match point {
                Some(point) => crew.stop_at(seat, point),
                None => {
                    crew.signal(seat, Signal::STOP);
                    true
                }
            };
            pause(length);
            crew.signal(seat, Signal::CONT);
            return is_there;
        }
        Fault::Kill(point) => {
            let is_there = point.is_none_or(|point| crew.stop_at(seat, point));
            pause(moment);
            crew.kill(seat);
            return is_there;
        }
        Fault::Cut(cut, point) => {
            let is_there = point.is_none_or(|point| crew.tell_at(seat, point));
            cut_off(&servers.links[seat], cut, length);
            return is_there;
        }
        Fault::Promotion => promote(servers),
        _ => {}
    }
    match &mut servers.are {
        Are::Redis(all) => on_redis(fault, all, length, dice),
        Are::ZooKeeper { ensemble, first } => match fault {
            Fault::LeaderPause => freeze(ensemble.leader(), length),
            Fault::LeaderKill => kill(ensemble.leader(), moment),
            Fault::FollowerPause => freeze(ensemble.followers()[0], length),
            Fault::FollowerKill => kill(ensemble.followers()[0], moment),
            Fault::FollowerCut => cut_off(first, Cut::Both, length),
            Fault::Rolling => {
                for server in &ensemble.servers {
                    kill(server, moment);
                    ensemble.wait_until_ready();
                }
            }
            _ => unreachable!("not a fault of ZooKeeper: {fault:?}"),
        },
        Are::Postgres { primary, .. } => match fault {
            Fault::ServersPause(_) => {
                primary.pause();
                pause(length);
                primary.resume();
            }
            Fault::ServersKill(_) => {
                primary.kill();
                pause(moment);
                primary.restart();
            }
            Fault::Disconnect => {
                primary.psql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'");
            }
            Fault::Promotion => {}
            _ => unreachable!("not a fault of PostgreSQL: {fault:?}"),
        },
        Are::Files => unreachable!("not a fault of files: {fault:?}"),
    }
    if let Are::ZooKeeper { ensemble, .. } = &servers.are {
        ensemble.wait_until_ready();
    }
    true
}

fn on_redis(
    fault: Fault,
    all: &mut [crate::support::redis::RedisServer],
    length: Duration,
    dice: &mut Rng,
) {
    dice.shuffle(all);
    match fault {
        Fault::ServersPause(count) => {
            all[..count].iter().for_each(|server| server.pause());
            pause(length);
            all[..count].iter().for_each(|server| server.resume());
        }
        Fault::ServersKill(count) => {
            all[..count].iter_mut().for_each(|server| server.kill());
            pause(length / 4);
            all[..count].iter_mut().for_each(|server| server.restart());
        }
        Fault::Disconnect => {
            for server in all {
                server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            }
        }
        Fault::ForgetScripts => {
            all[0].cli(&["SCRIPT", "FLUSH"]);
        }
        _ => unreachable!("not a fault of Redis: {fault:?}"),
    }
}

fn promote(servers: &mut Servers) {
    let Are::Postgres {
        primary,
        standby: Some(standby),
        is_promoted,
    } = &mut servers.are
    else {
        unreachable!("no standby");
    };
    primary.kill();
    standby.promote();
    *is_promoted = true;
}

fn freeze(server: &Server, length: Duration) {
    server.freeze();
    pause(length);
    server.thaw();
}

fn kill(server: &Server, moment: Duration) {
    server.kill();
    pause(moment);
    server.start_again();
}

fn cut_off(links: &[Proxy], cut: Cut, length: Duration) {
    let fate = Fate {
        hold_up: matches!(cut, Cut::Both | Cut::Requests),
        swallow_down: matches!(cut, Cut::Both | Cut::Answers),
        ..Fate::KIND
    };
    if cut != Cut::Reset {
        links.iter().for_each(|link| link.all(fate));
        pause(length);
        links.iter().for_each(|link| link.all(Fate::KIND));
    }
    // A connection that lost bytes is not used again.
    if cut != Cut::Requests {
        let wires = links.iter().flat_map(Proxy::wires);
        wires.for_each(|wire| wire.cut());
    }
}

/// Real servers and processes count real time.
pub fn pause(length: Duration) {
    std::thread::sleep(length);
}
