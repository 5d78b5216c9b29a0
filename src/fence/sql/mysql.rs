//! The fence in MariaDB 10.5 and newer, and in MySQL 8.0.16 and newer: plain statements, without
//! stored programs.
//!
//! An error of the server undoes its statement and aborts nothing: a `COMMIT` after a refused
//! [`ENTER`] or [`SEAL`] is applied. Send [`SEAL`] and `COMMIT` in one request (`multi
//! statements`), where nothing behind an error is executed, and after any error `ROLLBACK`, or
//! close the connection. `?` is a parameter; several statements in one text have a `;` between
//! them.
//!
//! Run on MariaDB 10.11. On MySQL it was not run.

use super::{Phase, Verdict};

/// The tables. It may be run again, in the database of the data.
pub const SCHEMA: &str = include_str!("mysql.sql");

/// Whether a commit that was answered survives a crash of the server: 1, or 0. It is a setting of
/// the whole server; refuse the server if it is 0.
pub const IS_DURABLE: &str = "SELECT @@innodb_flush_log_at_trx_commit = 1 \
     AND (@@log_bin = 0 OR @@sync_binlog = 1) AS is_durable";

/// Raises the fence of a key: (key, token, token). In a transaction of its own, with [`SEEN`] and
/// `COMMIT` behind it; only the answer to that `COMMIT` is proof. It waits for every transaction
/// that entered: error 1205 after `innodb_lock_wait_timeout` is "not yet". Every raise writes: a
/// transaction that wrote nothing is answered before the log is on disk.
pub const RAISE: &str = "INSERT INTO leasehold_fence (lock_key, token) VALUES (?, ?) \
     ON DUPLICATE KEY UPDATE token = GREATEST(token, ?), raises = raises + 1";

/// The fence of a key: (key). After [`RAISE`] a larger token than one's own is a newer holder's.
pub const SEEN: &str = "SELECT token FROM leasehold_fence WHERE lock_key = ?";

/// Begins the transaction. Three statements; [`END`] takes the settings back. Once: after a
/// `ROLLBACK` of yours send `START TRANSACTION` alone. A deadlock (1213) rolls back everything *and
/// frees the fence's row*: with `autocommit` each later statement of the work would be committed by
/// itself. And with `completion_type` a `ROLLBACK` of the work would begin a transaction that may
/// write.
pub const BEGIN: &str = "SET @leasehold_autocommit = @@SESSION.autocommit, \
     @leasehold_completion = @@SESSION.completion_type, @leasehold_read_only = \
     /*M! @@SESSION.tx_read_only */ /*!80000 @@SESSION.transaction_read_only */; \
     SET SESSION autocommit = 0, SESSION completion_type = 0; START TRANSACTION";

/// Enters the fence of a key, and claims the name of the commit: (txn_id, key, token, token, what
/// is left of the lease in microseconds, key). Once for each key, in order of bytes, directly after
/// [`BEGIN`].
///
/// It locks the fence's row to the end of the transaction, shared, and reads the newest row at
/// every isolation level. It fails with 4025 (MySQL: 3819) unless the fence is at this very token.
pub const ENTER: &str = "/*M! SET STATEMENT check_constraint_checks = 1 FOR */ \
     INSERT INTO leasehold_txn (txn_id, lock_key, token, state, until, conn, at) \
     SELECT ?, ?, ?, IF(MAX(f.token) = ?, 2, 8), \
     TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?, \
     CONNECTION_ID(), UTC_TIMESTAMP(6) \
     FROM leasehold_fence f WHERE f.lock_key = ? LOCK IN SHARE MODE";

/// Before [`ENTER`], where a shared lock is not enough: (key, token). In XA transactions, because
/// MariaDB frees shared locks at `XA PREPARE`, and where several servers take writes (Galera, Group
/// Replication), because they compare what was written. Transactions under one token then go one
/// after another.
pub const ENTER_EXCLUSIVE: &str =
    "UPDATE leasehold_fence SET raises = raises + 1 WHERE lock_key = ? AND token = ?";

/// After the last [`ENTER`], before the work. Two statements. What ends a transaction ends its
/// savepoints: DDL, `BEGIN`, `COMMIT`, a deadlock, another connection. And where the work ends the
/// transaction, what it sends next cannot write, unless it asks for that: `ROLLBACK AND CHAIN`,
/// `START TRANSACTION READ WRITE`, `SET TRANSACTION READ WRITE`.
pub const MARK: &str = "SAVEPOINT leasehold_work; SET SESSION TRANSACTION READ ONLY";

/// The server's clock, in microseconds since 1970. Ask after [`MARK`], and add what is left of the
/// lease *when the answer has arrived*: that is the end that [`SEAL`] takes. It errs early.
pub const NOW: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now";

/// After work that is not to be committed. Without an error, everything of the work is undone; then
/// `ROLLBACK`. With any error (1305), or without an answer: close the connection and resolve.
pub const WITNESS: &str = "ROLLBACK TO SAVEPOINT leasehold_work";

/// The last statements before `COMMIT`, in one request with it: (txn_id, the end of the lease by
/// the server's clock, txn_id). Three statements. The first fails with 1305 if the transaction that
/// entered is over, the third with 4025 (MySQL: 3819) if the lease is, if the clock was set back
/// behind [`ENTER`], or if names as old as this one were deleted. The third changes a row for each
/// key; where it does not, the work has left the database (`USE`), and the commit is in doubt.
///
/// It compares the time at which it begins: where it waits (`FLUSH TABLES WITH READ LOCK`), it
/// passes after the lease, and only the fence's row orders the commit.
///
/// The second locks nothing: what was deleted before [`ENTER`] is in every snapshot since.
pub const SEAL: &str = "RELEASE SAVEPOINT leasehold_work; \
     SELECT EXISTS (SELECT 1 FROM leasehold_txn v JOIN leasehold_swept s \
     ON s.lock_key = v.lock_key AND s.name >= v.txn_id WHERE v.txn_id = ?) INTO @leasehold_old; \
     /*M! SET STATEMENT check_constraint_checks = 1 FOR */ \
     UPDATE leasehold_txn SET state = IF(@leasehold_old, 7, IF(UTC_TIMESTAMP(6) >= at \
     AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) <= ?, 1, 9)) WHERE txn_id = ?";

/// After the answer to `COMMIT` or `ROLLBACK`, and never before: it may commit what is open. After
/// anything else, close the connection.
pub const END: &str = "SET SESSION autocommit = @leasehold_autocommit, \
     SESSION completion_type = @leasehold_completion, SESSION \
     /*M! tx_read_only */ /*!80000 transaction_read_only */ = @leasehold_read_only";

/// How long the server keeps the transaction of a client that hangs: (seconds, three times): what
/// is left of the lease and a second. Before [`ENTER`]. Two statements; [`UNLIMIT`] takes it back.
pub const LIMIT: &str = "SET @leasehold_idle = @@SESSION.wait_timeout, \
     @leasehold_reads = @@SESSION.net_read_timeout, @leasehold_writes = @@SESSION.net_write_timeout; \
     SET SESSION wait_timeout = LEAST(@leasehold_idle, ?), \
     SESSION net_read_timeout = LEAST(@leasehold_reads, ?), \
     SESSION net_write_timeout = LEAST(@leasehold_writes, ?)";

/// Takes [`LIMIT`] back.
pub const UNLIMIT: &str = "SET SESSION wait_timeout = @leasehold_idle, \
     SESSION net_read_timeout = @leasehold_reads, SESSION net_write_timeout = @leasehold_writes";

/// What a raise still waits for, after its error 1205: (key, token, key, token). Two answers, of
/// uncommitted and of committed rows, as (txn_id, conn). A connection of the first whose txn_id is
/// not in the second has an open transaction under a smaller token whose lease is over. Needs no
/// privilege. Eight statements.
pub const HUNG: &str = "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; START TRANSACTION; \
     SELECT txn_id, conn FROM leasehold_txn WHERE lock_key = ? AND token < ? AND state = 2 \
     AND until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)); COMMIT; \
     SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; \
     SELECT txn_id, conn FROM leasehold_txn WHERE lock_key = ? AND token < ? AND state = 2; COMMIT";

/// Ends a connection of [`HUNG`]: (conn). One's own user's without a privilege, others' with
/// `CONNECTION_ADMIN` (MariaDB: `CONNECTION ADMIN`): so check first that it is one of [`OWN`],
/// because whoever may write the row may write any number. No holder enters by it: a raise still
/// waits for the row.
pub const KILL: &str = "KILL CONNECTION ?";

/// The connections of one's own user, as (conn). Needs no privilege.
pub const OWN: &str = "SELECT CAST(o.id AS UNSIGNED) AS conn FROM information_schema.processlist o \
     JOIN information_schema.processlist me ON me.user = o.user WHERE me.id = CONNECTION_ID()";

/// Between [`MARK`] and [`SEAL`]: claims a name of your own for what this transaction does once,
/// with [`ONCE_UNTIL`] behind it: (name). Up to 1,000 bytes: refuse a longer one yourself, because
/// without a strict `sql_mode` the server cuts it.
pub const ONCE: &str = "INSERT INTO leasehold_once (name, until) VALUES (?, 0) \
     ON DUPLICATE KEY UPDATE until = until";

/// After [`ONCE`]: (how long the name is kept, in seconds, name). The clock counts whole seconds:
/// add one, so that the name is not free too early. If it found no row, it was done: change
/// nothing.
pub const ONCE_UNTIL: &str = "UPDATE leasehold_once SET until = UNIX_TIMESTAMP() + ? \
     WHERE name = ? AND until <= UNIX_TIMESTAMP()";

/// Claims the name of a commit in doubt as void: (txn_id, its first key, the token of that). In a
/// transaction of its own, with [`RESOLVE`] behind it. It waits while the commit's transaction is
/// open; 1205 proves nothing.
pub const VOID: &str = "INSERT INTO leasehold_txn \
     (txn_id, lock_key, token, state, until, conn, asked, at) \
     VALUES (?, ?, ?, 0, 0, 0, 1, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE asked = asked + 1";

/// What became of a commit, after [`VOID`], as (state, asked, swept): (key, txn_id, key). It is
/// true once `COMMIT` is answered. State 1: it is applied. 0: it is not, and never will be; but if
/// `asked` is 1 and `swept` at least the txn_id, send `ROLLBACK`: its name was deleted, and it can
/// never be known. 2: a statement of the work committed a part.
pub const RESOLVE: &str = "SELECT state, asked, \
     (SELECT s.name FROM leasehold_swept s WHERE s.lock_key = ? LOCK IN SHARE MODE) AS swept \
     FROM leasehold_txn WHERE txn_id = ? AND lock_key = ? FOR UPDATE";

/// Whose turn it is to delete old names: if it changes a row, yours. At most hourly. Nobody else
/// deletes them: send it after every 64th commit, say, in one transaction with what follows up to
/// [`SWEEP_ON`], with a short `innodb_lock_wait_timeout`. It names the row for
/// `sql_safe_updates`.
pub const SWEEP: &str = "UPDATE leasehold_meta SET swept_at = UTC_TIMESTAMP() \
     WHERE one = 1 AND swept_at <= UTC_TIMESTAMP() - INTERVAL 1 HOUR";

/// After [`SWEEP`]: the names that are older than `names_kept_s`, up to [`OLD_AT_ONCE`], as
/// (txn_id, lock_key), in order of txn_id. They say themselves that they are old, so a name of now
/// is larger. For each of them delete the row, and then write the largest of each key with
/// [`SWEPT`], in this order.
pub const OLD: &str = "SELECT v.txn_id, v.lock_key FROM leasehold_txn v, leasehold_meta m \
     WHERE v.txn_id < LOWER(LPAD(HEX((UNIX_TIMESTAMP() - m.names_kept_s) * 1000), 12, '0')) \
     AND v.at <= UTC_TIMESTAMP() - INTERVAL m.names_kept_s SECOND \
     ORDER BY v.txn_id LIMIT 1000";

/// How many names [`OLD`] answers at most.
pub const OLD_AT_ONCE: usize = 1000;

/// The name of a commit was deleted: (txn_id, key).
pub const DELETE: &str = "DELETE FROM leasehold_txn WHERE txn_id = ? AND lock_key = ?";

/// The largest name of a key that was deleted: (key, txn_id, txn_id).
pub const SWEPT: &str = "INSERT INTO leasehold_swept (lock_key, name) VALUES (?, ?) \
     ON DUPLICATE KEY UPDATE name = GREATEST(name, ?)";

/// After as many as [`OLD_AT_ONCE`]: the next sweep goes on, and waits no hour.
pub const SWEEP_ON: &str = "UPDATE leasehold_meta SET swept_at = '1970-01-02' WHERE one = 1";

/// Deletes the names of [`ONCE`] whose time is over. In a transaction of its own, if it was one's
/// turn, with a short `innodb_lock_wait_timeout`: it waits for transactions of the user's.
pub const SWEEP_ONCE: &str = "DELETE FROM leasehold_once WHERE until <= UNIX_TIMESTAMP()";

/// Decides what an error of a transaction proves. `number` is the server's number of the error
/// (SQLSTATE is too coarse), `None` if no answer came.
///
/// It holds for a client that sends [`SEAL`] and `COMMIT` in one request, and only in
/// [`Phase::Commit`], and sends nothing twice. [`Verdict::NotApplied`] needs that the connection is
/// closed, or `ROLLBACK` answered: an error aborts nothing.
#[must_use]
pub fn judge(phase: Phase, number: Option<u16>) -> Verdict {
    match (phase, number) {
        // 1020: the snapshot is from before a raise.
        (Phase::Enter, Some(CHECK | CHECK_MYSQL | 1020)) => Verdict::NotAppliedOrFenced,
        // The name is taken: it was resolved as void, or this is not the first copy of the commit.
        (Phase::Enter, Some(1062)) => Verdict::InDoubt,
        (Phase::Enter, _) => Verdict::NotApplied,
        // Deadlock, certification, a server that takes no writes.
        (Phase::Commit, Some(CHECK | CHECK_MYSQL | 1213 | 3101 | 1290 | 1792 | 1836)) => {
            Verdict::NotApplied
        }
        // A statement of the work may have committed: ask `WITNESS`.
        (Phase::Work | Phase::Commit, _) => Verdict::InDoubt,
    }
}

/// A `CHECK` refused a row: MariaDB's number.
const CHECK: u16 = 4025;
/// MySQL's.
const CHECK_MYSQL: u16 = 3819;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_enter_is_fenced_if_there_is_a_larger_token() {
        for number in [4025, 3819, 1020] {
            let verdict = judge(Phase::Enter, Some(number));
            assert_eq!(verdict, Verdict::NotAppliedOrFenced, "{number}");
        }
        assert_eq!(judge(Phase::Enter, Some(1062)), Verdict::InDoubt);
        for number in [None, Some(1205), Some(1213), Some(1146), Some(2013)] {
            let verdict = judge(Phase::Enter, number);
            assert_eq!(verdict, Verdict::NotApplied, "{number:?}");
        }
    }

    #[test]
    fn no_error_of_the_work_proves_that_nothing_was_applied() {
        for number in [None, Some(1213), Some(1205), Some(4025), Some(1792)] {
            assert_eq!(judge(Phase::Work, number), Verdict::InDoubt, "{number:?}");
        }
    }

    #[test]
    fn few_errors_of_seal_and_commit_prove_that_nothing_was_applied() {
        for number in [4025, 3819, 1213, 3101, 1290, 1792, 1836] {
            let verdict = judge(Phase::Commit, Some(number));
            assert_eq!(verdict, Verdict::NotApplied, "{number}");
        }
        for number in [
            None,
            Some(1305),
            Some(1205),
            Some(1317),
            Some(1927),
            Some(0),
        ] {
            assert_eq!(judge(Phase::Commit, number), Verdict::InDoubt, "{number:?}");
        }
    }
}
