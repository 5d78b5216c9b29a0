//! [`PostgresStore`]: locks in a PostgreSQL database (feature `postgres`).
//!
//! # Tables
//!
//! All are in the schema `leasehold`, and no client touches them: it calls functions that are executed with the rights of
//! their owner, and find names in the system's catalog only. [Whom that trusts](crate::docs::stores::postgres#schema) is in the guide.
//! A role of an application needs this, and cannot read the owner tokens of others:
//!
//! ```sql
//! GRANT USAGE ON SCHEMA leasehold TO app;
//! ```
//!
//! | table | one row for | lives |
//! |---|---|---|
//! | `claim` | a claim that holds a key or waits for it | the longest TTL of a claim |
//! | `withdrawn` | a claim that was withdrawn or revoked | `max_ttl`, at least a minute |
//! | `token` | each of 4,096 slots: the last token of the keys that share it | always |
//! | `lock_meta` | all: version, `max_ttl`, which server it is, until when it grants nothing | always |
//!
//! A free key has no row. One sequence for all tokens would need fewer writes, and would be wrong. After a restored copy it
//! must follow the time; when the clock is put back it must not go back. But a sequence cannot be set only if that raises it.
//!
//! # How it answers
//!
//! Every operation is one statement, so one round trip and one transaction, also behind a pooler. Calls for one key take turns
//! by an advisory lock of their transaction. One that waits too long for its turn (400 ms for an attempt, otherwise a
//! second) is `Unavailable`, because the requests of a process share a connection, and a few attempts are on their way over it at a time;
//! the next attempts for that key are refused without a request for 300 ms. A renewal waits for no other call: a hold that another
//! call is about is in doubt until the next renewal, and the others are renewed. Leases are counted by `clock_timestamp()`.
//! Token = max(last of the slot + 1, the
//! server's time in microseconds): it grows while the clock is put back, and after a copy was restored (I8).
//!
//! - **A grant or a renewal is answered after its commit is on disk**, and with synchronous standbys on theirs. So a server
//!   that crashes forgets no lock, and grants again at once. A release is not waited for: lost in a crash, it only delays.
//! - **A server that is not the one of before** (a promoted standby, a recovery to a point in time, a restored copy) may lack the
//!   newest grants: it grants nothing for `max_ttl`. Holds that it knows are renewed.
//! - **An attempt may be executed after its withdrawal**: the row in `withdrawn` refuses it.
//! - **A server that stops waiting for its standbys** says so in a notice: what it answers then counts as unknown.
//!
//! # Order of waiters
//!
//! Every claim that has to wait has a place, in the order of arrival, for as long as it asks again in time. An attempt reads only the first
//! of those who keep it out, so its time does not grow with the places. A release hands the
//! key over to the first live place, and to the readers behind a reader. They alone are notified, and nobody passes them. Their
//! place ends a second later, so a waiter that died delays the others by that: the one behind it asks then, and each further one a second later.
//! After a holder that died, whoever asks first
//! does the same. A release notifies nobody if nobody waits. Messages come by `LISTEN`. A place of a waiter that hears none
//! keeps its time, since that one polls: so the store [hands over](crate::store::Queue::Handover) only where messages arrive.
//! At its connect the store sends itself one, over two connections, since a pooler may lend one connection to both. If it does
//! not arrive within a second (a fifth of one if a pooler was recognised), something between drops messages: callers poll then.
//! `listen=` names an address that bypasses the pooler. While the server's queue of messages is nearly full,
//! because some client does not read its own, none is sent, and waiters poll.
//!
//! # What is not promised
//!
//! With asynchronous standbys a fail-over loses the newest grants, and a deposed primary that still runs goes on granting:
//! the capability then reports [`Fencing::None`](crate::store::Fencing::None). With synchronous standbys its commits hang, and prove
//! nothing. A server's clock that steps forward ends leases early, for every store that counts by it. A restored copy of the
//! data folder that keeps its timeline (a snapshot of a disk) is not noticed: let `max_ttl` pass before clients connect.

mod fence;
pub(crate) mod store;

pub use fence::{PgCommit, PgDone, PgFence, PgStop, PgTransaction};
pub use store::{PostgresOptions, PostgresStore, SCHEMA};
/// The driver of [`PgFence`], whose types are in the signatures of [`PgTransaction`].
pub use tokio_postgres;
