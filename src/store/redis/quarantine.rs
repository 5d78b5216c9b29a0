//! Delayed restart, done by the clients: a server that may have forgotten locks grants nothing until the last of them has
//! ended by the clocks of their holders, which is at most `max_ttl` later.
//!
//! A marker key holds the run id of the server that granted last, and the promotion if it was a replica in that run. The
//! script that arms the counter of tokens, without which nothing is granted, reads the marker first.
//!
//! | the marker | means | quarantine |
//! |---|---|---|
//! | names this run | nothing was forgotten | none |
//! | names another run, which persisted every write, as this one does | nothing was forgotten | none except one that has begun; all of `max_ttl` after a promotion or a flush, and as in the next row where another server may replace this one |
//! | names another run, or promotion | restarted (perhaps from an old snapshot), or a replica was promoted, or another database replaced ours | the rest of `max_ttl` since the start; all of it after a promotion or a flush |
//! | is missing, and this store saw it in this run, or the server was flushed in this run | the data were flushed | `max_ttl`; in a cluster only if that is not known to be [long ago](super::cluster) |
//! | is missing, and the server is younger than `max_ttl` | perhaps forgotten with all other data | the rest of `max_ttl` since the start |
//! | is missing, on an older server | nobody used this prefix yet | none |
//!
//! What a client read at its connect may be old by the time of its first attempt. So the script reads the server's run again,
//! and if it finds the marker wrong, its account of flushes and copies too. If it differs from the one
//! that the client used, nothing is granted, and the client connects and decides again.
//!
//! Not noticed:
//!
//! - a flush before statistics were reset (`CONFIG RESETSTAT`), by a client that was not connected before it;
//! - that a server was deposed and promoted again, by a client whose connection outlasted both and which sent nothing in
//!   between, until another client sends something (Sentinel closes such connections);
//! - a database that is swapped for one whose marker is of the same run;
//! - a deletion of single keys, for which the operator is responsible;
//! - on a single server that persists every write: that it persisted less at the end of the run that wrote the marker, that it
//!   was a replica in a run in which nobody used it, or that an older copy replaced its data.
//!
//! A server that persists every write forgets nothing by a restart, and keeps its marker, which shows that the run before did
//! so too. One without a marker may have lost its log with its disk, or had none before, so its age counts. A server that
//! hides its run id is quarantined when there is no marker; a restart from an old snapshot is not noticed there.

use std::time::Duration;

use super::connection::Server;

/// How long nothing is granted, for the two ways in which the marker can be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Quarantine {
    /// The marker names another run.
    pub(super) if_other: Duration,
    /// There is no marker.
    pub(super) if_none: Duration,
    /// Every write is on disk, none came from another server, and none was flushed: another run of this server of which that
    /// is true too has kept all its data.
    pub(super) is_durable: bool,
}

impl Quarantine {
    /// Decides by what the server reported. `uptime`: its age now. `is_missed`: this store saw the marker that is missing now. `same_for`: for how
    /// long at least the server has been what it is, as seen by any client.
    ///
    /// A replica that was promoted long ago is trusted with a slot that nobody used yet, but not with a marker of another
    /// run. A marker and a grant that were written at one instant can be lost together when the server dies. An earlier master,
    /// whose copy still has the marker of its own run, would know of neither.
    pub(super) fn of(
        server: &Server,
        uptime: Option<Duration>,
        max_ttl: Duration,
        is_missed: bool,
        same_for: Duration,
    ) -> Self {
        let since_change = max_ttl.saturating_sub(same_for);
        let since_start = since_change.min(max_ttl.saturating_sub(uptime.unwrap_or_default()));
        let if_other = if server.was_replica {
            max_ttl
        } else if server.was_flushed {
            // A database with a marker of its own may have replaced ours.
            since_change
        } else {
            since_start
        };
        let if_none = if is_missed || server.run_id.is_none() {
            max_ttl
        } else if server.was_flushed || server.was_replica {
            since_change
        } else {
            since_start
        };
        Self {
            if_other,
            if_none,
            is_durable: server.durable && !server.was_replica && !server.was_flushed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_TTL: Duration = Duration::from_secs(30);

    fn up_for(seconds: u64) -> Server {
        Server {
            run_id: Some("a".into()),
            uptime: Some(Duration::from_secs(seconds)),
            ..Server::default()
        }
    }

    fn of(server: &Server, is_missed: bool, same_for: u64) -> Quarantine {
        let same_for = Duration::from_secs(same_for);
        Quarantine::of(server, server.uptime, MAX_TTL, is_missed, same_for)
    }

    fn seconds(server: &Server, is_missed: bool) -> (u64, u64) {
        seconds_after(server, is_missed, 0)
    }

    fn seconds_after(server: &Server, is_missed: bool, same_for: u64) -> (u64, u64) {
        let quarantine = of(server, is_missed, same_for);
        (quarantine.if_other.as_secs(), quarantine.if_none.as_secs())
    }

    #[test]
    fn a_restart_costs_the_rest_of_max_ttl_since_the_start() {
        assert_eq!(seconds(&up_for(10), false), (20, 20));
        assert_eq!(seconds(&up_for(31), false), (0, 0));
    }

    #[test]
    fn a_promoted_replica_is_as_young_as_its_promotion() {
        let promoted = Server {
            was_replica: true,
            ..up_for(1_000)
        };
        assert_eq!(seconds(&promoted, false), (30, 30));
    }

    #[test]
    fn a_copy_is_not_whole_because_it_is_on_disk() {
        let promoted = Server {
            was_replica: true,
            durable: true,
            ..up_for(1_000)
        };
        assert_eq!(seconds(&promoted, false), (30, 30));
        assert!(!of(&promoted, false, 0).is_durable);
    }

    #[test]
    fn a_flush_costs_max_ttl_on_any_server() {
        assert_eq!(seconds(&up_for(1_000), true), (0, 30));
        let flushed = Server {
            was_flushed: true,
            durable: true,
            ..up_for(1_000)
        };
        assert_eq!(seconds(&flushed, false), (30, 30));
        assert!(!of(&flushed, false, 0).is_durable);
    }

    #[test]
    fn what_happened_to_a_server_long_ago_costs_nothing() {
        let changed = Server {
            was_replica: true,
            was_flushed: true,
            ..up_for(1_000)
        };
        assert_eq!(seconds_after(&changed, false, 10).1, 20);
        assert_eq!(seconds_after(&changed, false, 30).1, 0);
        // A marker that was there and is missing: the old event did not remove it.
        assert_eq!(seconds_after(&changed, true, 30).1, 30);
    }

    #[test]
    fn a_marker_of_another_run_costs_max_ttl_however_long_ago_a_replica_was_promoted() {
        let promoted = Server {
            was_replica: true,
            ..up_for(1_000)
        };
        assert_eq!(seconds_after(&promoted, false, 1_000), (30, 0));
    }

    #[test]
    fn a_server_that_was_young_at_the_connect_grows_old() {
        assert_eq!(seconds_after(&up_for(1), false, 10), (20, 20));
        assert_eq!(seconds_after(&up_for(1), false, 30), (0, 0));
        assert_eq!(seconds_after(&up_for(20), false, 10), (10, 10));
    }

    #[test]
    fn a_server_that_persists_every_write_is_as_young_as_any_without_the_marker_of_such_a_run() {
        let durable = Server {
            durable: true,
            ..up_for(1)
        };
        assert_eq!(seconds(&durable, false), (29, 29));
        assert!(of(&durable, false, 0).is_durable);
    }

    #[test]
    fn a_server_that_hides_everything_is_not_trusted() {
        assert_eq!(seconds(&Server::default(), false), (30, 30));
    }
}
