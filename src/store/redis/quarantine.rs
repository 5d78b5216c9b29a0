//! Delayed restart, done by the clients: a server that may have forgotten locks grants nothing until the last of them has
//! ended by the clocks of their holders, which is at most `max_ttl` later.
//!
//! A marker key holds the incarnation of the server that granted last: its run, and the id of its data, which is new with each start
//! and each promotion. The script that arms the counter of tokens, without which nothing is granted, reads the marker first.
//!
//! | the marker | means | quarantine |
//! |---|---|---|
//! | names this incarnation | nothing was forgotten | the rest of one that has begun; begun anew if that is longer than `max_ttl`, since the clock was set back |
//! | names another | restarted (perhaps from an old snapshot), or a replica was promoted, or another server or database replaced ours | `max_ttl` |
//! | the same, in a cluster, at a node that was no replica and is older than `max_ttl` | the slot was moved here | none |
//! | is missing, and this store saw it | the data were flushed, or lost in a restart | `max_ttl` |
//! | is missing, and the server was flushed in this run, or was a replica | perhaps forgotten with all other data | `max_ttl`; in a cluster only if that is not known to be [long ago](super::cluster) |
//! | is missing, and the server is younger than `max_ttl` | the same | the rest of `max_ttl` since the start |
//! | is missing, on an older server | nobody used this prefix yet | none |
//!
//! The age of a server is its uptime, and the time since this connection was made. A master without replicas forgets after
//! `repl-backlog-ttl` that it was a replica, so where that is not longer than `max_ttl`, the uptime does not count. The uptime is that
//! of a wall clock. It does not count either if the server can hardly have worked for so long, as one that began with a clock that
//! was hours behind.
//!
//! What a client read at its connect may be old by the time of its first attempt. So the script reads the server's incarnation again,
//! and if it finds the marker wrong, its count of flushes too. If it differs from the one
//! that the client used, nothing is granted, and the client connects and decides again.
//!
//! Not noticed:
//!
//! - a flush before statistics were reset (`CONFIG RESETSTAT`), by a client that was not connected before it;
//! - a restart that lost the marker, of a busy server whose clock was behind and is set right within the first `max_ttl`, by a client
//!   that was not connected before it;
//! - that a server was deposed and promoted again, by a client whose connection outlasted both and which sent nothing in
//!   between, until another client sends something (Sentinel closes such connections);
//! - a database that is swapped for one whose marker is of the same incarnation;
//! - a deletion of single keys, for which the operator is responsible.
//!
//! A master gets a new id of its data when the first replica attaches to it (`redis-cli --rdb` does so too), and when all were away for
//! `repl-backlog-ttl`. Each costs one quarantine. A server that
//! hides its run id is quarantined when there is no marker; a restart from an old snapshot is not noticed there.

use std::time::Duration;

use super::connection::Server;

/// How long nothing is granted, for the two ways in which the marker can be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Quarantine {
    /// The marker names another incarnation.
    pub(super) if_other: Duration,
    /// There is no marker.
    pub(super) if_none: Duration,
}

/// What is known of a server beside what it reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// For how long at least it has been what it is.
    pub(super) age: Duration,
    /// The same, as seen by any client of a cluster. Zero elsewhere, and where `age` is enough.
    pub(super) same_for: Duration,
    /// This store saw the marker, if it is missing now.
    pub(super) is_missed: bool,
    /// A marker of another server may have come here with its slot.
    pub(super) has_slots: bool,
}

impl Quarantine {
    /// Decides by what the server reported.
    ///
    /// A replica that was promoted long ago is trusted with a slot that nobody used yet, but not with a marker of another
    /// server: that one may have granted until a moment ago.
    pub(super) fn of(server: &Server, past: &Past, max_ttl: Duration) -> Self {
        let since_change = max_ttl.saturating_sub(past.same_for);
        let since_start = since_change.min(max_ttl.saturating_sub(past.age));
        let may_be_promoted = server.was_replica || server.remembers <= max_ttl;
        let if_other = if !past.has_slots || may_be_promoted {
            max_ttl
        } else if server.was_flushed() {
            // A database with a marker of its own may have replaced ours.
            since_change
        } else {
            since_start
        };
        let if_none = if past.is_missed || server.run_id.is_none() {
            max_ttl
        } else if server.was_flushed() || server.was_replica {
            since_change
        } else {
            since_start
        };
        Self { if_other, if_none }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_TTL: Duration = Duration::from_secs(30);

    const SERVER: Server = Server {
        run_id: Some(String::new()),
        incarnation: None,
        uptime: None,
        was_replica: false,
        remembers: Duration::MAX,
        flushes: 0,
        replicas: 0,
        copies_scripts: false,
    };

    fn aged(seconds: u64) -> Past {
        Past {
            age: Duration::from_secs(seconds),
            same_for: Duration::ZERO,
            is_missed: false,
            has_slots: false,
        }
    }

    fn seen_for(seconds: u64) -> Past {
        Past {
            same_for: Duration::from_secs(seconds),
            ..in_a_slot(aged(1_000))
        }
    }

    fn in_a_slot(past: Past) -> Past {
        Past {
            has_slots: true,
            ..past
        }
    }

    fn missed(past: Past) -> Past {
        Past {
            is_missed: true,
            ..past
        }
    }

    fn seconds(server: &Server, past: Past) -> (u64, u64) {
        let quarantine = Quarantine::of(server, &past, MAX_TTL);
        (quarantine.if_other.as_secs(), quarantine.if_none.as_secs())
    }

    #[test]
    fn a_marker_of_another_server_costs_max_ttl_however_old_this_one_is() {
        assert_eq!(seconds(&SERVER, aged(10)).0, 30);
        assert_eq!(seconds(&SERVER, aged(1_000)).0, 30);
    }

    #[test]
    fn a_marker_that_came_with_its_slot_costs_the_rest_of_max_ttl_since_the_start_of_its_new_node()
    {
        assert_eq!(seconds(&SERVER, in_a_slot(aged(10))).0, 20);
        assert_eq!(seconds(&SERVER, in_a_slot(aged(31))).0, 0);
    }

    #[test]
    fn a_server_without_a_marker_costs_the_rest_of_max_ttl_since_its_start() {
        assert_eq!(seconds(&SERVER, aged(10)).1, 20);
        assert_eq!(seconds(&SERVER, aged(31)).1, 0);
    }

    #[test]
    fn a_promoted_replica_is_as_young_as_its_promotion() {
        let promoted = Server {
            was_replica: true,
            ..SERVER
        };
        assert_eq!(seconds(&promoted, in_a_slot(aged(1_000))), (30, 30));
        assert_eq!(seconds(&promoted, aged(1_000)), (30, 30));
    }

    #[test]
    fn a_node_that_may_have_forgotten_that_it_was_a_replica_trusts_no_marker_of_another() {
        let forgetful = Server {
            remembers: MAX_TTL,
            ..SERVER
        };
        assert_eq!(seconds(&forgetful, in_a_slot(aged(1_000))).0, 30);
    }

    #[test]
    fn a_marker_that_was_seen_and_is_gone_costs_max_ttl_on_any_server() {
        assert_eq!(seconds(&SERVER, missed(aged(1_000))).1, 30);
        assert_eq!(seconds(&SERVER, missed(seen_for(1_000))).1, 30);
    }

    #[test]
    fn what_happened_to_a_server_long_ago_costs_nothing() {
        let flushed = Server {
            flushes: 1,
            ..SERVER
        };
        let promoted = Server {
            was_replica: true,
            ..SERVER
        };
        assert_eq!(seconds(&flushed, aged(1_000)).1, 30);
        for changed in [&flushed, &promoted] {
            assert_eq!(seconds(changed, seen_for(10)).1, 20);
            assert_eq!(seconds(changed, seen_for(30)).1, 0);
        }
        assert_eq!(seconds(&flushed, seen_for(30)).0, 0);
        // A server that may have granted elsewhere until a moment ago.
        assert_eq!(seconds(&promoted, seen_for(1_000)).0, 30);
    }

    #[test]
    fn a_server_that_hides_everything_is_not_trusted() {
        let hidden = Server::default();
        assert_eq!(seconds(&hidden, aged(1_000)), (30, 30));
    }
}
