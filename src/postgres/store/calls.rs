//! The calls of the functions in the schema, and what their answers mean.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use super::connection::{Connection, Parameters};
use super::fault::NoAnswer;
use super::leaving::unanswered;
use super::link::waits;
use super::owner::Owner;
use crate::model::holder::Label;
use crate::model::key::Key;
use crate::model::token::FencingToken;
use crate::store::{Claim, LockInfo, LockMode, Share, Waiter};

// What is a promise says since when it waits for standbys.
const ASK: &str = concat!(
    "SELECT answer, token, left_ms, CASE WHEN token IS NOT NULL THEN ",
    waits!(),
    " END AS waits FROM leasehold.ask($1, $2, $3, $4, $5, $6, $7, $8)"
);
const RENEW: &str = concat!(
    "SELECT n, is_extended, ",
    waits!(),
    " AS waits FROM leasehold.renew($1)"
);
const RELEASE: &str = "SELECT leasehold.leave($1, u.o, false) \
    FROM pg_catalog.unnest($2) WITH ORDINALITY AS u(o, n) ORDER BY u.n";
const WITHDRAW: &str = concat!(
    "SELECT leasehold.leave($1, $2, true), ",
    waits!(),
    " AS waits"
);
const REST: &str = concat!("SELECT leasehold.rest($1, $2, $3), ", waits!(), " AS waits");
const WATCH: &str = "SELECT leasehold.watch($1, $2, $3)";
const DOWNGRADE: &str = concat!(
    "SELECT answer, token, left_ms, ",
    waits!(),
    " AS waits FROM leasehold.downgrade($1, $2)"
);
const TAKE_AWAY: &str = concat!(
    "SELECT leasehold.take_away($1, $2), ",
    waits!(),
    " AS waits"
);
const LOOK: &str = "SELECT key, label, token, mode, left_ms, held_ms, holders, queue, labels, waiters FROM leasehold.look($1, $2)";
const TIDY: &str = "SELECT leasehold.tidy()";
/// Not while the queue of messages is nearly full, as the functions do: a full one would be an
/// error.
const NOTIFY: &str = "SELECT pg_catalog.pg_notify('leasehold', $1) WHERE pg_catalog.pg_notification_queue_usage() OPERATOR(pg_catalog.<) 0.9::pg_catalog.float8";

/// The server's answer to an attempt.
pub(super) enum Attempted {
    Granted(FencingToken, Duration),
    /// Until a retry may succeed; `None`: it is called before.
    Busy(Option<Duration>),
    Withdrawn,
    /// The server may lack the newest grants, for so long.
    Closed(Duration),
}

/// The server's answer to a downgrade.
pub(super) enum Downgraded {
    Read(FencingToken, Duration),
    Exclusive,
    Gone,
}

/// `can_hear` says that messages reach the claim, so that the key may be handed over to it.
/// `is_called`: it got a message, and need not wait for others to ask.
pub(super) async fn ask(
    at: &Connection,
    claim: &Claim,
    can_hear: bool,
    is_called: bool,
) -> Result<Attempted, NoAnswer> {
    let (key, owner, label) = (claim.key.as_str(), Owner(claim.owner), label(claim));
    let _turn = match is_called {
        true => None,
        false => Some(at.turn(&claim.key).await?),
    };
    let answer = at
        .ask(
            ASK,
            &[
                (&key, Type::TEXT),
                (&owner, Type::UUID),
                (&letter(claim), Type::CHAR),
                (&millis(claim.ttl), Type::INT8),
                (&millis(claim.place_ttl), Type::INT8),
                (&label, Type::TEXT),
                (&can_hear, Type::BOOL),
                (&at.seen(), Type::TEXT),
            ],
        )
        .await;
    at.note(&claim.key, &answer);
    let rows = answer?;
    let row = one(&rows)?;
    match read::<&str>(row, 0)? {
        "granted" => Ok(Attempted::Granted(token(row, 1)?, span(row, 2)?)),
        "busy" => Ok(Attempted::Busy(perhaps_span(row, 2)?)),
        "withdrawn" => Ok(Attempted::Withdrawn),
        "closed" => Ok(Attempted::Closed(span(row, 2)?)),
        _ => Err(unexpected()),
    }
}

/// Which of the owners were extended, by position, and of which that is not known, because another
/// call about it is in progress. The rest are gone.
pub(super) async fn renew(
    at: &Connection,
    owners: &[Owner],
) -> Result<Vec<(usize, bool)>, NoAnswer> {
    let rows = at.renew(RENEW, &[(&owners, Type::UUID_ARRAY)]).await?;
    let position = |row: &Row| {
        let position = usize::try_from(read::<i64>(row, 0)?).ok();
        let position = position.and_then(|position| position.checked_sub(1));
        Ok((position.ok_or_else(unexpected)?, read(row, 1)?))
    };
    rows.iter().map(position).collect()
}

/// Whether the claim held the key. Those of the same key that wait are sent together, in a task of
/// their own: the caller that sends them may not wait as long as the others.
pub(super) async fn release(at: &Arc<Connection>, claim: &Claim) -> Result<bool, NoAnswer> {
    let mut place = at.leaving.join(claim);
    let turn = pin!(at.turn_to_end(&claim.key));
    let turn = match select(turn, &mut place.answer).await {
        Either::Left((turn, _)) => turn,
        Either::Right((answer, _)) => return place.answered(answer),
    };
    let together = match place.in_turn() {
        Ok(together) => together,
        Err(answer) => return answer,
    };
    let (at, key) = (Arc::clone(at), claim.key.clone());
    let sending = tokio::spawn(async move {
        let _turn = turn;
        let (name, owners) = (key.as_str(), together.owners());
        let parameters: Parameters<'_> = &[(&name, Type::TEXT), (&owners, Type::UUID_ARRAY)];
        let rows = at.end_in_turn(&key, "release", RELEASE, parameters).await;
        let held = |rows: Vec<Row>| rows.iter().map(|row| read(row, 0)).collect();
        together.answer(rows.and_then(held))
    });
    sending.await.unwrap_or_else(|_| Err(unanswered()))
}

/// As [`release`], and what is still on its way is refused.
pub(super) async fn withdraw(at: &Connection, claim: &Claim) -> Result<(), NoAnswer> {
    end(at, "withdraw", WITHDRAW, claim, &[]).await.map(drop)
}

/// As [`release`], and nobody is granted the key for `rest`.
pub(super) async fn rest(at: &Connection, claim: &Claim, rest: Duration) -> Result<bool, NoAnswer> {
    let rest = millis(rest.saturating_add(Duration::from_millis(1)));
    let rows = end(at, "release", REST, claim, &[(&rest, Type::INT8)]).await?;
    read(one(&rows)?, 0)
}

pub(super) async fn watch(at: &Connection, claim: &Claim) -> Result<(), NoAnswer> {
    let span = millis(claim.place_ttl.max(claim.ttl));
    let (key, owner) = (claim.key.as_str(), Owner(claim.owner));
    let parameters: Parameters<'_> = &[
        (&key, Type::TEXT),
        (&owner, Type::UUID),
        (&span, Type::INT8),
    ];
    at.ask(WATCH, parameters).await.map(drop)
}

pub(super) async fn downgrade(at: &Connection, claim: &Claim) -> Result<Downgraded, NoAnswer> {
    let rows = end(at, "downgrade", DOWNGRADE, claim, &[]).await?;
    let row = one(&rows)?;
    match read::<&str>(row, 0)? {
        "read" => Ok(Downgraded::Read(token(row, 1)?, span(row, 2)?)),
        "exclusive" => Ok(Downgraded::Exclusive),
        "gone" => Ok(Downgraded::Gone),
        _ => Err(unexpected()),
    }
}

/// A call about a claim: its key, its owner and `more` are the parameters.
async fn end(
    at: &Connection,
    doing: &'static str,
    statement: &str,
    claim: &Claim,
    more: Parameters<'_>,
) -> Result<Vec<Row>, NoAnswer> {
    let (key, owner) = (claim.key.as_str(), Owner(claim.owner));
    let mut parameters: Vec<(&(dyn ToSql + Sync), Type)> =
        vec![(&key, Type::TEXT), (&owner, Type::UUID)];
    parameters.extend_from_slice(more);
    at.end(&claim.key, doing, statement, &parameters).await
}

/// For how long nobody is granted the key; `None` if nobody held it.
pub(super) async fn take_away(
    at: &Connection,
    key: &Key,
    after_ttl: bool,
) -> Result<Option<Duration>, NoAnswer> {
    let parameters: Parameters<'_> = &[(&key.as_str(), Type::TEXT), (&after_ttl, Type::BOOL)];
    let rows = at.end(key, "revoke", TAKE_AWAY, parameters).await?;
    let row = one(&rows)?;
    perhaps_span(row, 0)
}

/// What is held: one key, or all that begin with a prefix.
pub(super) async fn look(
    at: &Connection,
    text: &str,
    is_prefix: bool,
) -> Result<Vec<LockInfo>, NoAnswer> {
    let parameters: Parameters<'_> = &[(&text, Type::TEXT), (&is_prefix, Type::BOOL)];
    let rows = at.ask(LOOK, parameters).await?;
    rows.iter().map(info).collect()
}

fn info(row: &Row) -> Result<LockInfo, NoAnswer> {
    let key = Key::parse(read(row, 0)?).map_err(|_| unexpected())?;
    let label: Option<&str> = read(row, 1)?;
    let mode: Option<&str> = read(row, 3)?;
    let is_resting = mode == Some("z");
    let mode = mode.filter(|_| !is_resting);
    let count = |column| {
        let count: i64 = read(row, column)?;
        usize::try_from(count).map_err(|_| unexpected())
    };
    let held_for: Option<i64> = read(row, 5)?;
    let held_for = held_for.map(u64::try_from).transpose();
    let held_for = held_for.map_err(|_| unexpected())?;
    let parsed = |label: &str| Label::from_record(label).map_err(|_| unexpected());
    let labels: Vec<&str> = read(row, 8)?;
    let waiters: Vec<&str> = read(row, 9)?;
    let waiter = |text: &&str| {
        let (mode, label) = text.split_once(' ').ok_or_else(unexpected)?;
        Ok(Waiter::new(Some(parsed(label)?), Some(mode_of(mode)?)))
    };
    Ok(LockInfo {
        label: label.map(parsed).transpose()?,
        token: match mode {
            Some(_) => Some(token(row, 2)?),
            None => None,
        },
        remaining: Some(span(row, 4)?),
        held_for: held_for.map(Duration::from_millis),
        mode: mode.map(mode_of).transpose()?,
        holders: count(6)?,
        is_resting,
        queue: Some(count(7)?),
        labels: labels.into_iter().map(parsed).collect::<Result<_, _>>()?,
        waiters: waiters.iter().map(waiter).collect::<Result<_, _>>()?,
        ..LockInfo::of(key)
    })
}

/// Deletes what is over, if nobody has done so lately.
pub(super) async fn tidy(at: &Connection) -> Result<(), NoAnswer> {
    at.ask(TIDY, &[]).await.map(drop)
}

pub(super) async fn notify(at: &Connection, name: &str) -> Result<(), NoAnswer> {
    at.ask(NOTIFY, &[(&name, Type::TEXT)]).await.map(drop)
}

fn letter(claim: &Claim) -> i8 {
    let letter = match (claim.mode, claim.share) {
        (_, Some(_)) => b's',
        (LockMode::Exclusive, None) => b'x',
        (LockMode::Read, None) => b'r',
        (LockMode::Write, None) => b'w',
    };
    letter.cast_signed()
}

/// The label, after the share if the claim has one.
fn label(claim: &Claim) -> Cow<'_, str> {
    let label = claim.label.record();
    match claim.share {
        Some(Share { permits, of }) => format!("{permits}/{of} {label}").into(),
        None => label.into(),
    }
}

fn mode_of(letter: &str) -> Result<LockMode, NoAnswer> {
    match letter {
        "x" => Ok(LockMode::Exclusive),
        "r" => Ok(LockMode::Read),
        "w" => Ok(LockMode::Write),
        _ => Err(unexpected()),
    }
}

/// Rounded down: never more than was asked for.
fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn one(rows: &[Row]) -> Result<&Row, NoAnswer> {
    match rows {
        [row] => Ok(row),
        _ => Err(unexpected()),
    }
}

fn read<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, NoAnswer> {
    row.try_get(column).map_err(|_| unexpected())
}

fn token(row: &Row, column: usize) -> Result<FencingToken, NoAnswer> {
    let number = u64::try_from(read::<i64>(row, column)?).map_err(|_| unexpected())?;
    FencingToken::new(number).map_err(NoAnswer::NotSent)
}

fn perhaps_span(row: &Row, column: usize) -> Result<Option<Duration>, NoAnswer> {
    match read::<Option<i64>>(row, column)? {
        Some(_) => span(row, column).map(Some),
        None => Ok(None),
    }
}

fn span(row: &Row, column: usize) -> Result<Duration, NoAnswer> {
    let millis = u64::try_from(read::<i64>(row, column)?).map_err(|_| unexpected())?;
    Ok(Duration::from_millis(millis))
}

/// Another program has replaced a function.
fn unexpected() -> NoAnswer {
    NoAnswer::Unanswered(
        "a function of the schema leasehold answered what it never does; compare it with `leasehold sql postgres`",
    )
}
