//! Arming: judges a server before its first grant, and learns the name of its counter of tokens.

use std::sync::Arc;
use std::time::Duration;

use super::attempt_route::AttemptRoute;
use super::client::RedisClient;
use super::cluster::Slot;
use super::connection::{Connection, Failure, Purpose, Server, Session};
use super::counters::{Counter, PROTOCOL};
use super::quarantine::{Past, Quarantine};
use super::reply::{self, Answer, Armed, Outcome};
use super::script::{ARM, Call};
use crate::model::error::Error;
use crate::model::key::Key;
use crate::model::span::in_millis;

/// What a server is for grants.
pub(super) enum Judged {
    Counter(Arc<Counter>),
    /// It grants nothing for now.
    Quarantined(Answer),
    /// It is not what it was when the connection was made: the connection was given up. With the error for the caller.
    Outdated(Error),
}

/// The counter of a server, which is judged first if this store does not know it.
pub(super) async fn judge_server(
    client: &RedisClient,
    route: &AttemptRoute<'_>,
    session: &Session<'_>,
    connection: &Connection,
    extra_quarantine: Duration,
) -> Result<Judged, Failure> {
    let slot = route.slot();
    let incarnation = session.server().incarnation_or_hidden();
    if let Some(counter) = client.counters.of(slot, incarnation) {
        return Ok(Judged::Counter(counter));
    }
    match arm(client, route, session, connection, extra_quarantine).await? {
        Armed::Counter { name, micros } => {
            let counter = client.counters.learn(slot, incarnation, name, micros);
            Ok(Judged::Counter(counter))
        }
        Armed::Quarantined(answer) => Ok(Judged::Quarantined(answer)),
        Armed::Outdated => Ok(Judged::Outdated(connection.outdated(session))),
    }
}

/// The counter of the server that has a lock; `None` in a quarantine.
pub(super) async fn counter_of(
    client: &RedisClient,
    key: &Key,
    extra_quarantine: Duration,
) -> Result<Option<Arc<Counter>>, Error> {
    let names = &client.options().names;
    let mut route = AttemptRoute::of(&client.servers, names, key, Purpose::Ask);
    loop {
        let failure = match route.connection().await {
            Ok(connection) => {
                let session = connection.session().await?;
                match judge_server(client, &route, &session, &connection, extra_quarantine).await {
                    Ok(Judged::Counter(counter)) => return Ok(Some(counter)),
                    Ok(Judged::Quarantined(_)) => return Ok(None),
                    Ok(Judged::Outdated(error)) => return Err(error),
                    Err(failure) => failure,
                }
            }
            Err(failure) => failure,
        };
        let followed = route.follow(failure).await;
        followed.map_err(|failure| failure.into_error("acquire"))?;
    }
}

/// Asks a server for its counter, which it arms unless it is in quarantine.
async fn arm(
    client: &RedisClient,
    route: &AttemptRoute<'_>,
    session: &Session<'_>,
    connection: &Connection,
    extra_quarantine: Duration,
) -> Result<Armed, Failure> {
    let (options, slot, server) = (client.options(), route.slot(), session.server());
    let names = &options.names;
    let mut call = Call::new([names.marker(slot), names.tokens(slot)])
        .number(PROTOCOL.into())
        .arg(server.incarnation_or_hidden());
    if options.quarantine {
        check_run(client, slot, server, connection)?;
        let max_ttl = options.max_ttl + extra_quarantine;
        let past = Past {
            age: session.age(max_ttl),
            same_for: route.same_for(session, names, max_ttl).await,
            is_missed: client.markers.is_missed(slot),
            has_slots: slot.is_some(),
        };
        let quarantine = Quarantine::of(server, &past, max_ttl);
        call = call
            .number(options.max_ttl.as_millis())
            .written(format_args!(
                "{} {} {} {}",
                quarantine.if_other.as_millis(),
                quarantine.if_none.as_millis(),
                max_ttl.as_millis(),
                server.flushes
            ));
    }
    let answer = call.run_in(&ARM, session).await?;
    let armed = reply::armed(names, slot, &answer).map_err(Failure::Answered)?;
    let left = match &armed {
        Armed::Outdated => return Ok(armed),
        Armed::Counter { .. } => None,
        Armed::Quarantined(answer) => match answer.outcome {
            Outcome::Quarantined(left) => Some(left),
            Outcome::Acquired(_) => None,
        },
    };
    if options.quarantine {
        client.markers.note(slot);
        log_quarantine(client, slot, left, connection);
    }
    Ok(armed)
}

/// A quarantine is judged by the server's run. Where another server may replace it, nothing is granted without the run.
fn check_run(
    client: &RedisClient,
    slot: Option<Slot>,
    server: &Server,
    connection: &Connection,
) -> Result<(), Failure> {
    if server.run_id.is_some() {
        return Ok(());
    }
    let address = connection.address();
    if may_be_replaced(client, slot) {
        return Err(Failure::Answered(Error::denied(format!(
            "this redis does not report its run, so another could replace it unnoticed: address={address}; allow INFO (+info in the access list), or set restart_quarantine=off in the URL"
        ))));
    }
    if client.markers.is_hidden_run_news() {
        tracing::warn!(
            target: "leasehold::redis", "redis at {address} does not report its run: a restart that keeps old data is not noticed, and two may hold after it; \
             allow INFO (+info in the access list); restart_quarantine=off in the URL switches this warning off, and the \
             quarantine too",
        );
    }
    Ok(())
}

/// Whether another server replaces this one when it is gone.
fn may_be_replaced(client: &RedisClient, slot: Option<Slot>) -> bool {
    slot.is_some() || client.options().is_behind_sentinels()
}

/// Once for each quarantine. `None`: there is none.
fn log_quarantine(
    client: &RedisClient,
    slot: Option<Slot>,
    left: Option<Duration>,
    connection: &Connection,
) {
    let is_news = client.markers.is_news(slot, left.is_some());
    if let Some(left) = left.filter(|_| is_news) {
        tracing::warn!(
            target: "leasehold::redis", "redis at {} grants nothing for another {:?}: it restarted, was replaced or was flushed, and may have \
             forgotten locks whose leases last up to max_ttl={:?}; restart_quarantine=off in the URL switches this off",
            connection.address(),
            in_millis(left),
            client.options().max_ttl,
        );
    }
}
