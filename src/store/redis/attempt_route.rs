//! [`AttemptRoute`]: where an attempt is sent. Before it is sent, that server is asked for its run.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::{Passage, Route, Slot, same_for};
use super::connection::{Connection, ConnectionPool, Failure, Purpose, Session};
use super::names::Names;
use super::servers::Servers;
use crate::model::key::Key;

/// Where an attempt is sent.
#[derive(Debug)]
pub(super) enum AttemptRoute<'a> {
    /// To the only server.
    Straight(&'a ConnectionPool, Purpose),
    /// To the node that has the slot.
    Routed(Route<'a>),
}

impl<'a> AttemptRoute<'a> {
    pub(super) fn of(servers: &'a Servers, names: &Names, key: &Key, purpose: Purpose) -> Self {
        match servers {
            Servers::One(pool) => Self::Straight(pool, purpose),
            Servers::Many(cluster) => {
                let slot = Slot::of(names.lock(key));
                Self::Routed(cluster.route(slot, purpose, Passage::Waits))
            }
        }
    }

    /// `None`: a single server has no slots.
    pub(super) fn slot(&self) -> Option<Slot> {
        match self {
            Self::Straight(..) => None,
            Self::Routed(route) => Some(route.slot()),
        }
    }

    pub(super) async fn connection(&mut self) -> Result<Arc<Connection>, Failure> {
        match self {
            Self::Straight(pool, purpose) => pool.connection(*purpose).map_err(Failure::NotSent),
            Self::Routed(route) => route.connection().await,
        }
    }

    /// For how long at least a server that was a replica, or was flushed, has been what it is; asked until it is `most`. A
    /// single server is not asked: it has one marker, and so one quarantine.
    pub(super) async fn same_for(
        &self,
        session: &Session<'_>,
        names: &Names,
        most: Duration,
    ) -> Duration {
        match self {
            Self::Straight(..) => Duration::ZERO,
            Self::Routed(route) => same_for(route, session, names, most).await,
        }
    }

    /// Whether the attempt is made again, over the [connection](Self::connection) of then.
    pub(super) async fn follow(&mut self, failure: Failure) -> Result<(), Failure> {
        match self {
            Self::Straight(..) => Err(failure),
            Self::Routed(route) => route.follow(failure).await,
        }
    }
}
