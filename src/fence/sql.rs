//! The fence in a SQL database, as text: the schema, the statements, and what an answer proves. It
//! has no dependency.
//!
//! A token column in a `WHERE` orders nothing between the check and the commit of several
//! statements. A **row lock that is held to the end of the transaction** does:
//! [`ENTER`](postgres::ENTER) locks the fence's row `FOR SHARE` as the first statement of the
//! user's transaction, and a newer holder's [`RAISE`](postgres::RAISE) waits for it.
//!
//! `PgFence` (feature `postgres`) does all of this over tokio-postgres, and the crate
//! `leasehold-sqlx` over sqlx, on PostgreSQL, MariaDB, MySQL and SQLite. With another driver, send
//! these statements yourself and let [`judge`], or [`mysql::judge`], decide what to report:
//! [`docs::sql`](crate::docs::sql).

/// PostgreSQL 13 and newer.
pub mod postgres {
    /// The tables and functions, in the schema `leasehold`. Run it once, as the owner of the data,
    /// in one transaction. It may be run again. It fails if anything in that schema belongs to
    /// another role, except a superuser: its owner's code would run with the rights of every role
    /// that calls it.
    pub const SCHEMA: &str = concat!(
        "CREATE SCHEMA IF NOT EXISTS leasehold;\n",
        include_str!("sql/owned.sql"),
        include_str!("sql/postgres.sql"),
        include_str!("sql/private.sql")
    );
    /// Fails with `LH006` if anything in the schema belongs to another role than the calling one,
    /// except a superuser. To be sent once over each connection of a superuser, before it calls a
    /// function of the schema: that would run with a superuser's rights. Several statements.
    pub const OWNED: &str = include_str!("sql/owned.sql");
    /// Raises the fence of a key: `$1` the key (text), `$2` the token (bigint), `$3` how long it
    /// waits for the transactions of former holders, in milliseconds (int). Answers the token that
    /// the fence has then: a larger one is a newer holder's.
    pub const RAISE: &str = "SELECT leasehold.raise($1, $2, $3)";
    /// The first statement of the transaction: `$1` the keys (text[]) and `$2` their tokens
    /// (bigint[]), `$3` the [`TxnId`](crate::run::TxnId) as text, `$4` what is left of the lease
    /// and a second, in milliseconds (int). Answers the server's clock, in microseconds since 1970
    /// (bigint).
    pub const ENTER: &str =
        "SELECT leasehold.enter($1, $2, $3::pg_catalog.text::pg_catalog.uuid, $4)";
    /// The last statement of the transaction, before `COMMIT`: `$1` the
    /// [`TxnId`](crate::run::TxnId) as text, `$2` the end of the lease by the server's clock, in
    /// microseconds since 1970 (bigint): what [`ENTER`] answered, and what was left of the lease
    /// when that answer had arrived. The server then refuses a `COMMIT` that it executes later.
    /// Null: it compares no time.
    ///
    /// It fails if the transaction was aborted: a `COMMIT` would then answer `ROLLBACK`, without an
    /// error. A `COMMIT` without it is refused.
    pub const SEAL: &str = "SELECT leasehold.seal($1::pg_catalog.text::pg_catalog.uuid, $2)";
    /// Between [`ENTER`] and [`SEAL`]: claims a name of your own for what this transaction does
    /// once. `$1` the name (text, up to 1,000 bytes), `$2` how long it is kept after that, in
    /// milliseconds (bigint). False: it was done, so change nothing.
    pub const ONCE: &str = "SELECT leasehold.once($1, $2)";
    /// Finds out what became of a commit in doubt, in a transaction of its own: `$1` the keys
    /// (text[]), `$2` their tokens (bigint[]), `$3` the [`TxnId`](crate::run::TxnId) as text, `$4`
    /// how long it waits for the transaction, in milliseconds (int). True: it is committed. False:
    /// it is not, and never will be. An error proves nothing; ask again.
    pub const RESOLVE: &str =
        "SELECT leasehold.resolve($1, $2, $3::pg_catalog.text::pg_catalog.uuid, $4)";
    /// Deletes names that are older than `leasehold.fence_meta.names_kept`, at most hourly. Nobody
    /// else deletes them: send it after every 64th commit, say, in a transaction of its own. Begin
    /// that with `ISOLATION LEVEL READ COMMITTED`: a serializable one fails runs beside it.
    pub const SWEEP: &str = "SELECT leasehold.sweep()";
}

/// SQLite 3.24 and newer. It has one writer at a time, so that `BEGIN IMMEDIATE` takes the place of
/// row locks.
pub mod sqlite {
    /// The tables. It may be run again.
    pub const SCHEMA: &str = include_str!("sql/sqlite.sql");
    /// Begins the transaction, so that nobody else writes until it ends.
    pub const BEGIN: &str = "BEGIN IMMEDIATE";
    /// Raises the fence of a key: `?1` the key, `?2` the token. A fence that is higher stays as it
    /// is.
    pub const RAISE: &str = "INSERT INTO leasehold_fence (key, token) VALUES (?1, ?2) \
         ON CONFLICT (key) DO UPDATE SET token = excluded.token WHERE token < excluded.token";
    /// The fence of a key: `?1` the key. After [`RAISE`] a larger token than one's own is a newer
    /// holder's.
    pub const SEEN: &str = "SELECT token FROM leasehold_fence WHERE key = ?1";
    /// Claims the name of the commit, in the transaction of its changes: `?1` the
    /// [`TxnId`](crate::run::TxnId) as text. It fails if the name is taken, and if it is so old
    /// that it may have been deleted.
    pub const NAME: &str = "INSERT INTO leasehold_txn (txn_id, applied) VALUES (?1, \
         CASE WHEN EXISTS (SELECT 1 FROM leasehold_swept WHERE txn_id >= ?1) THEN NULL ELSE 1 END)";
    /// After [`RAISE`], in the same transaction: claims a name of your own for what this
    /// transaction does once. `?1` the name, `?2` how long it is kept after that, in seconds. If it
    /// changed no row it was done, so change nothing.
    pub const ONCE: &str = "INSERT INTO leasehold_once (name, until) \
         VALUES (?1, CAST(strftime('%s', 'now') AS INTEGER) + ?2) ON CONFLICT (name) DO UPDATE SET until = excluded.until \
         WHERE until <= CAST(strftime('%s', 'now') AS INTEGER)";
    /// Claims the name of a commit in doubt as void, in a transaction of its own: `?1` the
    /// [`TxnId`](crate::run::TxnId) as text.
    pub const VOID: &str = "INSERT OR IGNORE INTO leasehold_txn (txn_id, applied) VALUES (?1, \
         CASE WHEN EXISTS (SELECT 1 FROM leasehold_swept WHERE txn_id >= ?1) THEN NULL ELSE 0 END)";
    /// What became of a commit, after [`VOID`]: `?1` the [`TxnId`](crate::run::TxnId) as text. 1:
    /// it is committed. 0: it is not, and never will be. No row: its name was deleted, and it can
    /// never be known.
    pub const RESOLVE: &str = "SELECT applied FROM leasehold_txn WHERE txn_id = ?1";
    /// Deletes the names of runs that began more than 7 days ago, and those of [`ONCE`] whose time
    /// is over. Nobody else deletes them: send it with each [`RAISE`], in its transaction. Three
    /// statements.
    pub const SWEEP: &str = "INSERT INTO leasehold_swept (one, txn_id) \
         SELECT 1, txn_id FROM leasehold_txn \
         WHERE txn_id < printf('%012x', (CAST(strftime('%s', 'now') AS INTEGER) - 7 * 86400) * 1000) \
         ORDER BY txn_id DESC LIMIT 1 \
         ON CONFLICT (one) DO UPDATE SET txn_id = max(txn_id, excluded.txn_id); \
         DELETE FROM leasehold_txn WHERE txn_id <= (SELECT txn_id FROM leasehold_swept); \
         DELETE FROM leasehold_once WHERE until <= CAST(strftime('%s', 'now') AS INTEGER)";
}

pub mod mysql;

/// How far a transaction had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// `BEGIN` or [`ENTER`](postgres::ENTER) was sent.
    Enter,
    /// The user's statements were sent. `COMMIT` was not.
    Work,
    /// [`SEAL`](postgres::SEAL) and `COMMIT` were sent.
    Commit,
}

/// What an answer, or its absence, proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Nothing was applied, and nothing will be.
    NotApplied,
    /// A newer holder has raised the fence. Nothing was applied, and nothing will be.
    Fenced,
    /// Nothing was applied, and nothing will be. It is [`Fenced`](Self::Fenced) if the fence now
    /// shows a larger token.
    NotAppliedOrFenced,
    /// It proves nothing: [resolve](postgres::RESOLVE) it.
    InDoubt,
}

/// Decides what an error of a transaction on PostgreSQL proves. `sqlstate` is `None` if no answer
/// came.
///
/// It holds for a client that sends `COMMIT` only in [`Phase::Commit`], and sends nothing twice.
#[must_use]
pub fn judge(phase: Phase, sqlstate: Option<&str>) -> Verdict {
    match (phase, sqlstate) {
        (Phase::Enter, Some(FENCED)) => Verdict::Fenced,
        (Phase::Enter, Some("40001")) => Verdict::NotAppliedOrFenced,
        // The name is taken: it was resolved as void, or this is not the first copy of the commit.
        (Phase::Enter, Some("23505")) => Verdict::InDoubt,
        (Phase::Enter | Phase::Work, _) => Verdict::NotApplied,
        (Phase::Commit, Some(code)) if proves_an_abort(code) => Verdict::NotApplied,
        (Phase::Commit, _) => Verdict::InDoubt,
    }
}

/// `ENTER` refused a token that is not the largest.
pub(crate) const FENCED: &str = "LH001";
/// `ENTER` refused a token to which the fence was not raised since it was loaded from a dump.
#[cfg(any(test, feature = "postgres"))]
pub(crate) const OF_A_DUMP: &str = "LH009";
/// By `enter`: the name is older than those that were deleted.
#[cfg(feature = "postgres")]
pub(crate) const TOO_OLD: &str = "LH004";
/// The transaction that entered was ended before `SEAL`: by a `COMMIT` or a `ROLLBACK` among the
/// user's statements.
pub(crate) const ENDED_BEFORE: &str = "LH003";

/// Whether an error answer to `COMMIT` proves that the transaction was aborted. The server answers
/// `COMMIT` with an ordinary error only before it has written the commit. A lost connection (08),
/// an administrator (57P01 to 57P03), a failure of the server itself (58, F0, XX) and a warning
/// (01, 02) are not such an answer.
fn proves_an_abort(code: &str) -> bool {
    let class = code.get(..2).unwrap_or_default();
    let is_silent = matches!(class, "00" | "01" | "02" | "08" | "58" | "F0" | "XX");
    let is_unknown = matches!(code, "40003" | "57P01" | "57P02" | "57P03" | ENDED_BEFORE);
    code.len() == 5 && !is_silent && !is_unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_the_commit_is_sent_nothing_can_be_applied() {
        for code in [
            None,
            Some("08006"),
            Some("57P01"),
            Some("40001"),
            Some("XX000"),
        ] {
            assert_eq!(judge(Phase::Work, code), Verdict::NotApplied, "{code:?}");
        }
        for code in [
            None,
            Some("08006"),
            Some("40P01"),
            Some("25006"),
            Some("3F000"),
            Some(OF_A_DUMP),
        ] {
            assert_eq!(judge(Phase::Enter, code), Verdict::NotApplied, "{code:?}");
        }
    }

    #[test]
    fn a_refusal_of_enter_is_fenced_and_a_stale_snapshot_may_be() {
        assert_eq!(judge(Phase::Enter, Some("LH001")), Verdict::Fenced);
        assert_eq!(
            judge(Phase::Enter, Some("40001")),
            Verdict::NotAppliedOrFenced
        );
        assert_eq!(judge(Phase::Enter, Some("23505")), Verdict::InDoubt);
        // Only `enter` says so: a user's own function may raise any code.
        assert_eq!(judge(Phase::Work, Some("LH001")), Verdict::NotApplied);
    }

    #[test]
    fn an_error_answer_to_commit_is_an_abort() {
        for code in [
            "40001", "40P01", "23505", "23503", "25P02", "25006", "57014", "P0001", "22012",
            "53100", "LH005", "LH006",
        ] {
            assert_eq!(
                judge(Phase::Commit, Some(code)),
                Verdict::NotApplied,
                "{code}"
            );
        }
    }

    #[test]
    fn a_commit_without_a_plain_answer_is_in_doubt() {
        assert_eq!(judge(Phase::Commit, None), Verdict::InDoubt);
        for code in [
            "08006", "08P01", "57P01", "57P02", "57P03", "40003", "XX000", "58030", "01000",
            "LH003", "",
        ] {
            assert_eq!(judge(Phase::Commit, Some(code)), Verdict::InDoubt, "{code}");
        }
    }
}
